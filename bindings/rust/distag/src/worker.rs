//! Workers, and the calls that they make.
use crate::call::{trampoline, Handler};
use crate::causes::Expected;
use crate::error::Result;
use crate::ffi::{self, functions, Handle, Handles, Lent, Owner};
use crate::{
    AsyncHandler, Context, FromValue, Future, IntoArgs, IntoValue, LogLevel, MemberState, RRef, SocketEngine, Task,
    Value,
};
use distag_sys::{distag_call_options, distag_invocation, distag_stats, distag_worker, distag_worker_options};
use std::ffi::CString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// One participant of a group: a name, a rank, functions. A clone is another reference to it.
///
/// The last one that comes from [`WorkerBuilder::build`] has it leave when it is dropped, and so does the end of the
/// process: it then waits for functions that run only, 5 s at most. [`Worker::shutdown`] ends in peace.
///
/// ```
/// use distag::Worker;
/// use std::time::Duration;
/// // Name, group and address come from the environment where they are not set.
/// let worker = Worker::builder().name("w").world_size(1).rendezvous("inproc://doc").build()?;
/// worker.register("add", |a: i64, b: i64| Ok::<_, distag::Error>(a + b))?;
/// worker.start(Duration::from_secs(5))?;
/// assert_eq!(worker.call::<i64>("w", "add", (1, 2))?, 3);
/// worker.shutdown(Duration::from_secs(5))?;
/// # Ok::<(), distag::Error>(())
/// ```
#[derive(Clone)]
pub struct Worker {
    handle: Handle<distag_worker>,
    _owner: Option<Arc<Owner>>,
}

/// A member of the group, as a worker sees it.
///
/// ```
/// # let worker = distag::Worker::builder().name("w").world_size(1).rendezvous("inproc://doc").build()?;
/// # worker.start(std::time::Duration::from_secs(5))?;
/// let own = worker.member(0)?;
/// assert_eq!((own.name.as_str(), own.state), ("w", distag::MemberState::Alive));
/// # Ok::<(), distag::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its rank.
    pub rank: i32,
    /// Its name.
    pub name: String,
    /// Whether it lives.
    pub state: MemberState,
    /// New at each of its starts.
    pub incarnation: u64,
}

impl Member {
    fn of(raw: &distag_sys::distag_member) -> Self {
        let (name, state) = (ffi::text_of(&raw.name), MemberState::from_raw(raw.state));
        Self { rank: raw.rank, name, state, incarnation: raw.incarnation }
    }
}

impl Worker {
    /// A worker to be: rank, size and address come from the environment unless they are set.
    #[must_use]
    pub fn builder() -> WorkerBuilder {
        WorkerBuilder::default()
    }

    pub(crate) fn of_handle(handle: Handle<distag_worker>) -> Self {
        Self { handle, _owner: None }
    }
    pub(crate) fn handle(&self) -> &Handle<distag_worker> {
        &self.handle
    }

    /// Offers a function under a name. Register before the start what others expect to find. A panic in it reaches the
    /// caller as status 1000, "panic: text", unless the program is built with `panic = "abort"`.
    ///
    /// # Errors
    /// The name is taken, or no name.
    pub fn register<A>(&self, name: &str, function: impl Handler<A>) -> Result<()> {
        ffi::worker_register(&self.handle, &ffi::text("the name of a function", name)?, trampoline(function), None)
    }

    /// Offers an `async` function, which a spawner of yours runs, such as that of tokio, or a thread that blocks on it. No
    /// thread of the worker waits for it.
    ///
    /// ```no_run
    /// # fn spawn(_: distag::Task) {}
    /// # let worker = distag::Worker::builder().build()?;
    /// worker.register_async("double", |x: i64| async move { Ok::<_, distag::Error>(2 * x) }, spawn)?;
    /// # Ok::<(), distag::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Worker::register`].
    pub fn register_async<A>(
        &self,
        name: &str,
        function: impl AsyncHandler<A>,
        spawn: impl Fn(Task) + Send + Sync + 'static,
    ) -> Result<()> {
        let name = ffi::text("the name of a function", name)?;
        ffi::worker_register(&self.handle, &name, crate::spawned::trampoline(function, spawn), None)
    }

