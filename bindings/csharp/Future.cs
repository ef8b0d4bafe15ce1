using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using System.Threading;
using System.Threading.Tasks;
using Distag.Raw;

namespace Distag {
    /// <summary>Operations of C as tasks, and waits for them that a token ends.</summary>
    static unsafe class Future {
        internal static void Cancel(object future) {
            try {
                Native.distag_future_cancel((FutureHandle)future);
            } catch (ObjectDisposedException) {} // it is over
        }

        /// <summary>The real wait, on this thread, and then the value. The future goes.</summary>
        internal static object Wait(IntPtr owned, CancellationToken token) {
            var error = new distag_error();
            using (var future = new FutureHandle(owned)) {
                int status;
                using (token.Register(Cancel, future))
                    status = Native.distag_future_wait(future, Native.DISTAG_FOREVER, &error);
                if (status != 0) throw Errors.Ended(Errors.Read(&error), token);
                IntPtr value;
                Errors.Check(Native.distag_future_get_value(future, &value, &error), &error);
                return Builder.Read(value);
            }
        }

        /// <summary>A task that completes with what is made of the value. Its continuations run on the pool of .NET, never on
        /// threads of distag. A wait for it without a limit waits for the future, and so polls on the thread that polls.</summary>
        internal static Task<T> Start<T>(IntPtr owned, CancellationToken token, Func<object, T> convert) {
            var completion = new Completion<T>(new FutureHandle(owned), token, convert);
            completion.Begin();
            return completion.Task;
        }
    }

    /// <summary>What reads a future into a task, once it is complete: in the callback of C, or at the end of a wait.</summary>
    abstract unsafe class Completion {
        /// <summary>Runs the tasks. Task.Wait and Task.Result ask it first, on their thread.</summary>
        sealed class Waits : TaskScheduler {
            protected override void QueueTask(Task task) {}

            protected override bool TryExecuteTaskInline(Task task, bool queued) {
                return ((Completion)task.AsyncState).IsDoneByWaiting() && TryExecuteTask(task);
            }

            protected override IEnumerable<Task> GetScheduledTasks() {
                return new Task[0];
            }

            internal void Run(Task task) {
                TryExecuteTask(task);
            }
        }

        static readonly Waits waits = new Waits();
        readonly FutureHandle future;
        readonly CancellationToken token;
        CancellationTokenRegistration registration;

        protected Completion(FutureHandle future, CancellationToken token) {
            this.future = future;
            this.token = token;
        }

        protected abstract Task Pending { get; }

        internal void Begin() {
            var error = new distag_error();
            try {
                Pending.Start(waits);
            } catch (InvalidOperationException) { // the token has ended, and the task with it
                Future.Cancel(future);
                future.Dispose();
                return;
            }
            registration = token.Register(Future.Cancel, future);
            using (future.Hold()) {
                int status = Native.distag_future_on_done(future, Callbacks.Done, Callbacks.Keep(this), Callbacks.Free, &error);
                if (status == 0) return;
            }
            registration.Dispose();
            future.Dispose();
            throw Errors.Read(&error);
        }

        bool IsDoneByWaiting() {
            var error = new distag_error();
            try {
                Native.distag_future_wait(future, Native.DISTAG_FOREVER, &error);
                return Native.distag_future_poll(future) != 0;
            } catch (ObjectDisposedException) { // it was read meanwhile
                return false;
            }
        }

        [MonoPInvokeCallback(typeof(distag_future_callback))]
        internal static void OnDone(IntPtr data, IntPtr lent) {
            var ignored = new distag_error();
            Errors.Guard(&ignored, () => {
                var own = Callbacks.Target<Completion>(data);
                waits.Run(own.Pending);
                if (own.Pending.IsCompleted) own.Release(); // else another thread reads it
                return 0;
            });
        }

        protected object Read() {
            var error = new distag_error();
            IntPtr value;
            if (Native.distag_future_get_value(future, &value, &error) != 0) throw Errors.Ended(Errors.Read(&error), token);
            return Builder.Read(value);
        }

        protected virtual void Release() {
            registration.Dispose();
            future.Dispose();
        }
    }

    sealed class Completion<T> : Completion {
        readonly Task<T> task;
        Func<object, T> convert; // until it is done: who holds the task may do so for long

        internal Completion(FutureHandle future, CancellationToken token, Func<object, T> convert) : base(future, token) {
            this.convert = convert;
            task = new Task<T>(own => ((Completion<T>)own).Result(), this, token, TaskCreationOptions.RunContinuationsAsynchronously);
        }

        internal Task<T> Task {
            get { return task; }
        }

        protected override Task Pending {
            get { return task; }
        }

        T Result() {
            try {
                return convert(Read());
            } finally {
                Release();
            }
        }

        protected override void Release() {
            convert = null;
            base.Release();
        }
    }

    /// <summary>Times of .NET in nanoseconds.</summary>
    static class Times {
        /// <summary>Null is the default; Timeout.InfiniteTimeSpan for ever.</summary>
        internal static long Of(TimeSpan? time, long missing, string name) {
            if (time == null) return missing;
            if (time == Timeout.InfiniteTimeSpan || time.Value.Ticks > long.MaxValue / 100) return Native.DISTAG_FOREVER;
            if (time.Value < TimeSpan.Zero) throw Errors.Usage(name + ": " + time + " is negative: give Timeout.InfiniteTimeSpan to wait for ever");
            return time.Value.Ticks * 100;
        }

        /// <summary>The same where 0 would be the default: no time at all is the shortest.</summary>
        internal static long InOptions(TimeSpan? time, string name) {
            long found = Of(time, 0, name);
            return time != null && found == 0 ? 1 : found;
        }
    }
}
