//! The workers that this program made and that are up: they leave at the end of the process.
use super::{functions, Handle};
use crate::error::Code;
use distag_sys::distag_worker;
use std::os::raw::c_int;
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

static LIVE: Mutex<Vec<Handle<distag_worker>>> = Mutex::new(Vec::new());
static AT_EXIT: Once = Once::new();

/// Leaves a group; waits for functions that run only, 5 s at most.
fn leave(worker: &Handle<distag_worker>) {
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        match functions::worker_shutdown(worker, 0) {
            Err(failure) if failure.code() == Code::Deadline => {}
            _ => return,
        }
    }
}

fn take(find: impl Fn(&Handle<distag_worker>) -> bool) -> Option<Handle<distag_worker>> {
    let mut live = LIVE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let index = live.iter().position(find)?;
    Some(live.swap_remove(index))
}

extern "C" fn leave_all() {
    while let Some(worker) = take(|_| true) {
        leave(&worker);
    }
}

/// Has a worker leave when it is dropped, or when the process ends before.
pub struct Owner(Handle<distag_worker>);

impl Owner {
    pub fn new(worker: &Handle<distag_worker>) -> Self {
        AT_EXIT.call_once(|| {
            unsafe { atexit(leave_all) };
        });
        LIVE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(worker.clone());
        Self(worker.clone())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(worker) = take(|each| each.get() == self.0.get()) {
            leave(&worker);
        }
    }
}
