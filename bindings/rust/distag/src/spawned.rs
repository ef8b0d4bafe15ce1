//! Functions that are `async`: an executor of the user's runs them, and no thread of the worker waits.
use crate::call::{check_count, Call, WithCall};
use crate::error::{Error, Result};
use crate::ffi::{self, Function};
use crate::{FromValue, IntoValue, Value};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// What a spawner runs: it ends when the call is answered.
///
/// ```
/// # let worker = distag::Worker::builder().name("w").world_size(1).rendezvous("inproc://doc").build()?;
/// # worker.start(std::time::Duration::from_secs(5))?;
/// fn spawn(task: distag::Task) { // as an executor of yours does
/// #     struct Unpark(std::thread::Thread);
/// #     impl std::task::Wake for Unpark {
/// #         fn wake(self: std::sync::Arc<Self>) {
/// #             self.0.unpark();
/// #         }
/// #     }
///     std::thread::spawn(move || {
/// #         let mut task = task;
/// #         let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
/// #         let mut context = std::task::Context::from_waker(&waker);
/// #         while task.as_mut().poll(&mut context).is_pending() {
/// #             std::thread::park();
/// #         }
///         // block_on(task)
///     });
/// }
/// worker.register_async("double", |x: i64| async move { Ok::<_, distag::Error>(2 * x) }, spawn)?;
/// assert_eq!(worker.call::<i64>("w", "double", (4,))?, 8);
/// # Ok::<(), distag::Error>(())
/// ```
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
type Answer = Pin<Box<dyn Future<Output = Result<Value>> + Send>>;

/// An `async` function that can be registered: of up to six arguments, with `&Call` before them if it wants it, which
/// ends before the future is polled.
///
/// ```
/// async fn double(x: i64) -> distag::Result<i64> {
///     Ok(2 * x)
/// }
/// fn fits(_: impl distag::AsyncHandler<(i64,)>) {}
/// fits(double);
/// ```
pub trait AsyncHandler<Arguments>: Send + Sync + 'static {
    /// Begins a call.
    ///
    /// # Errors
    /// Arguments that do not fit.
    fn begin(&self, call: &Call) -> Result<Answer>;
}

async fn answer<T: IntoValue, E>(running: impl Future<Output = std::result::Result<T, E>> + Send) -> Result<Value>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    crate::call::answer(running.await)
}

macro_rules! handler {
    ($count:literal $(, $type:ident $index:tt)*) => {
        impl<Fun, Run, Out, Err, $($type),*> AsyncHandler<($($type,)*)> for Fun
        where
            Fun: Fn($($type),*) -> Run + Send + Sync + 'static,
            Run: Future<Output = std::result::Result<Out, Err>> + Send + 'static,
            Out: IntoValue + 'static,
            Err: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
            $($type: FromValue,)*
        {
            fn begin(&self, call: &Call) -> Result<Answer> {
                check_count(call, $count)?;
                Ok(Box::pin(answer(self($($type::from_argument(call, $index)?),*))))
            }
        }
        impl<Fun, Run, Out, Err, $($type),*> AsyncHandler<(WithCall, $($type,)*)> for Fun
        where
            Fun: Fn(&Call, $($type),*) -> Run + Send + Sync + 'static,
            Run: Future<Output = std::result::Result<Out, Err>> + Send + 'static,
            Out: IntoValue + 'static,
            Err: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
            $($type: FromValue,)*
        {
            fn begin(&self, call: &Call) -> Result<Answer> {
                check_count(call, $count)?;
                Ok(Box::pin(answer(self(call, $($type::from_argument(call, $index)?),*))))
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

/// The answer to come; a panic in it is its failure, also one while what it holds is dropped.
struct Guarded(Option<Answer>);

impl Guarded {
    fn end(&mut self) {
        ffi::drop_guarded(self.0.take());
    }
}

impl Future for Guarded {
    type Output = Result<Value>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Value>> {
        let polled = match &mut self.0 {
            Some(running) => ffi::guard(|| Ok(running.as_mut().poll(context))),
            None => Err(Error::no_handle()),
        };
        let result = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(result)) => result,
            Err(failure) => Err(failure),
        };
        self.end();
        Poll::Ready(result)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.end();
    }
}

/// The function as C calls it.
pub(crate) fn trampoline<A>(handler: impl AsyncHandler<A>, spawn: impl Fn(Task) + Send + Sync + 'static) -> Function {
    Box::new(move |invocation| {
        let call = Call::of(invocation);
        let running = Guarded(Some(handler.begin(&call)?));
        let reply = call.defer()?;
        spawn(Box::pin(async move {
            let result = running.await;
            let _ = reply.finish(result); // no caller awaits it where that fails
        }));
        Ok(())
    })
}