    /// Offers a function to these callers alone.
    ///
    /// # Errors
    /// As [`Worker::register`]; the workers have no key each.
    pub fn register_for<A>(&self, callers: &[&str], name: &str, function: impl Handler<A>) -> Result<()> {
        let callers = callers.iter().map(|each| ffi::text("a caller", each)).collect::<Result<Vec<_>>>()?;
        let name = ffi::text("the name of a function", name)?;
        ffi::worker_register(&self.handle, &name, trampoline(function), Some(&ffi::Texts::new(&callers)))
    }

    /// Withdraws a function, and waits for its invocations.
    ///
    /// # Errors
    /// There is no such function; time is up.
    pub fn unregister(&self, name: &str, timeout: Duration) -> Result<()> {
        let name = ffi::text("the name of a function", name)?;
        functions::worker_unregister(&self.handle, &name, ffi::nanoseconds(timeout))
    }

    /// Meets the group and becomes reachable; waits for all members of a static group.
    ///
    /// # Errors
    /// `Deadline` lists the missing ones.
    pub fn start(&self, timeout: Duration) -> Result<()> {
        functions::worker_start(&self.handle, ffi::nanoseconds(timeout))
    }

    /// The same without waiting, for several workers in one thread.
    ///
    /// # Errors
    /// It was started before.
    pub fn start_async(&self, timeout: Duration) -> Result<Future<()>> {
        functions::worker_start_async(&self.handle, ffi::nanoseconds(timeout)).map(Future::of_handle)
    }

    /// Leaves the group once every living member of a static one does, and no call is open; None waits for ever, so a
    /// worker that only serves starts, and shuts down. Answers the report, a map.
    ///
    /// # Errors
    /// `Deadline` naming functions that still run.
    pub fn shutdown(&self, timeout: impl Into<Option<Duration>>) -> Result<Value> {
        let timeout = timeout.into().map_or(ffi::FOREVER, ffi::nanoseconds);
        functions::worker_shutdown(&self.handle, timeout).map(Value::of_handle)
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// No memory.
    pub fn shutdown_async(&self, timeout: impl Into<Option<Duration>>) -> Result<Future<Value>> {
        let timeout = timeout.into().map_or(ffi::FOREVER, ffi::nanoseconds);
        functions::worker_shutdown_async(&self.handle, timeout).map(Future::of_handle)
    }

    /// With [`WorkerBuilder::poll_by_host`], runs the callbacks that are due, and answers how many it ran.
    ///
    /// # Errors
    /// The worker has threads of its own.
    pub fn poll(&self, max_items: usize, limit: impl Into<Option<Duration>>) -> Result<usize> {
        let limit = limit.into().map_or(ffi::FOREVER, ffi::nanoseconds);
        functions::worker_poll(&self.handle, max_items, limit)
    }

    /// Waits until [`Worker::poll`] has something to run.
    ///
    /// # Errors
    /// `Deadline`; the worker has threads of its own, or has left.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        functions::worker_wait(&self.handle, ffi::nanoseconds(timeout))
    }

    /// The place in the group; None before the start.
    #[must_use]
    pub fn rank(&self) -> Option<i32> {
        Some(functions::worker_get_rank(&self.handle)).filter(|&rank| rank >= 0)
    }

    /// The size of the group; in an open world the living members.
    #[must_use]
    pub fn world_size(&self) -> i32 {
        functions::worker_get_world_size(&self.handle)
    }

    /// The latest member of a rank, in any state.
    ///
    /// # Errors
    /// There is none.
    pub fn member(&self, rank: i32) -> Result<Member> {
        functions::worker_get_member(&self.handle, rank).map(|raw| Member::of(&raw))
    }

    /// The ranks of the living members whose names begin so ("" for all).
    ///
    /// # Errors
    /// A prefix with a NUL character.
    pub fn ranks(&self, prefix: &str) -> Result<Vec<i32>> {
        let prefix = ffi::text("the prefix", prefix)?;
        ffi::copy_items(|buffer| functions::worker_copy_ranks(&self.handle, &prefix, buffer))
    }

