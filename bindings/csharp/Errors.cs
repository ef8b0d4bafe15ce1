using System;
using System.Collections.Generic;
using System.Threading;
using Distag.Raw;

namespace Distag {
    /// <summary>How to go on after a failure.</summary>
    public enum StatusClass {
        /// <summary>Mend the call.</summary>
        Usage = 1,
        /// <summary>Use another way.</summary>
        Unsupported = 2,
        /// <summary>Wait and retry.</summary>
        Retry = 3,
        /// <summary>Reconnect.</summary>
        Reconnect = 4,
        /// <summary>Time is up, or it was cancelled.</summary>
        GaveUp = 5,
        /// <summary>Read the message.</summary>
        Other = 6,
        /// <summary>A function failed.</summary>
        User = 100,
    }

    /// <summary>A failure of distag, or of a function, at its caller. Thrown by a function, it travels with its code. What a custom op
    /// or a hook has thrown on the thread that called distag is its InnerException.</summary>
    public class DistagException : Exception {
        /// <summary>The status: 1000 and above are of functions.</summary>
        public Status Code { get; private set; }
        /// <summary>The worker on which it arose; -1: this process.</summary>
        public int OriginRank { get; private set; }
        /// <summary>Whether the function ran or may have run; else it did not.</summary>
        public bool MayHaveRun { get; private set; }

        /// <summary>For a function to throw: code (1000 or above) and message arrive at the caller.</summary>
        public DistagException(Status code, string message, Exception inner = null) : base(message, inner) {
            Code = code;
            OriginRank = -1;
            MayHaveRun = true;
        }

        internal DistagException(Status code, string message, int originRank, bool mayHaveRun, Exception inner) : base(message, inner) {
            Code = code;
            OriginRank = originRank;
            MayHaveRun = mayHaveRun;
        }

        /// <summary>How to go on.</summary>
        public StatusClass Class {
            get { return Code.Class(); }
        }

        /// <summary>The name of the code, and what an exception says else.</summary>
        public override string ToString() {
            return Code.Name() + ": " + base.ToString();
        }
    }

    /// <summary>The call is to be mended: an argument, a state, a name.</summary>
    public sealed class UsageException : DistagException {
        internal UsageException(Status code, string message, int rank = -1, bool ran = false, Exception inner = null)
            : base(code, message, rank, ran, inner) {}
    }

    /// <summary>Known, but not to this build, dtype or device.</summary>
    public sealed class UnsupportedException : DistagException {
        internal UnsupportedException(Status code, string message, int rank, bool ran, Exception inner) : base(code, message, rank, ran, inner) {}
    }

    /// <summary>Something is used up: wait and retry.</summary>
    public sealed class RetryException : DistagException {
        internal RetryException(Status code, string message, int rank, bool ran, Exception inner) : base(code, message, rank, ran, inner) {}
    }

    /// <summary>A worker that is needed is lost, or another one now.</summary>
    public sealed class ReconnectException : DistagException {
        internal ReconnectException(Status code, string message, int rank, bool ran, Exception inner) : base(code, message, rank, ran, inner) {}
    }

    /// <summary>Time is up, or it was cancelled elsewhere than by its token.</summary>
    public sealed class GaveUpException : DistagException {
        internal GaveUpException(Status code, string message, int rank, bool ran, Exception inner) : base(code, message, rank, ran, inner) {}
    }

    static unsafe class Errors {
        internal static void Check(int status, distag_error* error) {
            if (status != 0) throw Read(error);
        }

        internal static DistagException Read(distag_error* error) {
            var code = (Status)error->code;
            string message = Text.Read((IntPtr)error->message);
            int rank = error->origin_rank;
            // Zeroed memory, to which a function that failed wrote nothing of the rank, counts as this process.
            bool ran = (error->flags & Native.DISTAG_ERROR_MAY_HAVE_RUN) != 0;
            Exception inner = TakeCause(message);
            switch (code.Class()) {
                case StatusClass.Usage: return new UsageException(code, message, rank, ran, inner);
                case StatusClass.Unsupported: return new UnsupportedException(code, message, rank, ran, inner);
                case StatusClass.Retry: return new RetryException(code, message, rank, ran, inner);
                case StatusClass.Reconnect: return new ReconnectException(code, message, rank, ran, inner);
                case StatusClass.GaveUp: return new GaveUpException(code, message, rank, ran, inner);
            }
            return new DistagException(code, message, rank, ran, inner);
        }

        // The latest exception of a callback on this thread since C was called, and the text that C got for it.
        [ThreadStatic] static Exception cause;
        [ThreadStatic] static string causeText;

