using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Threading;
using System.Threading.Tasks;
using Distag.Raw;

namespace Distag {
    /// <summary>Options of a new worker; what is left out has the default of the C library, and rank, size and rendezvous come from
    /// the environment if all three are left out.</summary>
    public sealed class WorkerOptions {
        /// <summary>"worker" and the rank.</summary>
        public string Name { get; set; }
        /// <summary>0 .. WorldSize - 1; -1 in an open world: the group gives one.</summary>
        public int Rank { get; set; }
        /// <summary>-1: an open world.</summary>
        public int WorldSize { get; set; }
        /// <summary>"env://", "tcp://host:port", "file:///folder", "inproc://name", "etcd://...".</summary>
        public string Rendezvous { get; set; }
        /// <summary>Workers of different jobs never meet.</summary>
        public string Job { get; set; }
        /// <summary>Where it listens.</summary>
        public string Bind { get; set; }
        /// <summary>Where others find it.</summary>
        public string Advertise { get; set; }
        /// <summary>Where functions run: on the pool, or in Poll only.</summary>
        public Executor Executor { get; set; }
        /// <summary>Of the pool.</summary>
        public int Threads { get; set; }
        /// <summary>Of calls that set none.</summary>
        public TimeSpan? CallTimeout { get; set; }
        /// <summary>Silence after which a member is lost.</summary>
        public TimeSpan? Lease { get; set; }
        /// <summary>Of requests and answers for one worker.</summary>
        public ulong MaxInFlightBytes { get; set; }
        /// <summary>The largest message that it sends and takes.</summary>
        public ulong MaxMessageBytes { get; set; }
        /// <summary>Sockets only, no shared memory.</summary>
        public bool NoLane { get; set; }
        /// <summary>The library of sockets for "tcp://" and "ipc://". By default the one that DISTAG_SOCKET_ENGINE names,
        /// else libzmq.</summary>
        public SocketEngine SocketEngine { get; set; }
        /// <summary>Of what OnLog gets.</summary>
        public LogLevel LogLevel { get; set; }
        /// <summary>Null: nothing is logged.</summary>
        public Action<LogLevel, string> OnLog { get; set; }
        /// <summary>Called when a member joins, leaves or is lost.</summary>
        public Action<Member> OnMember { get; set; }
        /// <summary>The key of all workers of the group.</summary>
        public string GroupKey { get; set; }
        /// <summary>Instead of a group key, that of this worker.</summary>
        public string SecretKey { get; set; }
        /// <summary>That of SecretKey.</summary>
        public string PublicKey { get; set; }
        /// <summary>The public keys of those that may connect, by name.</summary>
        public IDictionary<string, string> Peers { get; set; }
        /// <summary>The worker that serves "tcp://".</summary>
        public string RendezvousName { get; set; }
        /// <summary>The only other workers in whose passes this one takes part.</summary>
        public string[] Initiators { get; set; }
        /// <summary>Without a group key tcp has none, for anybody.</summary>
        public bool AllowInsecure { get; set; }

        unsafe IntPtr Security(Memory memory) {
            bool peers = Peers != null && Peers.Count > 0, initiators = Initiators != null && Initiators.Length > 0;
            if (GroupKey == null && SecretKey == null && PublicKey == null && RendezvousName == null && !peers && !initiators && !AllowInsecure)
                return IntPtr.Zero;
            IntPtr block = memory.Zeroed(sizeof(distag_security_options));
            *(distag_security_options*)block = new distag_security_options {
                struct_size = (uint)sizeof(distag_security_options), allow_insecure = AllowInsecure ? 1u : 0,
                public_key = memory.Copy(PublicKey, "PublicKey"), secret_key = memory.Copy(SecretKey, "SecretKey"),
                group_key = memory.Copy(GroupKey, "GroupKey"), rendezvous_name = memory.Copy(RendezvousName, "RendezvousName"),
                peer_names = peers ? memory.Copy(Peers.Keys, "Peers") : IntPtr.Zero,
                peer_keys = peers ? memory.Copy(Peers.Values, "Peers") : IntPtr.Zero,
                peer_count = (UIntPtr)(peers ? Peers.Count : 0),
                initiators = initiators ? memory.Copy(Initiators, "Initiators") : IntPtr.Zero,
                initiator_count = (UIntPtr)(initiators ? Initiators.Length : 0) };
            return block;
        }

