//! Remote references.
use crate::causes::Expected;
use crate::error::Result;
use crate::ffi::{self, functions, Handle};
use crate::{Context, FromValue, Future, Value};
use distag_sys::{distag_rref, distag_value};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// A reference to a value that lives on its owner, until the last reference on any worker is gone.
///
/// ```
/// # let worker = distag::Worker::builder().name("w").world_size(1).rendezvous("inproc://doc").build()?;
/// # worker.start(std::time::Duration::from_secs(5))?;
/// worker.register("make", |x: i64| Ok::<_, distag::Error>(x + 1))?;
/// let made = worker.remote("w", "make", (1,))?; // the value stays at "w"
/// assert_eq!((made.fetch::<i64>()?, made.owner()), (2, "w"));
/// # Ok::<(), distag::Error>(())
/// ```
#[derive(Clone)]
pub struct RRef {
    handle: Handle<distag_rref>,
    expected: Option<Arc<Expected>>, // of the call that makes the value
}

impl RRef {
    pub(crate) fn of_handle(handle: Handle<distag_rref>) -> Self {
        Self { handle, expected: None }
    }
    pub(crate) fn of_call(handle: Handle<distag_rref>, expected: Expected) -> Self {
        Self { handle, expected: Some(Arc::new(expected)) }
    }
    pub(crate) fn handle(&self) -> &Handle<distag_rref> {
        &self.handle
    }

    fn fetched(&self, value: Result<Handle<distag_value>>) -> Result<Value> {
        value.map(Value::of_handle).map_err(|failure| match &self.expected {
            Some(expected) => expected.find(failure),
            None => failure,
        })
    }

    /// Waits for the value and gives it: at its owner itself, elsewhere a copy.
    ///
    /// # Errors
    /// As making the value did; `Unsupported` for an object that lives elsewhere.
    pub fn fetch<T: FromValue>(&self) -> Result<T> {
        self.fetched(functions::rref_fetch(&self.handle, None, None))?.to()
    }

    /// The same, recorded in a context.
    ///
    /// # Errors
    /// As [`RRef::fetch`].
    pub fn fetch_in<T: FromValue>(&self, context: &Context) -> Result<T> {
        self.fetched(functions::rref_fetch(&self.handle, Some(context.handle()), None))?.to()
    }

    /// The same without waiting, with a deadline if there is one.
    ///
    /// # Errors
    /// The worker has left.
    pub fn fetch_async<T: FromValue>(&self, timeout: Option<Duration>) -> Result<Future<T>> {
        let options = ffi::call_options(ffi::limit(timeout), None, None);
        let future = functions::rref_fetch_async(&self.handle, None, Some(&options)).map(Future::of_handle)?;
        Ok(future.expecting(self.expected.clone()))
    }

    /// The value itself, at its owner.
    ///
    /// # Errors
    /// It is elsewhere, or not there yet.
    pub fn local<T: FromValue>(&self) -> Result<T> {
        Value::of_handle(functions::rref_get_local(&self.handle)?).to()
    }
}

impl PartialEq for RRef {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}
impl Eq for RRef {}
impl Hash for RRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}
impl fmt::Debug for RRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RRef {} at {}", self.id(), self.owner())
    }
}
