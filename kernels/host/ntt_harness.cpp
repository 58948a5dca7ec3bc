// Runs the kernels of ntt.cu, quotient.cu and lagrange.cu on the host, step by step. tests/kernels_host/ntt.rs gives the steps.
//
//   ntt_harness ORDER DOMAIN_LOG2 LOW_LOG2 TILE_LOG2 NUM_ROWS STEP... out:VECTOR < a b > values
//
// ORDER is rising or falling: how the threads of a block are resumed. a and b are [2^DOMAIN_LOG2] raw Fr each. Steps
// are those of src/policy/ntt_plan.rs and lagrange_plan.rs; `out` writes a vector, or `out:low` and `out:high` the twiddle tables.
#include "cuda_on_host.hpp"

#include "../ntt.cu"
#include "../quotient.cu"
// Both files have a function of the same name and content.
#define from_words lagrange_from_words
#include "../lagrange.cu"
#undef from_words

#include <string>

namespace {

struct Harness {
    bool falling;
    uint32_t domain_log2, low_log2, tile_log2, num_rows;
    std::vector<Fr> a, b, c, low, high;

    uint32_t n() const { return 1u << domain_log2; }

    std::vector<Fr> &vector(const std::string &name)
    {
        if (name == "a") return a;
        if (name == "b") return b;
        if (name == "c") return c;
        if (name == "low") return low;
        if (name == "high") return high;
        fprintf(stderr, "ntt_harness: no vector %s\n", name.c_str());
        exit(2);
    }

    template <class Body>
    void launch(uint32_t blocks, uint32_t threads, size_t shared_bytes, Body body)
    {
        cuda_on_host::launch({blocks, threads, shared_bytes, falling}, body);
    }

    template <class Body>
    void per_element(Body body)
    {
        launch((n() + 255) / 256, 256, 0, body);
    }

    void make_tables()
    {
        low.resize(size_t(1) << low_log2);
        high.resize(size_t(1) << (domain_log2 - low_log2));
        launch((uint32_t)(low.size() + 2047) / 2048, 256, 0, [&] { ntt_twiddles(low.data(), low_log2, 0); });
        launch((uint32_t)(high.size() + 2047) / 2048, 256, 0,
               [&] { ntt_twiddles(high.data(), domain_log2 - low_log2, low_log2); });
    }

    void pass(Fr *values, bool to, uint32_t first, uint32_t levels)
    {
        bool far = is_far(first + levels - 1);
        auto kernel = to ? far ? ntt_to_bit_reversed_far : ntt_to_bit_reversed
                         : far ? ntt_from_bit_reversed_far : ntt_from_bit_reversed;
        per_tile([&] {
            kernel(values, low.data(), high.data(), low_log2, domain_log2, first, levels, tile_log2);
        });
    }

    bool is_far(uint32_t last_level) const { return last_level > low_log2; }

    template <class Body>
    void per_tile(Body body)
    {
        launch(n() >> tile_log2, 1u << (tile_log2 - 3), size_t(32) << tile_log2, body);
    }

    // The steps that are a pass with more in it; false if `name` is none.
    bool fused(const std::string &name, const std::vector<std::string> &words)
    {
        uint32_t number = (uint32_t)std::stoul(words.back());
        bool far = is_far(domain_log2 - 1);
        if (name == "rows" && words[1] == "c")
            c.assign(n(), Fr{{0xa5a5a5a5}});
        if (name == "rows" && words.size() == 3) {
            bool products = words[1] == "c";
            Fr *out = vector(words[1]).data();
            const Fr *rows = products ? a.data() : out, *factor = products ? b.data() : nullptr;
            per_tile([&] {
                quotient_rows_pass(rows, factor, out, num_rows, low.data(), high.data(), low_log2, domain_log2,
                                   number, tile_log2);
            });
        } else if (name == "turn" && words.size() == 3) {
            Fr *values = vector(words[1]).data();
            auto kernel = far ? quotient_turn_at_coefficients_far : quotient_turn_at_coefficients;
            per_tile([&] { kernel(values, low.data(), high.data(), low_log2, domain_log2, number, tile_log2); });
        } else if (name == "turn_values" && words.size() == 2) {
            per_tile([&] {
                quotient_turn_at_values(a.data(), b.data(), low.data(), high.data(), low_log2, domain_log2, number,
                                        tile_log2);
            });
        } else if ((name == "last_of_rows" || name == "last_of_product") && words.size() == 2) {
            bool rows = name == "last_of_rows";
            auto kernel = rows ? far ? quotient_last_pass_of_rows_far : quotient_last_pass_of_rows
                               : far ? quotient_last_pass_of_product_far : quotient_last_pass_of_product;
            Fr s = power_of_half((rows ? 1 : 3) * domain_log2 + 1);
            per_tile([&] {
                kernel((rows ? c : a).data(), b.data(), low.data(), high.data(), low_log2, domain_log2, number,
                       tile_log2, word(s, 0), word(s, 1), word(s, 2), word(s, 3));
            });
        } else {
            return false;
        }
        return true;
    }

    // The factors of `quotient_divide`, from halvings of one.
    Fr power_of_half(uint32_t exponent)
    {
        Fr half = fr_inverse(fr_one() + fr_one()), result = fr_one();
        while (exponent-- > 0)
            result = result * half;
        return result;
    }

    static uint64_t word(const Fr &x, int i) { return x.limb[2 * i] | (uint64_t)x.limb[2 * i + 1] << 32; }