        internal unsafe distag_worker_options Struct(Memory memory, Worker owner) {
            if (Threads < 0) throw Errors.Usage("Threads: " + Threads + " is negative: give their number, or 0 for the default");
            var made = new distag_worker_options {
                struct_size = (uint)sizeof(distag_worker_options), executor = (uint)Executor, rank = Rank, world_size = WorldSize,
                thread_count = (uint)Threads, log_level = (int)LogLevel, call_timeout_ns = Times.InOptions(CallTimeout, "CallTimeout"),
                lease_ns = Times.InOptions(Lease, "Lease"), max_in_flight_bytes = MaxInFlightBytes, max_message_bytes = MaxMessageBytes,
                name = memory.Copy(Name, "Name"), rendezvous = memory.Copy(Rendezvous, "Rendezvous"), job = memory.Copy(Job, "Job"),
                bind = memory.Copy(Bind, "Bind"), advertise = memory.Copy(Advertise, "Advertise"), no_lane = NoLane ? 1u : 0,
                socket_engine = (uint)SocketEngine };
            made.security = Security(memory);
            if (OnLog == null && OnMember == null) return made;
            made.user_data = Callbacks.Keep(new Listener(this, owner));
            made.destroy = Callbacks.Free;
            if (OnLog != null) made.on_log = Callbacks.Log;
            if (OnMember != null) made.on_member = Callbacks.Member;
            return made;
        }
    }

    /// <summary>The handlers of a worker, which does not live by them.</summary>
    sealed class Listener {
        readonly WorkerOptions options;
        readonly WeakReference<Worker> owner;

        internal Listener(WorkerOptions options, Worker owner) {
            this.options = options;
            this.owner = new WeakReference<Worker>(owner);
        }

        internal void Run(Action<WorkerOptions> handler) {
            Worker worker;
            owner.TryGetTarget(out worker);
            using (new Errors.Within(worker)) handler(options);
        }
    }

    /// <summary>One participant as a worker sees it.</summary>
    public sealed class Member {
        /// <summary>Unique in the group.</summary>
        public string Name { get; private set; }
        /// <summary>The same for each worker of that name.</summary>
        public int Rank { get; private set; }
        /// <summary>Alive, left or lost.</summary>
        public MemberState State { get; private set; }
        /// <summary>Random, new at each start.</summary>
        public ulong Incarnation { get; private set; }

        internal unsafe Member(distag_member* seen) {
            Name = Text.Read((IntPtr)seen->name);
            Rank = seen->rank;
            State = (MemberState)seen->state;
            Incarnation = seen->incarnation;
        }
    }

    /// <summary>What a worker says when it is down.</summary>
    public sealed class Report {
        /// <summary>Whether nothing was lost.</summary>
        public bool Clean { get; private set; }
        /// <summary>Members that did not shut down.</summary>
        public string[] Missing { get; private set; }
        /// <summary>Calls that were open.</summary>
        public long OpenCalls { get; private set; }
        /// <summary>References that others still had.</summary>
        public string[] LeakedRRefs { get; private set; }

        internal Report(object value) {
            var map = (Dictionary<string, object>)value;
            Clean = (bool)map["clean"];
            Missing = Value.As<string[]>(map["missing"]);
            OpenCalls = (long)map["open_calls"];
            LeakedRRefs = Value.As<string[]>(map["leaked_rrefs"]);
        }
    }

    /// <summary>One participant: it has a name and a rank, offers functions and calls those of others. Once started it is not
    /// collected: dispose it. When the process ends, it is shut down.</summary>
    public sealed unsafe partial class Worker : IDisposable {
        internal readonly WorkerHandle Handle;

        /// <summary>Makes a worker that cannot be reached yet: register its functions, then start it.</summary>
        public Worker(WorkerOptions options = null) {
            Handle = Library.Later(() => Create(options ?? new WorkerOptions()));
        }

        WorkerHandle Create(WorkerOptions options) {
            using (var memory = new Memory()) {
                distag_worker_options given = options.Struct(memory, this);
                var error = new distag_error();
                IntPtr made;
                Errors.Check(Native.distag_worker_create(&given, &made, &error), &error);
                return new WorkerHandle(made);
            }
        }

        // ---- its life ----

        IntPtr Begin(TimeSpan? timeout) {
            var error = new distag_error();
            IntPtr future;
            Errors.Check(Native.distag_worker_start_async(Handle, Times.Of(timeout, Native.DISTAG_FOREVER, "timeout"), &future, &error), &error);
            Library.Started(this);
            return future;
        }

