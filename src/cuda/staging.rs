//! Host memory to device memory through a ring of pinned buffers, without the actor's thread touching a byte.
//!
//! A [`Transfer`] is cut into pieces of a slot's size. A *filler* thread copies a piece into a free slot, then the
//! actor's thread enqueues the copy from the slot into the device, and when that is done the slot is free again.
//!
//! ```text
//! pieces waiting --Fill--> filler thread: source -> slot --Filled--> copy stream: slot -> device --event--> slot free
//! (critical first)                                          waker                                  waker
//! ```
//!
//! Where no pinned memory can be had, slots are ordinary memory: correct, and slower (8 instead of 55 GB/s on a
//! host with PCIe 5), because the driver then stages each copy itself and the call waits for it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::slice;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{unbounded, Receiver, Sender};
use rayon::prelude::*;

use super::memory::CopyTarget;
use super::{sys, Context, CudaError, DeviceData, Event, PinnedBuffer, Stream};
use crate::backend::BackendWaker;

/// Bytes of one slot: at 55 GB/s a copy takes 0.3 ms, against some 20 µs of bookkeeping.
const SLOT_BYTES: usize = 16 << 20;
/// Enough for one piece being filled, one being copied and one in between, for each of two lanes.
const NUM_SLOTS: usize = 6;
/// Slots that only urgent pieces may take.
const NUM_URGENT_SLOTS: usize = 2;
/// One core copies about 10 GB/s; four keep up with PCIe 5.
const NUM_FILLER_THREADS: usize = 4;
/// Bytes that one filler thread copies at a time. Slots are a multiple of it, and it one of a scalar's size.
const FILL_PART_BYTES: usize = 1 << 20;

/// What is to be copied to a device. Its bytes are asked for by parts, on filler threads: where they lie in host memory in
/// another form, or not at all, they are made there.
pub trait HostBytes: Send + Sync {
    /// Writes the bytes from `offset` on. A transfer begins and ends at an element, and is cut at multiples of 1 MiB from
    /// its beginning: elements whose size is no power of two may be in two parts.
    fn fill(&self, offset: usize, to: &mut [u8]);
}