    void divide()
    {
        Fr p = power_of_half(3 * domain_log2 + 1), q = power_of_half(domain_log2 + 1);
        per_element([&] {
            quotient_divide(a.data(), c.data(), b.data(), low.data(), high.data(), low_log2, domain_log2,
                            word(p, 0), word(p, 1), word(p, 2), word(p, 3), word(q, 0), word(q, 1), word(q, 2),
                            word(q, 3));
        });
    }

    // 1/n^3 times 2^256 in Montgomery form.
    Fr index_scale()
    {
        Fr radix = fr_one();
        for (int i = 0; i < 256; i++)
            radix = radix + radix;
        return power_of_half(3 * domain_log2) * radix;
    }

    // The steps of a Lagrange quotient that are not of a transform alone; false if `name` is none.
    bool lagrange(const std::string &name, const std::vector<std::string> &words)
    {
        Fr s = index_scale();
        uint32_t number = words.size() > 1 && isdigit(words.back()[0]) ? (uint32_t)std::stoul(words.back()) : 0;
        if (name == "lagrange_rows" && words.size() == 1) {
            c.assign(n(), Fr{{0xa5a5a5a5}});
            per_element([&] { lagrange_rows(a.data(), b.data(), c.data(), num_rows, n()); });
        } else if (name == "indices" && words.size() == 2) {
            Fr *values = vector(words[1]).data();
            per_element([&] { lagrange_indices(values, domain_log2, word(s, 0), word(s, 1), word(s, 2), word(s, 3)); });
        } else if (name == "times" && words.size() == 1) {
            per_element([&] { lagrange_times(c.data(), b.data(), domain_log2); });
        } else if (name == "plus" && words.size() == 1) {
            per_element([&] { lagrange_plus(b.data(), c.data(), a.data(), domain_log2); });
        } else if (name == "first" && words.size() == 3) {
            if (words[1] == "c")
                c.assign(n(), Fr{{0xa5a5a5a5}});
            Fr *out = vector(words[1]).data(), *rows = words[1] == "c" ? a.data() : out;
            per_tile([&] {
                quotient_rows_pass(rows, nullptr, out, num_rows, low.data(), high.data(), low_log2, domain_log2, number,
                                   tile_log2);
            });
        } else if (name == "turn_indices" && words.size() == 3) {
            Fr *values = vector(words[1]).data();
            auto kernel = is_far(domain_log2 - 1) ? lagrange_turn_far : lagrange_turn;
            per_tile([&] {
                kernel(values, low.data(), high.data(), low_log2, domain_log2, number, tile_log2, word(s, 0), word(s, 1),
                       word(s, 2), word(s, 3));
            });
        } else if (name == "last_times" && words.size() == 2) {
            per_tile([&] {
                lagrange_last_pass_times(c.data(), b.data(), num_rows, low.data(), high.data(), low_log2, domain_log2,
                                         number, tile_log2);
            });
        } else if (name == "last_plus" && words.size() == 2) {
            per_tile([&] {
                lagrange_last_pass_plus(b.data(), c.data(), a.data(), num_rows, low.data(), high.data(), low_log2,
                                        domain_log2, number, tile_log2);
            });
        } else {
            return false;
        }
        return true;
    }

    void step(const std::vector<std::string> &words)
    {
        const std::string &name = words[0];
        if (name == "products" && words.size() == 1) {
            c.assign(n(), Fr{{0xa5a5a5a5}});
            per_element([&] { quotient_products(a.data(), b.data(), c.data(), num_rows, n()); });
        } else if (name == "pass" && words.size() == 5) {
            pass(vector(words[1]).data(), words[2] == "to", std::stoul(words[3]), std::stoul(words[4]));
        } else if (name == "tiny" && words.size() == 3) {
            Fr *values = vector(words[1]).data();
            launch(1, 32, 0, [&] { ntt_tiny(values, low.data(), domain_log2, words[2] == "to"); });
        } else if (name == "shift" && words.size() == 2) {
            Fr *values = vector(words[1]).data();
            per_element([&] { quotient_shift(values, low.data(), high.data(), low_log2, n()); });
        } else if (name == "multiply" && words.size() == 1) {
            per_element([&] { quotient_multiply(a.data(), b.data(), n()); });
        } else if (name == "divide" && words.size() == 1) {
            divide();
        } else if (name == "out" && words.size() == 2) {
            const std::vector<Fr> &values = vector(words[1]);
            if (fwrite(values.data(), sizeof(Fr), values.size(), stdout) != values.size())
                exit(3);
        } else if (!lagrange(name, words) && (words.size() < 2 || !fused(name, words))) {
            fprintf(stderr, "ntt_harness: no step %s of %zu words\n", name.c_str(), words.size());
            exit(2);
        }
    }
};

std::vector<std::string> split(const char *text)
{
    std::vector<std::string> words(1);
    for (; *text; text++) {
        if (*text == ':')
            words.emplace_back();
        else
            words.back() += *text;
    }
    return words;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 7) {
        fprintf(stderr, "usage: ntt_harness ORDER DOMAIN_LOG2 LOW_LOG2 TILE_LOG2 NUM_ROWS STEP...\n");
        return 2;
    }
    auto number = [&](int i) { return (uint32_t)std::stoul(argv[i]); };
    Harness harness{strcmp(argv[1], "falling") == 0, number(2), number(3), number(4), number(5), {}, {}, {}, {}, {}};
    for (std::vector<Fr> *values : {&harness.a, &harness.b}) {
        values->resize(harness.n());
        if (fread(values->data(), sizeof(Fr), values->size(), stdin) != values->size()) {
            fprintf(stderr, "ntt_harness: the input is too short\n");
            return 2;
        }
    }
    harness.make_tables();
    for (int i = 6; i < argc; i++)
        harness.step(split(argv[i]));
    return fflush(stdout) == 0 ? 0 : 3;
}