    /// Called by all members with a value each: gives all values. Also a barrier.
    ///
    /// # Errors
    /// `Deadline` lists the workers that did not come; `Disconnected` those that are lost.
    pub fn all_gather<T: FromValue>(&self, value: impl IntoValue, timeout: Duration) -> Result<Vec<T>> {
        let value = value.into_value()?;
        let values = functions::worker_all_gather(&self.handle, value.handle(), None, ffi::nanoseconds(timeout))?;
        Value::of_handle(values).to()
    }

    /// A context for calls and passes.
    ///
    /// # Errors
    /// The worker is not started.
    pub fn context(&self) -> Result<Context> {
        functions::context_create(Some(&self.handle)).map(|handle| Context::of_handle(handle, Some(self.clone())))
    }

    /// A call to be made, with its options.
    ///
    /// # Errors
    /// A name with a NUL character.
    pub fn request(&self, to: &str, function: &str) -> Result<Request<'static>> {
        Request::new(self.clone(), to, function, None, None)
    }

    /// Calls a function of a worker, possibly this one, and waits for the answer.
    ///
    /// # Errors
    /// As the function; `NotFound`, `Deadline`, `Disconnected` and others of `distag_call`.
    pub fn call<T: FromValue>(&self, to: &str, function: &str, args: impl IntoArgs) -> Result<T> {
        self.request(to, function)?.call(args)
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// What the call needs is not there; later failures are those of the future.
    pub fn call_async<T: FromValue>(&self, to: &str, function: &str, args: impl IntoArgs) -> Result<Future<T>> {
        self.request(to, function)?.call_async(args)
    }

    /// Calls a function and leaves its answer there.
    ///
    /// # Errors
    /// As [`Worker::call_async`]; a later failure is that of the value.
    pub fn remote(&self, to: &str, function: &str, args: impl IntoArgs) -> Result<RRef> {
        self.request(to, function)?.remote(args)
    }

    /// Shares a value of this worker, such as an [`Object`](crate::Object).
    ///
    /// # Errors
    /// The worker has left.
    pub fn share(&self, value: impl IntoValue) -> Result<RRef> {
        functions::rref_create(&self.handle, value.into_value()?.handle()).map(RRef::of_handle)
    }

    /// The counters as they are.
    ///
    /// # Errors
    /// No memory.
    pub fn stats(&self) -> Result<distag_stats> {
        functions::worker_get_stats(&self.handle)
    }

    /// A report in JSON, for people and tools.
    ///
    /// # Errors
    /// The worker does not answer within a second.
    pub fn report(&self) -> Result<String> {
        ffi::copy_text(|buffer| functions::worker_copy_report(&self.handle, buffer))
    }

    /// What all members have open and wait for, in JSON. One that does not answer in time is told as silent.
    ///
    /// # Errors
    /// The worker is not started, or does not answer.
    pub fn group_report(&self, timeout: Duration) -> Result<String> {
        ffi::copy_text(|buffer| functions::worker_copy_group_report(&self.handle, ffi::nanoseconds(timeout), buffer))
    }

    /// The counters in the text format of Prometheus.
    ///
    /// # Errors
    /// No memory.
    pub fn metrics(&self) -> Result<String> {
        ffi::copy_text(|buffer| functions::worker_copy_metrics(&self.handle, buffer))
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name().unwrap_or("without a name");
        match self.rank() {
            Some(rank) => write!(f, "Worker {name:?} (rank {rank})"),
            None => write!(f, "Worker {name:?}, not started"),
        }
    }
}

