//! Futures of distag, which are futures of Rust as well.
use crate::causes::Expected;
use crate::error::{Error, Result};
use crate::ffi::{self, functions, Handle, Handles};
use crate::{FromValue, IntoValue, Value};
use distag_sys::distag_future;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The answer of an operation that goes on. Wait for it, or await it in any executor.
///
/// One that was polled and is dropped before it is complete cancels its operation; [`Future::detach`] does not.
///
/// ```
/// # let worker = distag::Worker::builder().name("w").world_size(1).rendezvous("inproc://doc").build()?;
/// # worker.start(std::time::Duration::from_secs(5))?;
/// use std::time::Duration;
/// worker.register("double", |x: i64| Ok::<_, distag::Error>(2 * x))?;
/// let future = worker.call_async::<i64>("w", "double", (21,))?;
/// let next = future.then(|answer| Ok(answer? + 1))?;
/// assert_eq!((future.wait_timeout(Duration::from_secs(5))?, next.wait()?), (42, 43)); // or .await
/// # Ok::<(), distag::Error>(())
/// ```
#[must_use]
pub struct Future<T> {
    handle: Handle<distag_future>,
    waker: Option<Arc<Mutex<Option<Waker>>>>,
    expected: Option<Arc<Expected>>,
    result: PhantomData<fn() -> T>,
}

impl<T: FromValue> Future<T> {
    pub(crate) fn of_handle(handle: Handle<distag_future>) -> Self {
        Self { handle, waker: None, expected: None, result: PhantomData }
    }

    /// Of a call, whose failure may be one of this process.
    pub(crate) fn of_call(handle: Handle<distag_future>, expected: Expected) -> Self {
        Self::of_handle(handle).expecting(Some(Arc::new(expected)))
    }

    pub(crate) fn expecting(mut self, expected: Option<Arc<Expected>>) -> Self {
        self.expected = expected;
        self
    }

    pub(crate) fn handle(&self) -> &Handle<distag_future> {
        &self.handle
    }

    fn found(&self, failure: Error) -> Error {
        match &self.expected {
            Some(expected) => expected.find(failure),
            None => failure,
        }
    }

    /// Whether it is complete, with a value or a failure.
    #[must_use]
    pub fn is_done(&self) -> bool {
        functions::future_poll(&self.handle) == 1
    }

    /// Waits, and answers as the operation did.
    ///
    /// # Errors
    /// As the operation.
    pub fn wait(self) -> Result<T> {
        functions::future_wait(&self.handle, ffi::FOREVER).map_err(|failure| self.found(failure))?;
        self.get()
    }

    /// Waits no longer than that.
    ///
    /// # Errors
    /// `Deadline` when it is not complete by then, and may be waited for again; else as the operation.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<T> {
        functions::future_wait(&self.handle, ffi::nanoseconds(timeout)).map_err(|failure| self.found(failure))?;
        self.get()
    }

    /// The answer of a complete one.
    ///
    /// # Errors
    /// As the operation; `InvalidState` when it is not complete.
    pub fn get(&self) -> Result<T> {
        let value = functions::future_get_value(&self.handle).map_err(|failure| self.found(failure))?;
        T::from_value(&Value::of_handle(value))
    }

    /// Asks the operation to stop, at the callee too; waits for this future end with `Cancelled`.
    pub fn cancel(&self) {
        functions::future_cancel(&self.handle);
    }

    /// Another future of the same operation, to cancel it or to wait for it elsewhere.
    pub fn another(&self) -> Self {
        Self::of_handle(self.handle.clone()).expecting(self.expected.clone())
    }

    /// Lets the operation go on, although no caller waits.
    pub fn detach(mut self) {
        self.waker = None;
    }

    /// A future that completes with what `next` makes of this one's answer, on a thread of the worker.
    ///
    /// # Errors
    /// The worker has left.
    pub fn then<R, F>(&self, next: F) -> Result<Future<R>>
    where
        T: 'static,
        R: FromValue + IntoValue,
        F: FnOnce(Result<T>) -> Result<R> + Send + 'static,
    {
        let expected = self.expected.clone();
        let run = move |done| {
            let done = Self::of_handle(done).expecting(expected);
            Ok(next(done.get())?.into_value()?.into_handle())
        };
        ffi::future_then(&self.handle, Box::new(run)).map(Future::of_handle)
    }
}

impl<T: FromValue> std::future::Future for Future<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if self.is_done() {
            return Poll::Ready(self.get());
        }
        let waker = Some(context.waker().clone());
        if let Some(known) = &self.waker {
            *lock(known) = waker;
        } else {
            let shared = Arc::new(Mutex::new(waker));
            self.waker = Some(Arc::clone(&shared));
            let notice = move || {
                let waker = lock(&shared).take();
                if let Some(waker) = waker {
                    waker.wake();
                }
            };
            if let Err(failure) = ffi::future_on_done(&self.handle, Box::new(notice)) {
                return Poll::Ready(Err(failure));
            }
        }
        // It may have completed before the waker was there.
        if self.is_done() {
            return Poll::Ready(self.get());
        }
        Poll::Pending
    }
}

impl<T> fmt::Debug for Future<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_done = functions::future_poll(&self.handle) == 1;
        write!(f, "Future, {}", if is_done { "complete" } else { "under way" })
    }
}

fn lock(waker: &Mutex<Option<Waker>>) -> std::sync::MutexGuard<'_, Option<Waker>> {
    waker.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl<T> Drop for Future<T> {
    fn drop(&mut self) {
        if self.waker.is_some() {
            functions::future_cancel(&self.handle); // does nothing to a complete one
        }
    }
}

/// Waits until all have an answer, or the first one fails; the others go on.
///
/// ```
/// # let worker = distag::Worker::builder().name("w").world_size(1).rendezvous("inproc://doc").build()?;
/// # worker.start(std::time::Duration::from_secs(5))?;
/// worker.register("double", |x: i64| Ok::<_, distag::Error>(2 * x))?;
/// let calls = (0..3).map(|x| worker.call_async::<i64>("w", "double", (x,)));
/// assert_eq!(distag::wait_all(calls.collect::<distag::Result<Vec<_>>>()?)?, [0, 2, 4]);
/// # Ok::<(), distag::Error>(())
/// ```
///
/// # Errors
/// As the first one that failed.
pub fn wait_all<T: FromValue>(futures: impl IntoIterator<Item = Future<T>>) -> Result<Vec<T>> {
    let futures = futures.into_iter().collect::<Vec<_>>();
    let done = functions::wait_all(&Handles::new(futures.iter().map(|each| &each.handle)), ffi::FOREVER);
    done.map_err(|failure| futures.iter().fold(failure, |failure, each| each.found(failure)))?;
    futures.iter().map(Future::get).collect()
}