/// The memory of plain elements.
pub fn bytes_of<T: DeviceData>(elements: &[T]) -> &[u8] {
    // SAFETY: a `DeviceData` has no padding, so all its bytes are initialised; the lifetime is the slice's.
    unsafe { slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// How many bytes of a group of transfers are still on their way. Clones share the count.
#[derive(Clone, Default)]
pub struct Ticket {
    bytes_left: Rc<Cell<usize>>,
}

impl Ticket {
    pub fn is_done(&self) -> bool {
        self.bytes_left.get() == 0
    }

    fn is(&self, other: &Ticket) -> bool {
        Rc::ptr_eq(&self.bytes_left, &other.bytes_left)
    }
}

/// A copy of `bytes` of a source, from `source_offset` on, into a target from `target_offset` on.
pub struct Transfer {
    pub source: Arc<dyn HostBytes>,
    pub source_offset: usize,
    pub target: Rc<dyn CopyTarget>,
    pub target_offset: usize,
    pub bytes: usize,
    /// Nothing of it begins before the device has passed this: until then the target is not there, or still read. Of
    /// [`Stager::mark`].
    pub after: Rc<Event>,
}

/// Part of a transfer, at most a slot's size.
struct Piece {
    source: Arc<dyn HostBytes>,
    source_offset: usize,
    target: Rc<dyn CopyTarget>,
    target_offset: usize,
    bytes: usize,
    after: Rc<Event>,
    stream: Stream,
    ticket: Ticket,
    is_urgent: bool,
    cancelled: bool,
}

enum SlotState {
    Free,
    Filling(Piece),
    Copying(Piece, Event),
}

impl SlotState {
    fn is_busy_with_others(&self) -> bool {
        match self {
            Self::Free => false,
            Self::Filling(piece) | Self::Copying(piece, _) => !piece.is_urgent,
        }
    }
}

/// Takes the first piece out of a queue whose target is ready.
fn take_begun(queue: &mut VecDeque<Piece>) -> Result<Option<Piece>, CudaError> {
    let mut blocked: Option<&Rc<Event>> = None;
    let mut ready = None;
    for (index, piece) in queue.iter().enumerate() {
        // The pieces of one transfer share their event: it is asked once.
        if blocked.is_some_and(|event| Rc::ptr_eq(event, &piece.after)) {
            continue;
        }
        if piece.after.is_done()? {
            ready = Some(index);
            break;
        }
        blocked = Some(&piece.after);
    }
    Ok(ready.and_then(|index| queue.remove(index)))
}

struct Slot {
    memory: SlotMemory,
    state: SlotState,
}

enum SlotMemory {
    Pinned(PinnedBuffer<u8>),
    Pageable(Vec<u8>),
}

impl SlotMemory {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        match self {
            Self::Pinned(buffer) => buffer.as_mut_ptr(),
            Self::Pageable(buffer) => buffer.as_mut_ptr(),
        }
    }
}

/// A slot's memory on loan to the filler thread.
struct Loan {
    pointer: *mut u8,
    bytes: usize,
}

// SAFETY: while a slot is `Filling` only the filler thread touches its memory, and `Stager` joins that thread before
// it frees a slot.
unsafe impl Send for Loan {}

struct Fill {
    slot: usize,
    loan: Loan,
    source: Arc<dyn HostBytes>,
    source_offset: usize,
}

/// Copies host memory to one device. Owned by the device's thread.
pub struct Stager {
    slots: Vec<Slot>,
    /// Pieces that wait for a slot; those of urgent transfers first.
    urgent: VecDeque<Piece>,
    waiting: VecDeque<Piece>,
    /// `None` only while it is dropped.
    fills: Option<Sender<Fill>>,
    filled: Receiver<usize>,
    filler: Option<JoinHandle<()>>,
    waker: BackendWaker,
}

impl Stager {
    /// Allocates the slots (96 MiB, 50 ms) and starts the filler thread. Without pinned memory it warns once and goes
    /// on with ordinary memory.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn new(context: &Context, waker: BackendWaker) -> std::io::Result<Self> {
        let slots = allocate_slots(context)
            .into_iter()
            .map(|memory| Slot { memory, state: SlotState::Free })
            .collect();
        let (fills, received) = unbounded();
        let (report, filled) = unbounded();
        let wake = Arc::clone(&waker);
        let filler = std::thread::Builder::new()
            .name("cuzk-filler".to_owned())
            .spawn(move || fill_slots(&received, &report, &wake))?;
        Ok(Self {
            slots,
            urgent: VecDeque::new(),
            waiting: VecDeque::new(),
            fills: Some(fills),
            filled,
            filler: Some(filler),
            waker,
        })
    }

    /// Marks the point of a stream after which a transfer may begin. Who [pumps](Self::pump) is woken when the device has
    /// passed it: nothing else may be under way that would wake it.
    ///
    /// # Errors
    /// As [`Stream::record`].
    pub fn mark(&self, stream: &Stream) -> Result<Rc<Event>, CudaError> {
        stream.mark(&self.waker).map(Rc::new)
    }

    /// Adds a transfer to `ticket`; its copies go into `stream`. Targets stay alive until they are done or cancelled.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if it goes beyond its target.
    pub fn submit(
        &mut self,
        transfer: Transfer,
        stream: &Stream,
        ticket: &Ticket,
        is_urgent: bool,
    ) -> Result<(), CudaError> {
        let Transfer { source, source_offset, target, target_offset, bytes, after } = transfer;
        let room = target.size_bytes().saturating_sub(target_offset);
        if bytes > room {
            return Err(CudaError::Shape {
                what: "bytes to copy to a device buffer",
                needs: bytes,
                has: room,
            });
        }
        ticket.bytes_left.set(ticket.bytes_left.get() + bytes);
        let queue = if is_urgent { &mut self.urgent } else { &mut self.waiting };
        for start in (0..bytes).step_by(SLOT_BYTES) {
            queue.push_back(Piece {
                source: Arc::clone(&source),
                source_offset: source_offset + start,
                target: Rc::clone(&target),
                target_offset: target_offset + start,
                bytes: SLOT_BYTES.min(bytes - start),
                after: Rc::clone(&after),
                stream: stream.clone(),
                ticket: ticket.clone(),
                is_urgent,
                cancelled: false,
            });
        }
        Ok(())
    }

    /// Drops what of a ticket has not begun; the ticket is done when what has begun is done.
    pub fn cancel(&mut self, ticket: &Ticket) {
        for queue in [&mut self.urgent, &mut self.waiting] {
            queue.retain(|piece| {
                let keeps = !piece.ticket.is(ticket);
                if !keeps {
                    piece.finish();
                }
                keeps
            });
        }
        for slot in &mut self.slots {
            if let SlotState::Filling(piece) = &mut slot.state {
                piece.cancelled |= piece.ticket.is(ticket);
            }
        }
    }

    /// Moves everything on that can move. Never waits for the device.
    ///
    /// # Errors
    /// The first failure of a copy; the context is then in doubt.
    pub fn pump(&mut self) -> Result<(), CudaError> {
        while let Ok(slot) = self.filled.try_recv() {
            self.start_copy(slot)?;
        }
        for slot in &mut self.slots {
            if let SlotState::Copying(piece, done) = &slot.state {
                if done.is_done()? {
                    piece.finish();
                    slot.state = SlotState::Free;
                }
            }
        }
        for index in 0..self.slots.len() {
            if matches!(self.slots[index].state, SlotState::Free) {
                let Some(piece) = self.next_piece()? else { break };
                self.start_fill(index, piece);
            }
        }
        Ok(())
    }

    /// The first piece that may begin. Urgent ones find a slot even while others are busy.
    fn next_piece(&mut self) -> Result<Option<Piece>, CudaError> {
        if let Some(piece) = take_begun(&mut self.urgent)? {
            return Ok(Some(piece));
        }
        let num_busy = self.slots.iter().filter(|slot| slot.state.is_busy_with_others()).count();
        if num_busy + NUM_URGENT_SLOTS >= NUM_SLOTS {
            return Ok(None);
        }
        take_begun(&mut self.waiting)
    }

    fn start_fill(&mut self, slot: usize, piece: Piece) {
        let fill = Fill {
            slot,
            loan: Loan { pointer: self.slots[slot].memory.as_mut_ptr(), bytes: piece.bytes },
            source: Arc::clone(&piece.source),
            source_offset: piece.source_offset,
        };
        self.slots[slot].state = SlotState::Filling(piece);
        let fills = self.fills.as_ref().expect("taken only in drop");
        fills.send(fill).expect("the filler thread lives as long as this sender");
    }

    fn start_copy(&mut self, slot: usize) -> Result<(), CudaError> {
        let Slot { memory, state } = &mut self.slots[slot];
        let SlotState::Filling(piece) = std::mem::replace(state, SlotState::Free) else {
            unreachable!("the filler fills what it was given")
        };
        if piece.cancelled {
            piece.finish();
            return Ok(());
        }
        let stream = &piece.stream;
        stream.context().bind()?;
        let target = piece.target.address().at(piece.target_offset);
        // SAFETY: the slot has at least `bytes` bytes and stays as it is while `Copying`; the target has room for
        // them (`submit`) and is kept by the piece; `Stager::drop` waits for the copy.
        let code = unsafe {
            sys::cuMemcpyHtoDAsync_v2(target, memory.as_mut_ptr().cast(), piece.bytes, stream.raw())
        };
        stream.context().check("cuMemcpyHtoDAsync", code)?;
        let done = stream.mark(&self.waker)?;
        *state = SlotState::Copying(piece, done);
        Ok(())
    }
}