        /// <summary>Meets the group. It waits for all members of a static group; for ever without a timeout.</summary>
        public void Start(TimeSpan? timeout = null, CancellationToken token = default(CancellationToken)) {
            Future.Wait(Begin(timeout), token);
        }

        /// <summary>The same as a task.</summary>
        public Task StartAsync(TimeSpan? timeout = null, CancellationToken token = default(CancellationToken)) {
            return Future.Start(Begin(timeout), token, value => true);
        }

        IntPtr End(long timeout) {
            var error = new distag_error();
            IntPtr future;
            Errors.Check(Native.distag_worker_shutdown_async(Handle, timeout, &future, &error), &error);
            return future;
        }

        /// <summary>Serves on until every living member of a static group shuts down too and no call is open, and leaves; regardless at
        /// the timeout. Without one it waits for ever, so a server is Start and Shutdown. With the host executor the caller is the
        /// thread that polls from then on. A function cannot wait for its own worker to end: it takes ShutdownAsync.</summary>
        public Report Shutdown(TimeSpan? timeout = null) {
            var error = new distag_error();
            IntPtr report;
            long limit = Times.Of(timeout, Native.DISTAG_FOREVER, "timeout");
            Errors.Check(Native.distag_worker_shutdown(Handle, limit, &report, &error), &error);
            Library.Down(this);
            return new Report(Builder.Take(report));
        }

        /// <summary>The same as a task.</summary>
        public Task<Report> ShutdownAsync(TimeSpan? timeout = null) {
            return Future.Start(End(Times.Of(timeout, Native.DISTAG_FOREVER, "timeout")), CancellationToken.None, value => {
                Library.Down(this);
                return new Report(value);
            });
        }

        /// <summary>Leaves the group at once, if Shutdown has not done so, and releases the worker. Functions that run get 5 s; while they
        /// go on beyond, the worker is kept, until the next Dispose or the end of the process, which aborts them. A function or handler
        /// of the worker, which it would wait for, cannot dispose it, and is refused.</summary>
        public void Dispose() {
            if (Handle.IsClosed) return;
            if (Errors.Within.Runs(this))
                throw new UsageException(Status.InvalidState,
                    "Dispose: called from a function or a handler of this worker: use ShutdownAsync there, and dispose the worker elsewhere");
            BeginToLeave();
            var time = Stopwatch.StartNew();
            while (!Leave(TimeSpan.FromSeconds(5) - time.Elapsed))
                if (time.Elapsed.TotalSeconds >= 5) {
                    Library.Started(this);
                    return;
                }
            Library.Down(this);
            Handle.Dispose();
        }

        internal void BeginToLeave() {
            try {
                new FutureHandle(End(0)).Dispose();
            } catch (DistagException) {
            } catch (ObjectDisposedException) {}
        }

        /// <summary>Shuts down with timeout 0 and waits; false: functions still run, try again.</summary>
        internal bool Leave(TimeSpan left) {
            var error = new distag_error();
            try {
                using (var future = new FutureHandle(End(0))) {
                    long limit = Math.Max(1, left.Ticks) * 100;
                    return Native.distag_future_wait(future, limit, &error) == 0 || error.code != (int)Status.Deadline;
                }
            } catch (DistagException) {
            } catch (ObjectDisposedException) {}
            return true;
        }

        // ---- functions ----

        /// <summary>Offers a function under a name. Its result is a value, a Task of one, or, for Remote, any object. What it throws
        /// fails the call. With callers, only those workers may call it.</summary>
        public void Register(string name, Func<Call, object> function, params string[] callers) {
            if (function == null) throw new ArgumentNullException("function");
            using (var memory = new Memory()) {
                var options = new distag_function_options { struct_size = (uint)sizeof(distag_function_options) };
                if (callers != null && callers.Length > 0) {
                    options.callers = memory.Copy(callers, "callers");
                    options.caller_count = (UIntPtr)callers.Length;
                }
                var error = new distag_error();
                byte[] text = Text.Give(name, "name of a function");
                using (Handle.Hold()) {
                    IntPtr offered = Callbacks.Keep(new Offered { Worker = this, Run = function });
                    Errors.Check(Native.distag_worker_register(Handle, text, Callbacks.Invoke, offered, Callbacks.Free, &options, &error), &error);
                }
            }
        }

        /// <summary>The same of a function without arguments.</summary>
        public void Register<R>(string name, Func<R> function, params string[] callers) {
            if (function == null) throw new ArgumentNullException("function");
            Register(name, Offered.Counted(name, null, 0, (call, i) => function()), callers);
        }

