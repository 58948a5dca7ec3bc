//! cust 0.3.2: why its handles are not ours.

use cust::context::Context;
use cust::device::Device;
use cust::error::CudaResult;
use cust::event::Event;
use cust::memory::DeviceBuffer;
use cust::module::Module;
use cust::stream::Stream;

/// They may leave the thread whose context they belong to; ours (`src/cuda`) may not, by their types.
#[test]
fn its_handles_are_send() {
    const fn is_send<T: Send>() {}
    const {
        is_send::<Context>();
        is_send::<DeviceBuffer<u8>>();
        is_send::<Event>();
        is_send::<Module>();
        is_send::<Stream>();
    }
}

/// A context is had of the device alone, without flags, and can be cloned: it is the device's one primary context, shared
/// with everybody in the process, and not one of our own (`cuCtxCreate`).
#[test]
fn its_contexts_are_primary() {
    let _make: fn(Device) -> CudaResult<Context> = Context::new;
    let _clone: fn(&Context) -> Context = Clone::clone;
}