impl Piece {
    /// It is copied, or will never be.
    fn finish(&self) {
        self.ticket.bytes_left.set(self.ticket.bytes_left.get() - self.bytes);
    }
}

impl Drop for Stager {
    fn drop(&mut self) {
        self.fills = None;
        if let Some(filler) = self.filler.take() {
            // At most one slot per channel entry is left to fill: milliseconds.
            if filler.join().is_err() {
                tracing::error!("the thread that fills staging buffers panicked");
            }
        }
        for slot in &mut self.slots {
            if let SlotState::Copying(_, done) = &slot.state {
                // A failure means that the context is lost and nothing is copied any more.
                let _ = done.wait();
            }
        }
    }
}

fn allocate_slots(context: &Context) -> Vec<SlotMemory> {
    let pinned: Result<Vec<_>, CudaError> =
        (0..NUM_SLOTS).map(|_| PinnedBuffer::new(context, SLOT_BYTES).map(SlotMemory::Pinned)).collect();
    match pinned {
        Ok(slots) => slots,
        Err(error) => {
            let device = &context.device().id;
            tracing::warn!(%device, %error, "no pinned memory: copies to the device will be slower");
            (0..NUM_SLOTS).map(|_| SlotMemory::Pageable(vec![0; SLOT_BYTES])).collect()
        }
    }
}

/// The filler thread: ends when the stager drops its end of the channel.
fn fill_slots(fills: &Receiver<Fill>, filled: &Sender<usize>, wake: &BackendWaker) {
    // Of its own, so that a synthesis on the process-wide pool does not hold up the device.
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(NUM_FILLER_THREADS)
        .thread_name(|index| format!("cuzk-filler-{index}"))
        .build()
        .map_err(|error| tracing::warn!(%error, "staging buffers are filled by one thread"))
        .ok();
    for Fill { slot, loan, source, source_offset } in fills {
        // SAFETY: the loan is this thread's alone until it is reported filled, and has this many bytes.
        let to = unsafe { slice::from_raw_parts_mut(loan.pointer, loan.bytes) };
        match &pool {
            Some(pool) if to.len() > FILL_PART_BYTES => pool.install(|| {
                let parts = to.par_chunks_mut(FILL_PART_BYTES).enumerate();
                parts.for_each(|(part, to)| source.fill(source_offset + part * FILL_PART_BYTES, to));
            }),
            _ => source.fill(source_offset, to),
        }
        if filled.send(slot).is_err() {
            return;
        }
        wake();
    }
}