/// A call to be made, with its options.
///
/// ```
/// # let worker = distag::Worker::builder().name("w").world_size(1).rendezvous("inproc://doc").build()?;
/// # worker.start(std::time::Duration::from_secs(5))?;
/// use std::time::Duration;
/// worker.register("double", |x: i64| Ok::<_, distag::Error>(2 * x))?;
/// let request = worker.request("w", "double")?.timeout(Duration::from_secs(5)).label("step 1")?;
/// assert_eq!(request.call::<i64>((2,))?, 4);
/// # Ok::<(), distag::Error>(())
/// ```
pub struct Request<'a> {
    worker: Worker,
    context: Option<Context>,
    to: CString,
    function: CString,
    label: Option<CString>,
    timeout_ns: i64,
    within: Option<&'a Lent<'static, distag_invocation>>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(
        worker: Worker,
        to: &str,
        function: &str,
        context: Option<Context>,
        within: Option<&'a Lent<'static, distag_invocation>>,
    ) -> Result<Self> {
        let (to, function) = (ffi::text("the name of a worker", to)?, ffi::text("the name of a function", function)?);
        Ok(Self { worker, context, to, function, label: None, timeout_ns: 0, within })
    }

    /// The time until the deadline; None for no limit.
    #[must_use]
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout_ns = timeout.into().map_or(ffi::FOREVER, |each| ffi::limit(Some(each)));
        self
    }

    /// A label, which shows in errors and reports.
    ///
    /// # Errors
    /// A text with a NUL character.
    pub fn label(mut self, label: &str) -> Result<Self> {
        self.label = Some(ffi::text("the label", label)?);
        Ok(self)
    }

    fn options(&self) -> ffi::Options<'_, distag_call_options> {
        ffi::call_options(self.timeout_ns, self.within, self.label.as_deref())
    }

    fn expected(&self) -> Expected {
        Expected::of(&self.to.to_string_lossy())
    }

    /// Makes the call, and waits.
    ///
    /// # Errors
    /// As [`Worker::call`].
    pub fn call<T: FromValue>(&self, args: impl IntoArgs) -> Result<T> {
        let values = args.into_args()?;
        let args = Handles::new(values.iter().map(Value::handle));
        let (worker, context) = (self.worker.handle(), self.context.as_ref().map(Context::handle));
        let expected = self.expected();
        let answer = functions::call(worker, context, &self.to, &self.function, &args, Some(&self.options()))
            .map_err(|failure| expected.find(failure))?;
        T::from_value(&Value::of_handle(answer)).map_err(|failure| failure.at("answer"))
    }

    /// Makes the call without waiting.
    ///
    /// # Errors
    /// As [`Worker::call_async`].
    pub fn call_async<T: FromValue>(&self, args: impl IntoArgs) -> Result<Future<T>> {
        let values = args.into_args()?;
        let args = Handles::new(values.iter().map(Value::handle));
        let (worker, context) = (self.worker.handle(), self.context.as_ref().map(Context::handle));
        let (to, function) = (&self.to, &self.function);
        let expected = self.expected();
        let handle = functions::call_async(worker, context, to, function, &args, Some(&self.options()))?;
        Ok(Future::of_call(handle, expected))
    }

    /// Makes the call and leaves its answer there.
    ///
    /// # Errors
    /// As [`Worker::remote`].
    pub fn remote(&self, args: impl IntoArgs) -> Result<RRef> {
        let values = args.into_args()?;
        let args = Handles::new(values.iter().map(Value::handle));
        let (worker, context) = (self.worker.handle(), self.context.as_ref().map(Context::handle));
        let (to, function) = (&self.to, &self.function);
        let expected = self.expected();
        let handle = functions::remote(worker, context, to, function, &args, Some(&self.options()))?;
        Ok(RRef::of_call(handle, expected))
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request of {:?} at {:?}", self.function, self.to)
    }
}

/// The options of a new worker; what is not set is the default of the header, or of the environment.
///
/// ```
/// let builder = distag::Worker::builder().name("w").world_size(1).rendezvous("inproc://doc");
/// let worker = builder.threads(2).on_log(distag::LogLevel::Error, |_, text| eprintln!("{text}")).build()?;
/// assert_eq!(worker.name(), Some("w"));
/// # Ok::<(), distag::Error>(())
/// ```
#[derive(Default)]
pub struct WorkerBuilder {
    raw: distag_worker_options,
    texts: Vec<(&'static str, String)>,
    peers: Vec<(String, String)>,
    hooks: ffi::WorkerHooks,
}

macro_rules! text_option {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $name: impl Into<String>) -> Self {
            self.texts.push((stringify!($name), $name.into()));
            self
        }
    )*};
}

impl WorkerBuilder {
    text_option! {
        /// The name, unique in the group; "worker" and the rank unless it is set.
        name
        /// Where the group meets: `env://`, `tcp://host:port`, `file:///dir`, `inproc://x`, `etcd://...`.
        rendezvous
        /// Workers of different jobs never meet.
        job
        /// Where it listens.
        bind
        /// Where others find it.
        advertise
        /// The key of the group, the same in all workers.
        group_key
        /// The public key of this worker.
        public_key
        /// The secret key of this worker.
        secret_key
    }

