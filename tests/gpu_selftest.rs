//! The kernels' arithmetic on every GPU of this machine against blstrs and big integers, and the driver layer.
//! Needs a GPU and kernels: a missing one fails, it does not skip.

#[path = "common/kernel_cases.rs"]
mod kernel_cases;

use std::sync::mpsc;

use cuzk::cuda::selftest::{SelfTest, OPERATIONS};
use cuzk::cuda::{
    devices, Context, CudaError, DeviceBuffer, DeviceInfo, PinnedBuffer, PinnedPool, Priority, Reservation,
    Stream,
};

const GIB: u64 = 1 << 30;

fn all_devices() -> Vec<DeviceInfo> {
    let devices = devices().expect("this test needs a CUDA driver");
    assert!(!devices.is_empty(), "this test needs a GPU");
    devices
}

fn first_context() -> Context {
    Context::new(&all_devices()[0]).unwrap()
}

#[test]
fn devices_are_described() {
    for device in all_devices() {
        println!("{device:?}");
        assert!(device.id.as_str().starts_with("GPU-") && device.id.as_str().len() == 40);
        assert!(device.compute_capability.major >= 8, "older than every architecture that is built in");
        assert!(device.memory_bytes > GIB && device.num_multiprocessors > 0);
        let (free, total) = Context::new(&device).unwrap().memory_info().unwrap();
        assert!(free > 0 && free <= total && total <= device.memory_bytes);
    }
}

#[test]
fn device_arithmetic_equals_the_cpus() {
    let suites = kernel_cases::suites(200_000, 0x6b75);
    let names: Vec<_> = suites.iter().map(|suite| suite.operation).collect();
    assert_eq!(names, OPERATIONS.map(|operation| operation.name), "every operation has cases");
    for device in all_devices() {
        let context = Context::new(&device).unwrap();
        let reservation = Reservation::new(&context, GIB);
        let selftest = SelfTest::new(&context, &reservation).unwrap();
        for (suite, operation) in suites.iter().zip(OPERATIONS) {
            assert_eq!(
                (suite.case_bytes, suite.result_bytes),
                (operation.case_bytes, operation.result_bytes)
            );
            let results = selftest.run(operation, &suite.cases).unwrap();
            suite.check(&results).unwrap_or_else(|wrong| panic!("{}: {wrong}", device.id));
            println!("{} {}: {} cases", device.id, suite.operation, suite.num_cases());
        }
        assert_eq!(reservation.used_bytes(), 0, "everything was freed");
        assert!(reservation.peak_bytes() > 0);
    }
}

#[test]
fn half_a_case_is_refused_before_any_launch() {
    let context = first_context();
    let selftest = SelfTest::new(&context, &Reservation::new(&context, GIB)).unwrap();
    for cases in [&[0u8; 0][..], &[0; 95], &[0; 97]] {
        let refused = selftest.run(OPERATIONS[0], cases);
        assert!(matches!(refused, Err(CudaError::Shape { needs: 96, .. })), "{refused:?}");
    }
}

#[test]
fn memory_comes_back_as_it_went() {
    let context = first_context();
    let stream = Stream::new(&context, Priority::High).unwrap();
    let reservation = Reservation::new(&context, GIB);
    let data: Vec<u64> = (0..1 << 20).map(|i: u64| i.wrapping_mul(0x9e3779b97f4a7c15)).collect();
    let mut buffer = DeviceBuffer::from_slice(&reservation, &stream, &data).unwrap();
    assert_eq!(buffer.read().unwrap(), data);

    let mut pinned = PinnedBuffer::new(&context, data.len()).unwrap();
    pinned.copy_from_slice(&data);
    buffer.fill_bytes(0).unwrap();
    buffer.write(&pinned).unwrap();
    let back = buffer.read_pinned(pinned).unwrap().wait().unwrap();
    assert_eq!(&*back, &data[..]);

    let wrong = buffer.write(&data[1..]);
    assert!(matches!(wrong, Err(CudaError::Shape { .. })), "{wrong:?}");
}

