using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;
using Distag.Raw;

namespace Distag {
    /// <summary>How a call goes. A Context or a CancellationToken alone will do: worker.Call(context, "b", "square", x).</summary>
    public sealed class CallOptions {
        /// <summary>Records the call, for a backward pass.</summary>
        public Context Context { get; set; }
        /// <summary>Null: that of the worker; Timeout.InfiniteTimeSpan: none.</summary>
        public TimeSpan? Timeout { get; set; }
        /// <summary>Cancels the call, at the callee too.</summary>
        public CancellationToken Token { get; set; }
        /// <summary>Shows in errors and reports.</summary>
        public string Label { get; set; }

        /// <summary>Options with a context.</summary>
        public static implicit operator CallOptions(Context context) {
            return new CallOptions { Context = context };
        }

        /// <summary>Options with a token.</summary>
        public static implicit operator CallOptions(CancellationToken token) {
            return new CallOptions { Token = token };
        }

        internal static readonly CallOptions None = new CallOptions();

        internal ContextHandle ContextHandle {
            get {
                if (Context == null) return ContextHandle.Null;
                Context.Handle.MustBeOpen("Context");
                return Context.Handle;
            }
        }

        internal unsafe distag_call_options Struct(Memory memory) {
            return new distag_call_options { struct_size = (uint)sizeof(distag_call_options),
                timeout_ns = Times.InOptions(Timeout, "Timeout"), label = memory.Copy(Label, "Label") };
        }
    }

    /// <summary>One incoming call, as its function sees it.</summary>
    public sealed unsafe class Call {
        readonly object gate = new object();
        IntPtr invocation; // until the function returns
        Reply reply;
        CancellationTokenSource source;
        Watch watch;

        /// <summary>The worker that was called.</summary>
        public Worker Worker { get; private set; }
        /// <summary>The name of the worker that calls.</summary>
        public string Caller { get; private set; }
        /// <summary>The name of the function.</summary>
        public string Function { get; private set; }
        /// <summary>The arguments as they came.</summary>
        public object[] Args { get; private set; }
        /// <summary>In which the call is recorded; null if it is not. For calls in turn, and gradients.</summary>
        public Context Context { get; private set; }

        Call(Worker worker, IntPtr invocation) {
            this.invocation = invocation;
            Worker = worker;
            Caller = Text.Read(Native.distag_invocation_get_caller(invocation));
            Function = Text.Read(Native.distag_invocation_get_function(invocation));
            Args = new object[(int)Native.distag_invocation_get_arg_count(invocation)];
            for (int i = 0; i < Args.Length; i++) Args[i] = Builder.Read(Native.distag_invocation_get_arg(invocation, (UIntPtr)i));
            IntPtr context = Native.distag_invocation_get_context(invocation);
            if (context != IntPtr.Zero) Context = new Context(ContextHandle.Retain(context), true);
        }

        /// <summary>Whether no caller waits any more, also because the call is answered.</summary>
        public bool IsCancelled {
            get {
                lock (gate) {
                    if (IsOver) return true;
                    if (reply == null) return Native.distag_invocation_is_cancelled(invocation) != 0;
                    try {
                        return reply.IsCancelled;
                    } catch (ObjectDisposedException) { // answered meanwhile
                        return true;
                    }
                }
            }
        }

        bool IsOver {
            get { return reply != null ? reply.IsOver : invocation == IntPtr.Zero; }
        }

        /// <summary>The time until the deadline of the call; null: none.</summary>
        public TimeSpan? TimeLeft {
            get {
                lock (gate) {
                    if (invocation == IntPtr.Zero) return TimeSpan.Zero;
                    long left = Native.distag_invocation_get_time_left(invocation);
                    if (left == Native.DISTAG_FOREVER) return null;
                    return TimeSpan.FromTicks(left / 100);
                }
            }
        }

        /// <summary>Ends when the caller cancels or is late, until the call is answered; after that it stays as it is. C does not
        /// report a cancellation, so the first use begins to look each 5 ms.</summary>
        public CancellationToken Token {
            get {
                lock (gate) {
                    if (source == null) source = new CancellationTokenSource();
                    if (watch == null && !IsOver) watch = new Watch(this, source);
                    return source.Token;
                }
            }
        }

        /// <summary>Looks each 5 ms whether a call is cancelled. It holds the source, because a task may wait for nothing but its
        /// token, but not the call: the collector must find a reply that is forgotten.</summary>
        sealed class Watch {
            readonly WeakReference<Call> watched;
            readonly CancellationTokenSource source;
            readonly Timer timer;

            internal Watch(Call call, CancellationTokenSource source) {
                watched = new WeakReference<Call>(call);
                this.source = source;
                timer = new Timer(Look, null, Timeout.Infinite, Timeout.Infinite); // the first look needs the field
                timer.Change(0, 5);
            }

            internal void Stop() {
                timer.Dispose();
            }

            void Look(object state) {
                Call call;
                bool cancelled = false;
                if (watched.TryGetTarget(out call))
                    lock (call.gate) {
                        cancelled = call.IsCancelled && !call.IsOver;
                        if (!cancelled && !call.IsOver) return;
                    }
                Stop();
                if (!cancelled) return;
                try {
                    source.Cancel();
                } catch (AggregateException failure) { // of what the user has registered: thrown on a timer it would end the process
                    Library.Report(failure);
                }
            }
        }

