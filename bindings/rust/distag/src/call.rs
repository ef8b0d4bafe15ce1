//! A call that comes in: its arguments, its caller, its answer.
use crate::error::{Code, Error, Result};
use crate::ffi::{self, functions, Handle, Lent};
use crate::{Context, FromValue, IntoArgs, IntoValue, Request, Value, Worker};
use distag_sys::{distag_invocation, distag_reply};
use std::cell::Cell;
use std::fmt;
use std::time::Duration;

/// One incoming call. It stays on its thread and ends with the function; [`Call::defer`] keeps the answer open.
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<distag::Call>();
/// ```
pub struct Call {
    invocation: Lent<'static, distag_invocation>, // no longer than `serve`, which gives a reference to this
    is_deferred: Cell<bool>,
}

impl Call {
    /// For as long as the function of C runs.
    pub(crate) fn of(invocation: Lent<'_, distag_invocation>) -> Self {
        Self { invocation: ffi::shorten(invocation), is_deferred: Cell::new(false) }
    }

    pub(crate) fn handle(&self) -> &Lent<'static, distag_invocation> {
        &self.invocation
    }

    /// The worker that was called.
    ///
    /// # Panics
    /// Without memory.
    #[must_use]
    pub fn worker(&self) -> Worker {
        Worker::of_handle(functions::invocation_get_worker(&self.invocation).expect("a call has a worker"))
    }

    /// The context of the call; None where nothing is recorded.
    #[must_use]
    pub fn context(&self) -> Option<Context> {
        let handle = functions::invocation_get_context(&self.invocation)?;
        Some(Context::of_handle(handle, Some(self.worker())))
    }

    /// The time until the deadline; None without one.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let left = functions::invocation_get_time_left(&self.invocation);
        u64::try_from(left).ok().map(Duration::from_nanos)
    }

    /// An argument.
    ///
    /// # Errors
    /// There is none with that index.
    pub fn arg(&self, index: usize) -> Result<Value> {
        functions::invocation_get_arg(&self.invocation, index).map(Value::of_handle).ok_or_else(|| {
            let message = format!("{}: args[{index}] is missing: {} came", self.function(), self.arg_count());
            Error::new(Code::InvalidArgument, message)
        })
    }

    /// A call to another worker on the way, whose deadline, cancellation and context are those of this one.
    ///
    /// # Errors
    /// A name with a NUL character.
    pub fn request<'a>(&'a self, to: &str, function: &str) -> Result<Request<'a>> {
        Request::new(self.worker(), to, function, self.context(), Some(&self.invocation))
    }

    /// Calls another worker on the way, and waits.
    ///
    /// # Errors
    /// As [`Worker::call`].
    pub fn call<T: FromValue>(&self, to: &str, function: &str, args: impl IntoArgs) -> Result<T> {
        self.request(to, function)?.call(args)
    }

    /// Keeps the call open after the function has returned, whose own answer then counts for nothing.
    ///
    /// # Errors
    /// It is answered or deferred already.
    pub fn defer(&self) -> Result<Reply> {
        let handle = functions::invocation_defer(&self.invocation)?;
        self.is_deferred.set(true);
        let worker = self.worker().name().unwrap_or_default().to_owned();
        Ok(Reply { handle, worker })
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call of {:?} by {:?}", self.function(), self.caller())
    }
}

/// The answer that a function still owes; dropped without one, it fails the call.
///
/// ```
/// # let worker = distag::Worker::builder().name("w").world_size(1).rendezvous("inproc://doc").build()?;
/// # worker.start(std::time::Duration::from_secs(5))?;
/// use distag::{Call, Error};
/// worker.register("later", |call: &Call| {
///     let reply = call.defer()?;
///     std::thread::spawn(move || reply.finish(Ok(7i64)));
///     Ok::<_, Error>(()) // counts for nothing
/// })?;
/// assert_eq!(worker.call::<i64>("w", "later", ())?, 7);
/// # Ok::<(), distag::Error>(())
/// ```
pub struct Reply {
    handle: Handle<distag_reply>,
    worker: String, // whose function was called
}

impl Reply {
    pub(crate) fn of_handle(handle: Handle<distag_reply>) -> Self {
        Self { handle, worker: String::new() }
    }
    pub(crate) fn handle(&self) -> &Handle<distag_reply> {
        &self.handle
    }

