using System;
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
        /// threads of distag.</summary>
        internal static Task<T> Start<T>(IntPtr owned, CancellationToken token, Func<object, T> convert) {
            var completion = new Completion<T>(new FutureHandle(owned), token, convert);
            completion.Begin();
            return completion.Task;
        }
    }

    abstract unsafe class Completion {
        readonly FutureHandle future;
        protected readonly CancellationToken Token;
        CancellationTokenRegistration registration;

        protected Completion(FutureHandle future, CancellationToken token) {
            this.future = future;
            Token = token;
        }

        internal void Begin() {
            var error = new distag_error();
            registration = Token.Register(Future.Cancel, future);
            using (future.Hold()) {
                int status = Native.distag_future_on_done(future, Callbacks.Done, Callbacks.Keep(this), Callbacks.Free, &error);
                if (status == 0) return;
            }
            registration.Dispose();
            future.Dispose();
            throw Errors.Read(&error);
        }

        protected abstract void Complete(object value);
        protected abstract void Fail(Exception failure);

        [MonoPInvokeCallback(typeof(distag_future_callback))]
        internal static void OnDone(IntPtr data, IntPtr lent) {
            var ignored = new distag_error();
            Errors.Guard(&ignored, () => {
                Callbacks.Target<Completion>(data).Done();
                return 0;
            });
        }

        void Done() {
            try {
                var error = new distag_error();
                IntPtr value;
                if (Native.distag_future_get_value(future, &value, &error) != 0) Fail(Errors.Ended(Errors.Read(&error), Token));
                else Complete(Builder.Read(value));
            } catch (Exception failure) {
                Fail(failure);
            } finally {
                registration.Dispose();
                future.Dispose();
            }
        }
    }

    sealed class Completion<T> : Completion {
        readonly TaskCompletionSource<T> source = new TaskCompletionSource<T>(TaskCreationOptions.RunContinuationsAsynchronously);
        readonly Func<object, T> convert;

        internal Completion(FutureHandle future, CancellationToken token, Func<object, T> convert) : base(future, token) {
            this.convert = convert;
        }

        internal Task<T> Task {
            get { return source.Task; }
        }

        protected override void Complete(object value) {
            source.TrySetResult(convert(value));
        }

        protected override void Fail(Exception failure) {
            if (failure is OperationCanceledException) source.TrySetCanceled(Token);
            else source.TrySetException(failure);
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