    /// The place in the group; -1 in an open world lets the group give one.
    #[must_use]
    pub fn rank(mut self, rank: i32) -> Self {
        self.raw.rank = rank;
        self
    }

    /// The size of the group; -1 for an open world.
    #[must_use]
    pub fn world_size(mut self, world_size: i32) -> Self {
        self.raw.world_size = world_size;
        self
    }

    /// The number of threads for functions.
    #[must_use]
    pub fn threads(mut self, count: u32) -> Self {
        self.raw.thread_count = count;
        self
    }

    /// Has functions and callbacks run in [`Worker::poll`] and in waits of the thread that polls, and nowhere else.
    #[must_use]
    pub fn poll_by_host(mut self) -> Self {
        self.raw.executor = distag_sys::DISTAG_EXECUTOR_HOST;
        self
    }

    /// The time of calls that set none.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.raw.call_timeout_ns = ffi::limit(Some(timeout));
        self
    }

    /// The silence after which a member is lost.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.raw.lease_ns = ffi::finite_limit(lease);
        self
    }

    /// The largest message it sends and takes.
    #[must_use]
    pub fn max_message_bytes(mut self, bytes: u64) -> Self {
        self.raw.max_message_bytes = bytes;
        self
    }

    /// Uses sockets only, no shared memory with members of this machine.
    #[must_use]
    pub fn no_lane(mut self) -> Self {
        self.raw.no_lane = 1;
        self
    }

    /// The library of sockets for `tcp://` and `ipc://`. By default the one that `DISTAG_SOCKET_ENGINE` names, else
    /// libzmq.
    #[must_use]
    pub fn socket_engine(mut self, engine: SocketEngine) -> Self {
        self.raw.socket_engine = engine.to_raw();
        self
    }

    /// A worker that may connect, and its public key.
    #[must_use]
    pub fn peer(mut self, name: impl Into<String>, public_key: impl Into<String>) -> Self {
        self.peers.push((name.into(), public_key.into()));
        self
    }

    /// Takes the records of the log of that level and above. A panic in it ends there, once the panic hook has told it.
    #[must_use]
    pub fn on_log(mut self, level: LogLevel, sink: impl Fn(LogLevel, &str) + Send + Sync + 'static) -> Self {
        self.raw.log_level = level.to_raw();
        self.hooks.on_log = Some(Box::new(move |level, message| sink(LogLevel::from_raw(level), message)));
        self
    }

    /// Sees members that join, leave or are lost. A panic in it ends there, once the panic hook has told it.
    #[must_use]
    pub fn on_member(mut self, callback: impl Fn(&Member) + Send + Sync + 'static) -> Self {
        self.hooks.on_member = Some(Box::new(move |raw| callback(&Member::of(raw))));
        self
    }

    /// Makes a worker that cannot be reached yet.
    ///
    /// # Errors
    /// An option that does not fit; an older library.
    pub fn build(self) -> Result<Worker> {
        ffi::check_library()?;
        let handle = ffi::worker_create(self.raw, &self.texts, &self.peers, self.hooks)?;
        let owner = Some(Arc::new(Owner::new(&handle)));
        Ok(Worker { handle, _owner: owner })
    }
}

impl fmt::Debug for WorkerBuilder {
    /// The names of the texts that are set, and no text: keys are among them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = self.texts.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let (rank, world_size) = (self.raw.rank, self.raw.world_size);
        write!(f, "WorkerBuilder of rank {rank} in {world_size} with {texts:?}")
    }
}

/// A public and a secret key of a worker, new and unique.
///
/// ```
/// let (public_key, secret_key) = distag::create_keys()?;
/// assert_ne!(public_key, secret_key); // for WorkerBuilder::secret_key here, WorkerBuilder::peer elsewhere
/// # Ok::<(), distag::Error>(())
/// ```
///
/// # Errors
/// No randomness.
pub fn create_keys() -> Result<(String, String)> {
    ffi::check_library()?;
    let keys = functions::security_create_keys()?;
    Ok((ffi::text_of(&keys.public_key), ffi::text_of(&keys.secret_key)))
}
