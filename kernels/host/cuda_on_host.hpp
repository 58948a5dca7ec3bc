// Runs kernels on the host, block after block, so that their logic is tested without a GPU and under sanitizers.
//
// Include it before a kernel file. Each thread of a block is a fiber that runs until it waits at a barrier
// or a warp operation; threads are resumed in rising order, or falling with `Launch::reversed`, so that code which
// relies on an order between barriers fails in one of the two. Not modelled: memory order and data races within a
// barrier interval (compute-sanitizer's racecheck sees those), and speed.
//
// A barrier that a thread of the block has left the kernel without reaching, or that not all threads of a warp
// operation's mask reach, ends the process with a message.
#pragma once

#include <stdint.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#define __global__
#define __device__
#define __host__
#define __constant__
// One block runs at a time, so a block's shared memory may be static.
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
#define __restrict__
#define __launch_bounds__(...)

struct Index3 {
    unsigned x, y, z;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

namespace cuda_on_host {

struct Launch {
    unsigned blocks;
    unsigned threads;
    size_t shared_bytes;
    bool reversed;
};

// Where a fiber, or the scheduler, left off.
#if defined(__x86_64__)
// A stack with the registers on it that a call preserves. ucontext would ask the kernel for the signal mask at each
// switch, which makes a warp operation ten times slower.
using Place = void *;

asm(R"(
    .text
    .p2align 4
cuda_on_host_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
extern "C" void cuda_on_host_switch(Place *from, Place to);

inline void switch_places(Place &from, const Place &to)
{
    cuda_on_host_switch(&from, to);
}

// At the beginning of `entry`, as if it had been called.
inline void begin_at(Place &place, char *stack, size_t bytes, void (*entry)())
{
    uintptr_t top = ((uintptr_t)stack + bytes) & ~(uintptr_t)15;
    void **at = (void **)(top - 64);
    for (int i = 0; i < 6; i++)
        at[i] = nullptr;
    at[6] = (void *)entry;
    place = at;
}
#else
using Place = ucontext_t;

inline void switch_places(Place &from, const Place &to)
{
    swapcontext(&from, &to);
}

inline void begin_at(Place &place, char *stack, size_t bytes, void (*entry)())
{
    getcontext(&place);
    place.uc_stack.ss_sp = stack;
    place.uc_stack.ss_size = bytes;
    place.uc_link = nullptr;
    makecontext(&place, entry, 0);
}
#endif

struct Fiber {
    Place place;
    std::unique_ptr<char[]> stack;
    void *fake_stack = nullptr;
    Index3 thread{};
    bool done = false;
};

constexpr size_t STACK_BYTES = 256 << 10;
constexpr unsigned WARP = 32;

struct Block {
    Index3 index{}, grid{}, size{};
    std::vector<Fiber> fibers;
    Place scheduler;
    void *scheduler_stack = nullptr;
    const void *scheduler_bottom = nullptr;
    size_t scheduler_size = 0;
    Fiber *running = nullptr;
    std::function<void()> body;
    std::vector<unsigned char> shared;
    // Block barrier.
    unsigned waiting = 0, generation = 0;
    // Warp operations: arrivals and generation by the lowest lane of the mask; exchanged values by thread.
    std::vector<uint32_t> arrived;
    std::vector<unsigned> warp_generation;
    std::vector<uint64_t> values;
    uint64_t progress = 0;
};

inline Block block;

[[noreturn]] inline void fail(const char *what)
{
    fprintf(stderr, "cuda_on_host: block %u, thread %u: %s\n", block.index.x,
            block.running ? block.running->thread.x : 0, what);
    exit(4);
}

inline void yield()
{
    Fiber *fiber = block.running;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fiber->fake_stack, block.scheduler_bottom, block.scheduler_size);
#endif
    switch_places(fiber->place, block.scheduler);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fiber->fake_stack, &block.scheduler_bottom, &block.scheduler_size);
#endif
}

inline void enter()
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &block.scheduler_bottom, &block.scheduler_size);
#endif
    block.body();
    block.running->done = true;
    block.progress++;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(nullptr, block.scheduler_bottom, block.scheduler_size);
#endif
    switch_places(block.running->place, block.scheduler);
}

inline void resume(Fiber &fiber)
{
    block.running = &fiber;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&block.scheduler_stack, fiber.stack.get(), STACK_BYTES);
#endif
    switch_places(block.scheduler, fiber.place);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(block.scheduler_stack, nullptr, nullptr);
#endif
}

// A fiber at the kernel's start.
inline void start(Fiber &fiber, unsigned thread)
{
    fiber.thread = Index3{thread, 0, 0};
    fiber.done = false;
    fiber.fake_stack = nullptr;
    if (!fiber.stack)
        fiber.stack.reset(new char[STACK_BYTES]);
    begin_at(fiber.place, fiber.stack.get(), STACK_BYTES, enter);
}