        /// <summary>The same of a function whose arguments have types of Value.As; Call may be the first. With Call alone it takes any
        /// arguments, whatever it gives.</summary>
        public void Register<A, R>(string name, Func<A, R> function, params string[] callers) {
            if (function == null) throw new ArgumentNullException("function");
            if (typeof(A) == typeof(Call)) {
                Func<Call, object> whole = call => function((A)(object)call);
                Register(name, whole, callers);
                return;
            }
            Register(name, Offered.Counted(name, typeof(A), 1, (call, i) => function(call.Argument<A>(i))), callers);
        }

        /// <summary>The same.</summary>
        public void Register<A, B, R>(string name, Func<A, B, R> function, params string[] callers) {
            if (function == null) throw new ArgumentNullException("function");
            Register(name, Offered.Counted(name, typeof(A), 2, (call, i) => function(call.Argument<A>(i), call.Argument<B>(i + 1))), callers);
        }

        /// <summary>The same.</summary>
        public void Register<A, B, C, R>(string name, Func<A, B, C, R> function, params string[] callers) {
            if (function == null) throw new ArgumentNullException("function");
            Register(name, Offered.Counted(name, typeof(A), 3, (call, i) =>
                function(call.Argument<A>(i), call.Argument<B>(i + 1), call.Argument<C>(i + 2))), callers);
        }

        /// <summary>The same.</summary>
        public void Register<A, B, C, D, R>(string name, Func<A, B, C, D, R> function, params string[] callers) {
            if (function == null) throw new ArgumentNullException("function");
            Register(name, Offered.Counted(name, typeof(A), 4, (call, i) =>
                function(call.Argument<A>(i), call.Argument<B>(i + 1), call.Argument<C>(i + 2), call.Argument<D>(i + 3))), callers);
        }

        /// <summary>Withdraws a function, and waits for its invocations.</summary>
        public void Unregister(string name, TimeSpan? timeout = null) {
            var error = new distag_error();
            Errors.Check(Native.distag_worker_unregister(Handle, Text.Give(name, "name of a function"),
                Times.Of(timeout, Native.DISTAG_FOREVER, "timeout"), &error), &error);
        }

        // ---- calls ----

        IntPtr Start(CallOptions options, string to, string function, object[] args) {
            options = options ?? CallOptions.None;
            var error = new distag_error();
            IntPtr future;
            using (var memory = new Memory())
            using (var builder = new Builder()) {
                IntPtr[] given = builder.Arguments(args);
                distag_call_options how = options.Struct(memory);
                Errors.Check(Native.distag_call_async(Handle, options.ContextHandle, Text.Give(to, "name of a worker"),
                    Text.Give(function, "name of a function"), given, (UIntPtr)(args == null ? 1 : args.Length), &how, &future, &error), &error);
            }
            return future;
        }

        object Called(CallOptions options, string to, string function, object[] args) {
            options = options ?? CallOptions.None;
            if (options.Token.CanBeCanceled) {
                options.Token.ThrowIfCancellationRequested();
                return Future.Wait(Start(options, to, function, args), options.Token);
            }
            var error = new distag_error();
            IntPtr result;
            using (var memory = new Memory())
            using (var builder = new Builder()) {
                IntPtr[] given = builder.Arguments(args);
                distag_call_options how = options.Struct(memory);
                Errors.Check(Native.distag_call(Handle, options.ContextHandle, Text.Give(to, "name of a worker"),
                    Text.Give(function, "name of a function"), given, (UIntPtr)(args == null ? 1 : args.Length), &how, &result, &error), &error);
            }
            return Builder.Take(result);
        }

        /// <summary>Calls a function of the worker named `to`, and waits for the answer. Arguments and answer are as Value says.</summary>
        public T Call<T>(string to, string function, params object[] args) {
            return Value.Answer<T>(Called(null, to, function, args));
        }

        /// <summary>The same with options, for which a Context or a CancellationToken will do.</summary>
        public T Call<T>(CallOptions options, string to, string function, params object[] args) {
            return Value.Answer<T>(Called(options, to, function, args));
        }

        /// <summary>The same as a task.</summary>
        public Task<T> CallAsync<T>(string to, string function, params object[] args) {
            return CallAsync<T>(CallOptions.None, to, function, args);
        }