        /// <summary>Keeps the call open after the function has returned, until Finish of the reply; what the function gives is not
        /// used.</summary>
        public Reply Defer() {
            lock (gate) {
                if (reply != null) return reply;
                if (invocation == IntPtr.Zero) throw new UsageException(Status.InvalidState, "the call is over: defer it within its function");
                var error = new distag_error();
                IntPtr made;
                Errors.Check(Native.distag_invocation_defer(invocation, &made, &error), &error);
                return reply = new Reply(this, made);
            }
        }

        void Answer(object result) {
            var task = result as Task;
            if (task != null) {
                Reply later = Defer();
                task.ContinueWith(done => later.FinishWith(done), TaskScheduler.Default);
                return;
            }
            lock (gate) {
                if (reply != null) return;
                var error = new distag_error();
                using (var builder = new Builder())
                    Errors.Check(Native.distag_invocation_return(invocation, builder.Answer(result), &error), &error);
            }
        }

        void End(bool failed) {
            lock (gate) {
                invocation = IntPtr.Zero;
                if (failed && reply != null) reply.Dispose();
                if (watch != null && IsOver) watch.Stop();
            }
        }

        [MonoPInvokeCallback(typeof(distag_function))]
        internal static int Invoke(IntPtr data, IntPtr invocation, distag_error* error) {
            Call call = null;
            int status = Errors.Guard(error, () => {
                var own = Callbacks.Target<Offered>(data);
                call = new Call(own.Worker, invocation);
                using (new Errors.Within(own.Worker)) call.Answer(own.Run(call));
                return 0;
            });
            if (call != null) call.End(status != 0);
            return status;
        }

        internal T Argument<T>(int index) {
            if (typeof(T) == typeof(Call)) return (T)(object)this;
            return Value.Is<T>(Args[index]) ? (T)Args[index] : (T)Value.As(Args[index], typeof(T), Function + ": args[" + index + "]");
        }
    }

    /// <summary>The answer that a function still owes. The collector fails the call of one that is forgotten sooner or
    /// later; the deadline of the call ends it anyway.</summary>
    public sealed unsafe partial class Reply : IDisposable {
        internal readonly ReplyHandle Handle;
        internal readonly Call Call; // its token ends as long as either is in use
        int answers; // that are on their way, or went out

        internal Reply(Call call, IntPtr owned) {
            Call = call;
            Handle = new ReplyHandle(owned);
        }

        // C says of a call that has its answer that it is cancelled, before the handle is closed.
        internal bool IsOver {
            get { return Volatile.Read(ref answers) > 0 || Handle.IsClosed; }
        }

        /// <summary>Answers with a value.</summary>
        public void Finish(object value) {
            try {
                using (var builder = new Builder()) Finish(builder.Answer(value), null);
            } catch (UsageException wrong) {
                if (wrong.Code == Status.InvalidArgument) Fail(wrong); // the caller waits for this one too
                throw;
            }
        }

        /// <summary>Answers with a failure.</summary>
        public void Fail(Exception failure) {
            if (failure == null) throw new ArgumentNullException("failure");
            var said = new distag_error { struct_size = (uint)sizeof(distag_error), origin_rank = -1 };
            if (Errors.Set(&said, failure) != said.code) said.code = (int)Status.User;
            Finish(IntPtr.Zero, &said);
        }

        void Finish(IntPtr value, distag_error* failure) {
            var error = new distag_error();
            bool answered = false;
            Interlocked.Increment(ref answers);
            try {
                Errors.Check(Native.distag_reply_finish(Handle, value, failure, &error), &error);
                answered = true;
            } finally {
                if (!answered) Interlocked.Decrement(ref answers);
            }
            Dispose();
        }

        internal void FinishWith(Task done) {
            try {
                if (done.IsCanceled) Fail(new TaskCanceledException(done));
                else if (done.IsFaulted) Fail(done.Exception.InnerException);
                else Finish(ResultOf(done));
            } catch (Exception) { // the worker is shut down, or the caller was told
                Dispose();
            }
        }

        static object ResultOf(Task task) {
            var result = task.GetType().GetProperty("Result");
            if (result == null || result.PropertyType.Name == "VoidTaskResult") return null;
            return result.GetValue(task, null);
        }

        /// <summary>Gives the reply back; a call that is not answered fails.</summary>
        public void Dispose() {
            Handle.Dispose();
        }
    }

    /// <summary>A function of a worker.</summary>
    sealed class Offered {
        internal Worker Worker;
        internal Func<Call, object> Run;

        internal static Func<Call, object> Counted(string name, Type first, int count, Func<Call, int, object> run) {
            int skipped = first == typeof(Call) ? 1 : 0;
            return call => {
                if (call.Args.Length != count - skipped)
                    throw Errors.Usage(name + ": " + call.Args.Length + " arguments came, it takes " + (count - skipped));
                return run(call, -skipped);
            };
        }
    }
}