#[test]
fn a_reservation_is_never_exceeded() {
    let context = first_context();
    let stream = Stream::new(&context, Priority::Normal).unwrap();
    let reservation = Reservation::new(&context, 1000);
    let first: DeviceBuffer<u8> = DeviceBuffer::new(&reservation, &stream, 600).unwrap();
    let refused = DeviceBuffer::<u8>::new(&reservation, &stream, 401);
    let expected =
        CudaError::OverReservation { asked_bytes: 401, left_bytes: 400, device: context.device().id.clone() };
    assert_eq!(refused.unwrap_err(), expected);
    drop(first);
    DeviceBuffer::<u8>::new(&reservation, &stream, 1000).unwrap();
    assert_eq!((reservation.used_bytes(), reservation.peak_bytes()), (0, 1000));
}

#[test]
fn an_allocation_beyond_the_device_is_an_error_and_not_the_end() {
    let context = first_context();
    let stream = Stream::new(&context, Priority::Normal).unwrap();
    let reservation = Reservation::new(&context, u64::MAX);
    let refused = DeviceBuffer::<u8>::new(&reservation, &stream, 1 << 50).unwrap_err();
    assert!(refused.is_out_of_memory() && !refused.is_sticky(), "{refused}");
    assert!(refused.to_string().contains(context.device().id.as_str()), "{refused}");
    assert_eq!(reservation.used_bytes(), 0);
    let buffer = DeviceBuffer::from_slice(&reservation, &stream, &[1u32, 2, 3]).unwrap();
    assert_eq!(buffer.read().unwrap(), [1, 2, 3]);
}

#[test]
fn completion_is_announced_and_can_be_polled() {
    let context = first_context();
    let stream = Stream::new(&context, Priority::Normal).unwrap();
    let reservation = Reservation::new(&context, GIB);
    let start = stream.record().unwrap();
    let buffer: DeviceBuffer<u8> = DeviceBuffer::new(&reservation, &stream, 256 << 20).unwrap();
    buffer.fill_bytes(7).unwrap();
    let end = stream.record().unwrap();
    let (sender, receiver) = mpsc::channel();
    stream.notify(move || sender.send(std::thread::current().id()).unwrap()).unwrap();
    assert_ne!(receiver.recv().unwrap(), std::thread::current().id());
    assert!(end.is_done().unwrap());
    assert!(end.elapsed_ms(&start).unwrap() > 0.0);

    let other = Stream::new(&context, Priority::High).unwrap();
    other.wait_for(&end).unwrap();
    other.synchronize().unwrap();
    assert!(other.is_done().unwrap() && stream.is_done().unwrap());
}

#[test]
fn two_contexts_on_one_thread_do_not_meet() {
    let contexts = [first_context(), first_context()];
    let buffers = [0, 1].map(|index: usize| {
        let stream = Stream::new(&contexts[index], Priority::Normal).unwrap();
        let reservation = Reservation::new(&contexts[index], GIB);
        DeviceBuffer::from_slice(&reservation, &stream, &[index as u64; 1000]).unwrap()
    });
    for (index, buffer) in buffers.iter().enumerate().rev() {
        assert_eq!(buffer.read().unwrap(), [index as u64; 1000]);
    }
    let [first, second] = contexts;
    drop(first);
    assert!(second.memory_info().unwrap().0 > 0);
}

#[test]
fn the_pinned_pool_reuses_what_fits() {
    let context = first_context();
    let mut pool = PinnedPool::new(&context, 1 << 20);
    let large = pool.take(1 << 19).unwrap();
    let address = large.as_ptr();
    pool.give_back(large);
    let small = pool.take(1000).unwrap();
    assert_eq!((small.as_ptr(), small.len()), (address, 1000));
    pool.give_back(small);
    assert_eq!(pool.idle_bytes(), 1 << 19);
    let beyond = pool.take(2 << 20).unwrap();
    pool.give_back(beyond);
    assert_eq!(pool.idle_bytes(), 1 << 19, "the limit holds");
}