// Runs `body` once per thread of the grid; it calls the kernel with its arguments.
inline void launch(const Launch &shape, std::function<void()> body)
{
    block.body = std::move(body);
    block.size = Index3{shape.threads, 1, 1};
    block.grid = Index3{shape.blocks, 1, 1};
    if (block.fibers.size() < shape.threads)
        block.fibers.resize(shape.threads);
    unsigned warps = (shape.threads + WARP - 1) / WARP;
    for (unsigned b = 0; b < shape.blocks; b++) {
        block.index = Index3{b, 0, 0};
        // Poisoned: nobody may rely on what an earlier block left.
        block.shared.assign(shape.shared_bytes, 0xa5);
        block.waiting = 0;
        block.arrived.assign(warps * WARP, 0);
        block.warp_generation.assign(warps * WARP, 0);
        block.values.assign(shape.threads, 0);
        for (unsigned i = 0; i < shape.threads; i++)
            start(block.fibers[i], i);
        for (bool any = true; any;) {
            any = false;
            uint64_t before = block.progress;
            for (unsigned i = 0; i < shape.threads; i++) {
                Fiber &fiber = block.fibers[shape.reversed ? shape.threads - 1 - i : i];
                if (!fiber.done) {
                    resume(fiber);
                    any = true;
                }
            }
            if (any && block.progress == before)
                fail("all threads wait, at different barriers or with different masks");
        }
        block.running = nullptr;
    }
}

inline void sync_threads()
{
    for (unsigned i = 0; i < block.size.x; i++)
        if (block.fibers[i].done)
            fail("a barrier after another thread has left the kernel");
    unsigned generation = block.generation;
    if (++block.waiting == block.size.x) {
        block.waiting = 0;
        block.generation++;
        block.progress++;
    }
    while (block.generation == generation)
        yield();
}

inline void sync_mask(uint32_t mask)
{
    unsigned thread = block.running->thread.x;
    unsigned lane = thread % WARP, first = thread - lane;
    if (!(mask >> lane & 1))
        fail("a warp operation whose mask leaves out the calling lane");
    unsigned leader = first + (unsigned)__builtin_ctz(mask);
    unsigned generation = block.warp_generation[leader];
    block.arrived[leader] |= 1u << lane;
    if (block.arrived[leader] == mask) {
        block.arrived[leader] = 0;
        block.warp_generation[leader]++;
        block.progress++;
    }
    while (block.warp_generation[leader] == generation)
        yield();
}

// What lane `source(lane)` of the mask gave; `visit` sees all values of the mask.
template <class T, class Visit>
inline void exchange(uint32_t mask, T value, Visit visit)
{
    static_assert(sizeof(T) <= 8, "one register or two");
    unsigned thread = block.running->thread.x, first = thread - thread % WARP;
    memcpy(&block.values[thread], &value, sizeof value);
    sync_mask(mask);
    for (unsigned lane = 0; lane < WARP; lane++)
        if (mask >> lane & 1) {
            T other;
            memcpy(&other, &block.values[first + lane], sizeof other);
            visit(lane, other);
        }
    sync_mask(mask);
}

} // namespace cuda_on_host

#define threadIdx (cuda_on_host::block.running->thread)
#define blockIdx (cuda_on_host::block.index)
#define blockDim (cuda_on_host::block.size)
#define gridDim (cuda_on_host::block.grid)

inline void __syncthreads() { cuda_on_host::sync_threads(); }
inline void __syncwarp(uint32_t mask = 0xffffffffu) { cuda_on_host::sync_mask(mask); }
inline void __threadfence() {}

template <class T>
inline T __shfl_sync(uint32_t mask, T value, int source)
{
    T result = value;
    cuda_on_host::exchange(mask, value, [&](unsigned lane, T other) {
        if (lane == ((unsigned)source & 31))
            result = other;
    });
    return result;
}

template <class T>
inline T __shfl_down_sync(uint32_t mask, T value, unsigned delta)
{
    unsigned source = threadIdx.x % 32 + delta;
    return __shfl_sync(mask, value, source < 32 ? (int)source : (int)(threadIdx.x % 32));
}

template <class T>
inline T __shfl_up_sync(uint32_t mask, T value, unsigned delta)
{
    int source = (int)(threadIdx.x % 32) - (int)delta;
    return __shfl_sync(mask, value, source >= 0 ? source : (int)(threadIdx.x % 32));
}

template <class T>
inline T __shfl_xor_sync(uint32_t mask, T value, int lane_mask)
{
    return __shfl_sync(mask, value, (int)(threadIdx.x % 32) ^ lane_mask);
}

inline uint32_t __ballot_sync(uint32_t mask, int predicate)
{
    uint32_t result = 0;
    cuda_on_host::exchange(mask, predicate, [&](unsigned lane, int other) { result |= (other != 0) << lane; });
    return result;
}

inline int __any_sync(uint32_t mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(uint32_t mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }

template <class T>
inline uint32_t __match_any_sync(uint32_t mask, T value)
{
    uint32_t result = 0;
    cuda_on_host::exchange(mask, value, [&](unsigned lane, T other) { result |= (uint32_t)(other == value) << lane; });
    return result;
}

template <class T>
inline T atomicAdd(T *at, T value)
{
    T old = *at;
    *at = old + value;
    return old;
}

template <class T>
inline T atomicMax(T *at, T value)
{
    T old = *at;
    *at = old < value ? value : old;
    return old;
}

template <class T>
inline T atomicMin(T *at, T value)
{
    T old = *at;
    *at = value < old ? value : old;
    return old;
}

template <class T>
inline T atomicOr(T *at, T value)
{
    T old = *at;
    *at = old | value;
    return old;
}

inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(uint32_t x) { return x ? __builtin_clz(x) : 32; }
inline int __ffs(uint32_t x) { return __builtin_ffs((int)x); }
inline uint32_t __brev(uint32_t x)
{
    uint32_t result = 0;
    for (int bit = 0; bit < 32; bit++)
        result |= (x >> bit & 1) << (31 - bit);
    return result;
}
template <class T>
inline T __ldg(const T *at) { return *at; }
template <class T>
inline T min(T a, T b) { return b < a ? b : a; }
template <class T>
inline T max(T a, T b) { return a < b ? b : a; }