        /// <summary>What a failure of C was made from; C has put before its text where that was.</summary>
        static Exception TakeCause(string message) {
            Exception found = cause;
            cause = null;
            if (found == null || causeText == "") return null;
            string end = causeText.Substring(Math.Max(0, causeText.Length - 100)); // C leaves out the middle of a long text
            return message.Contains(end) ? found : null;
        }

        internal static UsageException Usage(string message) {
            return new UsageException(Status.InvalidArgument, message);
        }

        /// <summary>The failure of an operation, or its cancellation where a token asked for that.</summary>
        internal static Exception Ended(DistagException failure, CancellationToken token) {
            if (failure.Code == Status.Cancelled && token.IsCancellationRequested)
                return new OperationCanceledException(failure.Message, failure, token);
            return failure;
        }

        /// <summary>Fills the error of a callback with what user code threw, and gives its status: never 0.</summary>
        internal static int Set(distag_error* error, Exception thrown) {
            try {
                var own = thrown as DistagException;
                bool isOwn = own != null && own.Code != Status.Ok;
                causeText = isOwn ? own.Message : thrown.GetType().FullName + ": " + SaidBy(thrown);
                cause = thrown;
                int status = Native.distag_error_set(error, isOwn ? (int)own.Code : (int)Status.User, Text.Said(causeText));
                if (!isOwn) return status;
                if (own.OriginRank >= 0) error->origin_rank = own.OriginRank;
                if (own.MayHaveRun) error->flags |= Native.DISTAG_ERROR_MAY_HAVE_RUN;
                return status;
            } catch (Exception) { // no memory for the text: the status alone tells that it failed
                return (int)Status.User;
            }
        }

        /// <summary>The whole text of an exception, also where it cannot tell that.</summary>
        internal static string Told(Exception thrown) {
            try {
                return thrown.ToString();
            } catch (Exception) {
                return thrown.GetType().FullName + ": " + SaidBy(thrown);
            }
        }

        static string SaidBy(Exception thrown) {
            try {
                return thrown.Message;
            } catch (Exception failure) {
                return "its property Message throws " + failure.GetType().FullName;
            }
        }

        /// <summary>While it lasts, this thread runs a function or a handler of a worker.</summary>
        internal sealed class Within : IDisposable {
            [ThreadStatic] static Within innermost;
            readonly Worker worker;
            readonly Within outer;

            internal Within(Worker worker) {
                this.worker = worker;
                outer = innermost;
                innermost = this;
            }

            internal static bool Runs(Worker worker) {
                Within each = innermost;
                while (each != null && each.worker != worker) each = each.outer;
                return each != null;
            }

            public void Dispose() {
                innermost = outer;
            }
        }

        [ThreadStatic] static Guest guest;
        static readonly List<Guest> guests = new List<Guest>();

        /// <summary>A thread of distag, as far as it runs user code.</summary>
        sealed class Guest {
            readonly Thread thread = Thread.CurrentThread;
            internal int Depth;

            internal static Guest New() {
                guest = new Guest();
                lock (guests) {
                    guests.RemoveAll(each => !each.thread.IsAlive);
                    guests.Add(guest);
                }
                return guest;
            }

            internal void Abort() {
                try {
                    lock (this)
                        if (Depth > 0 && thread != Thread.CurrentThread) thread.Abort();
                } catch (PlatformNotSupportedException) {} // elsewhere than in Mono, where none waits for the thread
            }
        }

        /// <summary>At the end of the process: what still runs ends with a ThreadAbortException.</summary>
        internal static void AbortFunctions() {
            Guest[] all;
            lock (guests) all = guests.ToArray();
            foreach (Guest each in all) each.Abort();
        }

        /// <summary>Runs user code in a callback of C that takes no failure: it is reported.</summary>
        internal static void Report(Action run) {
            var ignored = new distag_error();
            Guard(&ignored, () => {
                try {
                    run();
                } catch (ThreadAbortException) {
                    throw;
                } catch (Exception failure) {
                    Library.Report(failure);
                }
                return 0;
            });
        }

        /// <summary>Runs user code in a callback of C, through which nothing may be thrown.</summary>
        internal static int Guard(distag_error* error, Func<int> run) {
            Guest own = guest ?? Guest.New();
            cause = null;
            try {
                try {
                    lock (own) own.Depth++;
                    return run();
                } finally {
                    lock (own) own.Depth--;
                }
            } catch (ThreadAbortException abort) {
                int status = Set(error, abort);
                Thread.ResetAbort(); // the thread is distag's
                return status;
            } catch (Exception thrown) {
                return Set(error, thrown);
            }
        }
    }
}
