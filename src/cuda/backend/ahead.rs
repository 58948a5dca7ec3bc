//! How much a stream holds ahead of the device.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::backend::BackendWaker;
use crate::cuda::{CudaError, Event, Stream};

/// Launches, fills and copies that may be in a stream ahead of the device. The driver queues about a thousand of a stream; the
/// next one waits for the device inside its call, and with it the actor: whoever is CRITICAL waits too. A chunk of points is
/// added by about twenty, for each of up to sixteen members of a pass, and a query may have many chunks. Half a thousand are
/// several additions, of milliseconds each: the device never waits for the actor. It is also the most that one poll launches,
/// in about two milliseconds, where the device is as fast as that.
const MAX_LAUNCHES_AHEAD: u64 = 512;

/// What is in a stream and the device has not passed, as far as it was [marked](Self::mark).
#[derive(Default)]
pub struct Ahead {
    /// Ends, and launches before each since the one before.
    marks: VecDeque<(Rc<Event>, u64)>,
    num_launches: u64,
}

impl Ahead {
    /// Marks the end of so many launches; the actor is woken when the device has passed it.
    ///
    /// # Errors
    /// As [`Stream::mark`].
    pub fn mark(
        &mut self,
        stream: &Stream,
        waker: &BackendWaker,
        num_launches: u64,
    ) -> Result<Rc<Event>, CudaError> {
        let end = Rc::new(stream.mark(waker)?);
        self.marks.push_back((Rc::clone(&end), num_launches));
        self.num_launches += num_launches;
        Ok(end)
    }

    /// Strikes off what the device has passed. Once in a poll: what it passes meanwhile is for the next one, for which its
    /// marks wake the actor.
    ///
    /// # Errors
    /// The first failure of what was launched.
    pub fn strike_off_passed(&mut self) -> Result<(), CudaError> {
        while let Some((end, num_passed)) = self.marks.front() {
            if !end.is_done()? {
                break;
            }
            self.num_launches -= *num_passed;
            self.marks.pop_front();
        }
        Ok(())
    }

    /// Whether so many launches may be put into the stream now. If not, the actor is woken when it may ask again.
    pub fn has_room(&self, num_launches: u64) -> bool {
        // What is more than that all by itself is launched in a stream that is empty.
        self.marks.is_empty() || self.num_launches + num_launches <= MAX_LAUNCHES_AHEAD
    }
}