    /// Answers.
    ///
    /// # Errors
    /// It is answered already, or the worker has left.
    pub fn finish<T: IntoValue>(self, answer: Result<T>) -> Result<()> {
        match answer.and_then(T::into_value) {
            Ok(value) => functions::reply_finish(&self.handle, Some(value.handle()), None),
            Err(failure) => {
                let error = ffi::error_options(&failure, &self.worker);
                functions::reply_finish(&self.handle, None, Some(&error))
            }
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply, {}", if self.is_cancelled() { "which no caller awaits" } else { "awaited" })
    }
}

/// A function that can be registered: of up to six arguments, with `&Call` before them if it wants it.
///
/// It answers a `Result`, of any error that can be boxed: `distag::Error` keeps its code, others are status 1000.
///
/// ```
/// # let worker = distag::Worker::builder().name("w").world_size(1).rendezvous("inproc://doc").build()?;
/// # worker.start(std::time::Duration::from_secs(5))?;
/// use distag::{Call, Error, Tensor};
/// fn scale(x: Tensor, by: f64) -> distag::Result<Tensor> {
///     x.mul_scalar(by)
/// }
/// worker.register("scale", scale)?;
/// worker.register("caller", |call: &Call| Ok::<_, Error>(call.caller().to_owned()))?;
/// worker.register("parse", |text: String| text.parse::<i64>())?; // "ParseIntError: ..." has status 1000
/// assert_eq!(worker.call::<String>("w", "caller", ())?, "w");
/// assert_eq!(worker.call::<i64>("w", "parse", ("4x",)).unwrap_err().code(), distag::Code::User(1000));
/// # Ok::<(), distag::Error>(())
/// ```
pub trait Handler<Arguments>: Send + Sync + 'static {
    /// Answers a call.
    ///
    /// # Errors
    /// As the function does.
    fn serve(&self, call: &Call) -> Result<Value>;
}

/// Marks functions that take `&Call` first.
///
/// ```
/// fn takes_call(_: impl distag::Handler<(distag::WithCall, i64)>) {}
/// takes_call(|call: &distag::Call, x: i64| Ok::<_, distag::Error>(x * call.arg_count() as i64));
/// ```
#[derive(Debug)]
pub struct WithCall;

pub(crate) fn answer<T: IntoValue, E>(result: std::result::Result<T, E>) -> Result<Value>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match result {
        Ok(answer) => answer.into_value().map_err(|failure| failure.at("answer")),
        Err(failure) => Err(Error::of_function(failure.into(), std::any::type_name::<E>())),
    }
}

macro_rules! handler {
    ($count:literal $(, $type:ident $index:tt)*) => {
        impl<Fun, Out, Err, $($type),*> Handler<($($type,)*)> for Fun
        where
            Fun: Fn($($type),*) -> std::result::Result<Out, Err> + Send + Sync + 'static,
            Out: IntoValue,
            Err: Into<Box<dyn std::error::Error + Send + Sync>>,
            $($type: FromValue,)*
        {
            fn serve(&self, call: &Call) -> Result<Value> {
                check_count(call, $count)?;
                answer(self($($type::from_argument(call, $index)?),*))
            }
        }
        impl<Fun, Out, Err, $($type),*> Handler<(WithCall, $($type,)*)> for Fun
        where
            Fun: Fn(&Call, $($type),*) -> std::result::Result<Out, Err> + Send + Sync + 'static,
            Out: IntoValue,
            Err: Into<Box<dyn std::error::Error + Send + Sync>>,
            $($type: FromValue,)*
        {
            fn serve(&self, call: &Call) -> Result<Value> {
                check_count(call, $count)?;
                answer(self(call, $($type::from_argument(call, $index)?),*))
            }
        }
    };
}
handler!(0);
handler!(1, A 0);
handler!(2, A 0, B 1);
handler!(3, A 0, B 1, C 2);
handler!(4, A 0, B 1, C 2, D 3);
handler!(5, A 0, B 1, C 2, D 3, E 4);
handler!(6, A 0, B 1, C 2, D 3, E 4, F 5);

pub(crate) fn check_count(call: &Call, wanted: usize) -> Result<()> {
    if call.arg_count() == wanted {
        return Ok(());
    }
    let message = format!("{} takes {wanted} arguments, and {} came", call.function(), call.arg_count());
    Err(Error::new(Code::InvalidArgument, message))
}

/// The function as C calls it.
pub(crate) fn trampoline<A>(handler: impl Handler<A>) -> ffi::Function {
    Box::new(move |invocation| {
        let call = Call::of(invocation);
        let value = handler.serve(&call)?;
        if call.is_deferred.get() {
            return Ok(());
        }
        functions::invocation_return(call.handle(), value.handle())
    })
}