        /// <summary>The same with options; its token cancels the call.</summary>
        public Task<T> CallAsync<T>(CallOptions options, string to, string function, params object[] args) {
            CancellationToken token = (options ?? CallOptions.None).Token;
            token.ThrowIfCancellationRequested();
            return Future.Start(Start(options, to, function, args), token, Value.Answer<T>);
        }

        /// <summary>Calls a function, but leaves its answer there; returns before it ran.</summary>
        public RRef Remote(CallOptions options, string to, string function, params object[] args) {
            options = options ?? CallOptions.None;
            var error = new distag_error();
            IntPtr made;
            using (var memory = new Memory())
            using (var builder = new Builder()) {
                IntPtr[] given = builder.Arguments(args);
                distag_call_options how = options.Struct(memory);
                Errors.Check(Native.distag_remote(Handle, options.ContextHandle, Text.Give(to, "name of a worker"),
                    Text.Give(function, "name of a function"), given, (UIntPtr)(args == null ? 1 : args.Length), &how, &made, &error), &error);
            }
            return new RRef(new RRefHandle(made));
        }

        /// <summary>The same without options.</summary>
        public RRef Remote(string to, string function, params object[] args) {
            return Remote(CallOptions.None, to, function, args);
        }

        /// <summary>Shares a value, or any object, of this worker, which becomes its owner.</summary>
        public RRef CreateRRef(object value) {
            var error = new distag_error();
            IntPtr made;
            using (var builder = new Builder())
                Errors.Check(Native.distag_rref_create(Handle, builder.Value(value, true), &made, &error), &error);
            return new RRef(new RRefHandle(made));
        }

        /// <summary>Each member gives a value; each gets all, in the order of ranks. Also a barrier.</summary>
        public object[] AllGather(object value, TimeSpan? timeout = null, CancellationToken token = default(CancellationToken)) {
            var error = new distag_error();
            IntPtr future;
            using (var builder = new Builder())
                Errors.Check(Native.distag_worker_all_gather_async(Handle, builder.Value(value, false), null, UIntPtr.Zero,
                    Times.Of(timeout, Native.DISTAG_FOREVER, "timeout"), &future, &error), &error);
            return (object[])Future.Wait(future, token);
        }

        // ---- frames ----

        /// <summary>Runs what is due with the host executor: at most maxItems (0: any number), and begins nothing after the limit.</summary>
        public long Poll(TimeSpan? limit = null, long maxItems = 0) {
            var error = new distag_error();
            UIntPtr done;
            Errors.Check(Native.distag_worker_poll(Handle, (UIntPtr)maxItems, Times.Of(limit, Native.DISTAG_FOREVER, "limit"), &done, &error), &error);
            return (long)done;
        }

        /// <summary>Waits until Poll has something to run.</summary>
        public void WaitForWork(TimeSpan? timeout = null) {
            var error = new distag_error();
            Errors.Check(Native.distag_worker_wait(Handle, Times.Of(timeout, Native.DISTAG_FOREVER, "timeout"), &error), &error);
        }

        // ---- looking ----

        /// <summary>The latest member of a name, in any state.</summary>
        public Member MemberByName(string name) {
            var error = new distag_error();
            var found = new distag_member { struct_size = (uint)sizeof(distag_member) };
            Errors.Check(Native.distag_worker_get_member_by_name(Handle, Text.Give(name, "name of a worker"), &found, &error), &error);
            return new Member(&found);
        }

        /// <summary>The counters as they are.</summary>
        public Stats GetStats() {
            var error = new distag_error();
            var found = new distag_stats { struct_size = (uint)sizeof(distag_stats) };
            Errors.Check(Native.distag_worker_get_stats(Handle, &found, &error), &error);
            return new Stats(found);
        }

        /// <summary>Members, calls, contexts and references in JSON.</summary>
        public string GetReport() {
            return Text.Copied((byte[] buffer, UIntPtr capacity, out UIntPtr size) => {
                var error = new distag_error();
                UIntPtr found;
                Errors.Check(Native.distag_worker_copy_report(Handle, buffer, capacity, &found, &error), &error);
                size = found;
            });
        }

        /// <summary>The counters in the text format of Prometheus.</summary>
        public string GetMetrics() {
            return Text.Copied((byte[] buffer, UIntPtr capacity, out UIntPtr size) => {
                var error = new distag_error();
                UIntPtr found;
                Errors.Check(Native.distag_worker_copy_metrics(Handle, buffer, capacity, &found, &error), &error);
                size = found;
            });
        }
    }
}
