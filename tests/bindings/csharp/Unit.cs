using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Reflection;
using System.Runtime.InteropServices;
using System.Threading;
using System.Threading.Tasks;
using Distag;
using static Support;

/// Bad input, code of users that fails, misuse. usage: unit.exe [WORD...]; with words, only the tests whose names have one.
static class Unit {
    static int Main(string[] arguments) {
        if (arguments.Length > 0 && arguments[0] == "as") return Ends.As(arguments[1]);
        int failed = 0, count = 0;
        foreach (Type type in new[] { typeof(Input), typeof(UserCode), typeof(Misuse), typeof(Lives), typeof(Features), typeof(Ends) })
            foreach (MethodInfo test in type.GetMethods(BindingFlags.Static | BindingFlags.Public | BindingFlags.DeclaredOnly)) {
                if (test.GetParameters().Length > 0) continue;
                if (arguments.Length > 0 && !arguments.Any(each => (type.Name + "." + test.Name).Contains(each))) continue;
                count++;
                var time = Stopwatch.StartNew();
                try {
                    test.Invoke(null, null);
                    Console.WriteLine("ok " + type.Name + "." + test.Name + " " + time.ElapsedMilliseconds + " ms");
                } catch (TargetInvocationException failure) {
                    failed++;
                    Console.WriteLine("not ok " + type.Name + "." + test.Name + ": " + failure.InnerException);
                }
            }
        Console.WriteLine(count + " tests, " + failed + " failed");
        return failed == 0 ? 0 : 1;
    }
}

/// What a user may give.
static class Input {
    public static void LayoutsAreThoseOfC() {
        int count = 0;
        Layouts.Each((name, mono, c) => {
            count++;
            Check(mono == c, name + " is " + mono + ", in C " + c);
        });
        Check(count > 100, "only " + count);
    }

    public static void ArgumentsAreRefusedByTheirNames() {
        Same(Throws<ArgumentNullException>(() => Tensor.Zeros(new[] { 2L }).Add(null)).ParamName, "b");
        Same(Throws<ArgumentNullException>(() => Tensor.From((float[])null)).ParamName, "data");
        Throws<ArgumentNullException>(() => Tensor.Concat(new Tensor[] { null }));
        Throws<ArgumentNullException>(() => Tensor.Concat(null));
        Throws<ArgumentNullException>(() => Same((Tensor)null + Tensor.Scalar(1.0), null));
        Throws<UsageException>(() => Tensor.Concat(new Tensor[0]));
        Throws<UsageException>(() => Tensor.From(new[] { 1f, 2f }, 3));
        Throws<UsageException>(() => Tensor.From(new[] { 1f }, -1));
        Check(Throws<UsageException>(() => Tensor.From(new[] { 'a' })).Message.Contains("System.Char"), "the type");
        Throws<UsageException>(() => Tensor.Borrow(new[] { true }));
        Check(Throws<UsageException>(() => Tensor.Scalar(1.0).ToArray<float>()).Message.Contains("cast"), "the cure");
        Throws<UsageException>(() => Tensor.Scalar(1.0).Write(new[] { 1.0, 2.0 }));
        Throws<UsageException>(() => Tensor.Zeros(new[] { 2L, 2L }).GetItem());
        Check(Throws<UsageException>(() => Tensor.Zeros(new long[] { 1, 1, 4, 4 }).MaxPool2d(new long[] { 2 })).Message.Contains("kernel"), "the name");
        Check(Throws<UsageException>(() => Tensor.Apply("no_such_op", new Tensor[0])).Code == Status.NotFound, "an op");
        Throws<UsageException>(() => Tensor.Apply("relu", new[] { Tensor.Scalar(1.0) }, new Dictionary<string, object> { { "alpha", 1 } }));
        Throws<UsageException>(() => new Worker(new WorkerOptions { Lease = TimeSpan.FromSeconds(-3) }));
        using (var hasty = new Worker(new WorkerOptions { Name = "hasty", WorldSize = 1, Rendezvous = "inproc://hasty", CallTimeout = TimeSpan.Zero })) {
            hasty.Start(Long);
            Throws<GaveUpException>(() => hasty.Call<Tensor>("hasty", "neg", Leaf(new object[] { 1L })));
        }
        Check(Throws<UsageException>(() => new Worker(new WorkerOptions { Threads = -1 })).Message.Contains("-1"), "the number");
        Throws<UsageException>(() => new Worker(new WorkerOptions { WorldSize = 1, Rendezvous = "inproc://x", SocketEngine = (SocketEngine)3 }));
        Throws<UsageException>(() => new Worker(new WorkerOptions { Name = "no spaces here", Rank = 0, WorldSize = 1, Rendezvous = "inproc://x" }));
        Check(Throws<UsageException>(() => new Optimizer(null, "sgdd", new object[] { Leaf(new object[] { 1L }) })).Code == Status.NotFound, "a kind");
        Throws<UsageException>(() => new Optimizer(null, "sgd", new object[] { "text" }));
        NothingGoesWrongAfterwards();
    }

    static void NothingGoesWrongAfterwards() {
        Same(Tensor.Arange(0, 3).ToArray<float>(), new[] { 0f, 1f, 2f });
    }

    sealed class Strange : System.Collections.ICollection {
        public int Count { get { return 1; } }
        public bool IsSynchronized { get { return false; } }
        public object SyncRoot { get { return this; } }
        public void CopyTo(Array array, int index) {}
        public System.Collections.IEnumerator GetEnumerator() { throw new InvalidOperationException("no items today"); }
    }

    public static void ValuesAreRefusedByTheirPlace() {
        Group((a, b) => {
            Action<string, object> refused = (path, value) => {
                var failure = Throws<UsageException>(() => a.Call<object>("b", "echo", 1, value));
                Check(failure.Message.StartsWith(path), failure.Message);
            };
            refused("args[1]: ", ulong.MaxValue);
            refused("args[1]: ", 'c');
            refused("args[1][2]: ", new object[] { 1, 2, new object() });
            refused("args[1].a.b[0]: ", new Dictionary<string, object> { { "a", new Dictionary<string, object> { { "b", new[] { DateTime.UtcNow } } } } });
            refused("args[1].a: ", new Dictionary<string, object> { { "a", "x\0y" } });
            refused("args[1].a: a key with a NUL or half", new Dictionary<string, object> { { "a", new Dictionary<string, int> { { "x\uD800", 1 } } } });
            refused("args[1][0]: 18446744073709551615 is above", new[] { ulong.MaxValue });
            refused("args[1].m: an array of 2 dims is no value", new Dictionary<string, object> { { "m", new[,] { { 1, 2 }, { 3, 4 } } } });
            refused("args[1]: an array of 2 dims is no value", new double[2, 2]);
            Same(a.Call<object>("b", "echo", (object)new ulong[] { 1 }), new object[] { 1L });
            Same(a.Call<object>("b", "echo", (object)new sbyte[] { -1 }), new object[] { -1L });
            Same(a.Call<object>("b", "echo", (object)new byte[] { 255 }), new byte[] { 255 });
            Check(Throws<ObjectDisposedException>(() => {
                Tensor gone = Tensor.Scalar(1.0);
                gone.Dispose();
                a.Call<object>("b", "echo", 1, new[] { gone });
            }).Message.Contains("args[1][0]"), "the place of a disposed tensor");
            Throws<InvalidOperationException>(() => a.Call<object>("b", "echo", new Strange()));
            Check(Throws<UsageException>(() => a.Call<long[]>("b", "echo", (object)new object[] { 1, "two" })).Message.StartsWith("answer[1]: "), "the way back");
            var layers = new Dictionary<string, object> { { "layers", new object[] { 1e300 } } };
            Same(Throws<UsageException>(() => a.Call<Dictionary<string, float[]>>("b", "echo", layers)).Message,
                "answer.layers[0]: 1E+300 does not fit into System.Single");
            Same(a.Call<float>("b", "echo", double.NegativeInfinity), float.NegativeInfinity);
            Throws<UsageException>(() => a.Call<long>("b", "echo", (object)null));
            Same(a.Call<long?>("b", "echo", (object)null), null);
            Same(a.Call<object>("b", "echo", null), null);
            Same(a.Call<List<float>>("b", "echo", new[] { 1.5, 2.5 }), new[] { 1.5f, 2.5f });
            Same(a.Call<Dictionary<string, int>>("b", "echo", new Dictionary<string, int> { { "ä", 1 } }), new Dictionary<string, int> { { "ä", 1 } });
            foreach (object each in new object[] { (sbyte)-1, (byte)1, (short)-2, (ushort)2, -3, 3u, -4L, 4ul })
                Same(a.Call<long>("b", "echo", each), Convert.ToInt64(each));
        });
    }

    // For the runtime a byte[] is an sbyte[] too, an int[] a uint[], and either one an array of an enum.
    public static void ArraysOfOtherNumbersAreRefused() {
        var bytes = new byte[] { 1, 200 };
        Group(worker => worker.Register<sbyte[], object>("take", x => x.Length), (a, b) => {
            Action<string, Action> refused = (path, call) => {
                string message = Throws<UsageException>(call).Message;
                Check(message.Contains(path + "a System.Byte[], where a System."), message);
            };
            refused("answer: ", () => a.Call<sbyte[]>("b", "echo", bytes));
            refused("answer: ", () => a.Call<IList<sbyte>>("b", "echo", bytes));
            refused("answer[1]: ", () => a.Call<sbyte[][]>("b", "echo", (object)new object[] { new sbyte[0], bytes }));
            refused("answer.x: ", () => a.Call<Dictionary<string, sbyte[]>>("b", "echo", new Dictionary<string, object> { { "x", bytes } }));
            refused("take: args[0]: ", () => a.Call<object>("b", "take", bytes));
            Same(a.Call<byte[]>("b", "echo", bytes), bytes);
            Same(a.Call<IList<byte>>("b", "echo", bytes).ToArray(), bytes);
            Same(a.Call<sbyte[]>("b", "echo", (object)new sbyte[] { -1, 2 }), new sbyte[] { -1, 2 });
        });
        foreach (Action each in new Action[] {
            () => Value.As<uint[]>(new[] { -1 }), () => Value.As<int[]>(new[] { uint.MaxValue }), () => Value.As<ulong[]>(new[] { -1L }),
            () => Value.As<short[]>(new[] { ushort.MaxValue }), () => Value.As<DayOfWeek[]>(new[] { 9 }), () => Value.As<int[]>(new[] { DayOfWeek.Friday }),
            () => Value.As<sbyte[][]>(new[] { bytes }), () => Value.As<IEnumerable<sbyte[]>>(new[] { bytes }) })
            Throws<UsageException>(each);
        Throws<UsageException>(() => Tensor.Borrow((long[])(object)new[] { ulong.MaxValue }));
        var nested = new[] { new[] { 1 } };
        Check(ReferenceEquals(Value.As<object>(bytes), bytes) && ReferenceEquals(Value.As<Array>(bytes), bytes), "as they are");
        Check(ReferenceEquals(Value.As<int[][]>(nested), nested) && ReferenceEquals(Value.As<object[]>(nested), nested), "nested ones");
        Check(Value.As<object[]>(new[] { "x" })[0].Equals("x"), "texts");
    }

    public static void StatusesPassThrough() {
        Same(((Status)1042).Name(), "USER");
        Same(((Status)1042).Class(), StatusClass.User);
        Same(((Status)99).Name(), "UNKNOWN");
        Same(((Status)99).Class(), StatusClass.Other);
        foreach (Status each in Enum.GetValues(typeof(Status))) Check(each.Name() != "UNKNOWN", each.ToString());
        string text = string.Concat(Enumerable.Repeat("ü", 400));
        Action<Worker> offer = worker => worker.Register<string, object>("fail", code => { throw new DistagException((Status)int.Parse(code), text); });
        Group(offer, (a, b) => {
            var failure = Throws<DistagException>(() => a.Call<object>("b", "fail", "1042"));
            Same((int)failure.Code, 1042);
            Check(failure.Message.Length > 200 && failure.Message.EndsWith("ü"), "cut in a character: " + failure.Message);
            foreach (string status in new[] { "99", "0", "-7", "50" }) Throws<DistagException>(() => a.Call<object>("b", "fail", status));
        });
    }
}

/// Code of users that fails.
static class UserCode {
    sealed class Unspeakable : Exception {
        public override string Message { get { throw new InvalidOperationException("not even a message"); } }
    }

    static long Fail(Exception failure) {
        throw failure;
    }

    public static void ExceptionsBecomeAStatus() {
        Action<Worker> offer = worker => {
            worker.Register("unspeakable", () => Fail(new Unspeakable()));
            worker.Register("nothing", () => Fail(null));
            worker.Register("memory", () => Fail(new OutOfMemoryException()));
            worker.Register("nul", () => Fail(new Exception("a\0b\uD800")));
            worker.Register("aggregate", () => Task.Run(() => Fail(new InvalidOperationException("inner"))).Result);
            worker.Register("cancelled", (Call call) => { var source = new TaskCompletionSource<int>(); source.SetCanceled(); return source.Task; });
            worker.Register("itself", () => { var list = new object[1]; list[0] = list; return list; });
            worker.Register("stranger", () => new[] { new object() });
            worker.Register("thread", () => Task.Run(() => 7).Result);
            worker.Register("slowly", async () => { await Task.Delay(1); return 8; });
            worker.Register("task", (Func<Task>)(async () => await Task.Delay(1)));
            worker.Register("three", (int x, string y, double z) => x + y + z);
        };
        Group(offer, (a, b) => {
            Action<string, string> fails = (name, part) => {
                var failure = Throws<DistagException>(() => a.Call<object>("b", name));
                Check(failure.Message.Contains(part) && failure.MayHaveRun && failure.OriginRank == 1, failure.ToString());
                Same(a.Call<long>("b", "double", 4), 8L);
            };
            fails("unspeakable", "Unspeakable: its property Message throws System.InvalidOperationException");
            fails("nothing", "System.NullReferenceException");
            fails("memory", "System.OutOfMemoryException: ");
            fails("nul", "System.Exception: a\uFFFDb\uFFFD");
            fails("aggregate", "System.AggregateException");
            fails("cancelled", "TaskCanceledException");
            fails("itself", "contains itself");
            fails("stranger", "answer[0]: System.Object is no value");
            fails("three", "three: 0 arguments came, it takes 3");
            Same(a.Call<object>("b", "thread"), 7L);
            Same(a.Call<object>("b", "slowly"), 8L);
            Same(a.Call<object>("b", "task"), null);
            Same(a.Call<string>("b", "three", 1, "two", 3), "1two3");
            Check(Throws<UsageException>(() => a.Call<object>("b", "three", 1, 2, 3)).Message.Contains("three: args[1]: "), "the place");
            Check(Throws<UsageException>(() => a.Call<object>("b", "three", 1L << 40, "", 3)).Message.Contains("does not fit"), "the range");
        });
    }

    public static void WhatATokenRunsMayThrow() {
        var began = new ManualResetEventSlim();
        Func<Call, object> wait = call => {
            call.Token.Register(() => { throw new Exception("on a timer"); });
            began.Set();
            call.Token.WaitHandle.WaitOne(Long);
            return null;
        };
        var reported = new ManualResetEventSlim();
        Action<Exception> note = failure => { if (((AggregateException)failure).InnerException.Message == "on a timer") reported.Set(); };
        Library.CallbackFailed += note;
        try {
            Group(worker => worker.Register("wait", wait), (a, b) => {
                var source = new CancellationTokenSource();
                Task<object> call = a.CallAsync<object>(source.Token, "b", "wait");
                began.Wait(Long);
                source.Cancel();
                Throws<OperationCanceledException>(() => call.Wait());
                Check(reported.Wait(Long), "it is not reported");
            });
        } finally {
            Library.CallbackFailed -= note;
        }
    }

    public static void ATokenOfATaskEndsWithItsAnswer() {
        Call kept = null;
        Func<Call, Task<int>> nap = async call => {
            kept = call;
            await Task.Delay(20, call.Token);
            return 1;
        };
        Func<Call, object> defer = call => {
            Same(call.Token.IsCancellationRequested, false);
            kept = call;
            call.Defer();
            return null;
        };
        Group(worker => { worker.Register("nap", nap); worker.Register("defer", defer); }, (a, b) => {
            Same(Task.WhenAll(Enumerable.Range(0, 20).Select(each => a.CallAsync<int>("b", "nap"))).Result.Sum(), 20);
            Same(kept.IsCancelled, true); // its caller has the answer
            var time = Stopwatch.StartNew();
            Task<object> call = a.CallAsync<object>("b", "defer");
            while (kept.Function == "nap" && time.Elapsed < Long) Thread.Yield();
            Same(kept.IsCancelled, false);
            kept.Defer().Finish(2);
            Same(call.Result, 2L);
            new ManualResetEvent(false).WaitOne(50); // ten looks
            Same(kept.IsCancelled, true);
            Same(kept.Token.IsCancellationRequested, false);
        });
    }

    public static void ATokenMayBeginAfterTheFunction() {
        var cancelled = new ManualResetEventSlim();
        var began = new ManualResetEventSlim();
        Func<Call, Task> wait = async call => {
            await Task.Delay(20); // the function has returned
            call.Token.Register(cancelled.Set);
            began.Set();
            await Task.Delay(Timeout.Infinite, call.Token);
        };
        Group(worker => worker.Register("wait", wait), (a, b) => {
            var source = new CancellationTokenSource();
            Task<object> call = a.CallAsync<object>(source.Token, "b", "wait");
            Check(began.Wait(Long), "it did not begin");
            for (int i = 0; i < 3; i++) OnItsOwnStack(() => { GC.Collect(); GC.WaitForPendingFinalizers(); });
            Check(!call.IsCompleted, "what waits for its token was collected");
            source.Cancel();
            Throws<OperationCanceledException>(() => call.Wait());
            Check(cancelled.Wait(Long), "the token did not end");
        });
    }

    public static void AForgottenReplyIsCollectedThoughItsTokenWasUsed() {
        Func<Call, object> forget = call => {
            Same(call.Token.IsCancellationRequested, false);
            call.Defer();
            return null;
        };
        Group(worker => worker.Register("forget", forget), (a, b) => {
            var source = new CancellationTokenSource();
            Task<object>[] calls = Enumerable.Range(0, 20).Select(each => a.CallAsync<object>(source.Token, "b", "forget")).ToArray();
            var time = Stopwatch.StartNew();
            while (calls.Count(each => each.IsFaulted) < 10 && time.Elapsed < Long) { // stacks may keep some
                OnItsOwnStack(() => { GC.Collect(); GC.WaitForPendingFinalizers(); });
                Same(a.Call<long>("b", "double", 1), 2L);
            }
            Check(calls.Count(each => each.IsFaulted) >= 10, calls.Count(each => each.IsFaulted) + " of 20 failed");
            Task<object> failed = calls.First(each => each.IsFaulted);
            Same(Throws<DistagException>(() => failed.Wait()).Code, Status.Remote);
            source.Cancel(); // of the rest
        });
    }

    public static void HandlersThatThrowAreHarmless() {
        var failures = new List<Exception>();
        Action<Exception> note = failure => { lock (failures) failures.Add(failure); };
        Library.CallbackFailed += note;
        try {
            ThrowInHandlers();
            lock (failures)
                foreach (string each in new[] { "log", "worker1", "release" }) Check(failures.Any(failure => failure.Message == each), each + " is not reported");
        } finally {
            Library.CallbackFailed -= note;
        }
        Ends.Run("throw-in-handlers", 0, "distag: a callback failed: System.Exception: release");
        Ends.Run("throw-in-reports", 0, "distag: a callback failed: UserCode+Unspeakable: its property Message throws System.Inv");
    }

    internal static int ThrowInReports() {
        Library.CallbackFailed += failure => { throw failure; };
        Tensor.Borrow(Marshal.AllocHGlobal(8), 8, DType.Int64, () => { throw new Unspeakable(); }).Dispose();
        return 0;
    }

    public static void DisposeWithinAFunctionIsRefused() {
        Worker worker = null;
        string said = null;
        Func<string> dispose = () => Throws<UsageException>(() => worker.Dispose()).Message;
        worker = new Worker(new WorkerOptions { WorldSize = 1, Rendezvous = "inproc://within", OnMember = member => { if (said == null) said = dispose(); } });
        worker.Register("dispose", dispose);
        worker.Register("later", async () => { await Task.Delay(1); worker.Dispose(); return 1; }); // on a thread of .NET
        worker.Start(Long);
        string answer = worker.Call<string>("worker0", "dispose");
        Check(answer.Contains("use ShutdownAsync there"), answer);
        var time = Stopwatch.StartNew();
        while (said == null && time.Elapsed < Long) Thread.Yield();
        Same(said, answer);
        Throws<DistagException>(() => worker.Call<int>("worker0", "later"));
        Throws<ObjectDisposedException>(() => { for (;;) worker.GetStats(); });
    }

    // Whatever it gives.
    public static void AFunctionOfACallTakesAllArguments() {
        Action<Worker> offer = worker => {
            worker.Register("number", (Call call) => call.Args.Length);
            worker.Register("text", (Call call) => call.Function);
            worker.Register("object", (Call call) => (object)call.Args.Length);
            worker.Register("task", (Call call) => Task.FromResult(call.Args.Length));
            worker.Register("one", (Call call, int x) => x);
        };
        Group(offer, (a, b) => {
            foreach (string each in new[] { "number", "object", "task" }) Same(a.Call<int>("b", each, 7, 8), 2);
            Same(a.Call<string>("b", "text", 7), "text");
            Throws<UsageException>(() => a.Call<int>("b", "one", 7, 8));
        });
    }

    static void ThrowInHandlers() {
        int logged = 0, seen = 0;
        Worker[] workers = Enumerable.Range(0, 2).Select(rank => new Worker(new WorkerOptions { Rank = rank, WorldSize = 2, Rendezvous = "inproc://throwing", LogLevel = LogLevel.Debug,
            OnLog = (level, text) => { Interlocked.Increment(ref logged); throw new Exception("log"); },
            OnMember = member => { Interlocked.Increment(ref seen); throw new Exception(member.Name); } })).ToArray();
        var late = new ManualResetEventSlim();
        workers[1].Register("late", () => late.Wait(Long));
        Start(workers);
        var hasty = new CallOptions { Timeout = TimeSpan.FromMilliseconds(20) };
        Throws<GaveUpException>(() => workers[0].Call<bool>(hasty, "worker1", "late")); // which is logged
        late.Set();
        Same(workers[0].MemberByName("worker1").Rank, 1);
        Same(workers[1].WorldSize, 2);
        foreach (Worker each in workers) each.Dispose();
        Check(seen >= 2 && logged > 0, seen + " members, " + logged + " logs");
        var done = new ManualResetEventSlim();
        IntPtr memory = Marshal.AllocHGlobal(8);
        Marshal.WriteInt64(memory, 5);
        Tensor borrowed = Tensor.Borrow(memory, 8, DType.Int64, () => { Marshal.FreeHGlobal(memory); done.Set(); throw new Exception("release"); });
        Same(borrowed.GetItem(), 5.0);
        borrowed.Dispose();
        Check(done.Wait(Long), "it was not released");
        int released = 0;
        Throws<UsageException>(() => Tensor.Borrow(IntPtr.Zero, -1, DType.Int64, () => released++, 7));
        Same(released, 1);
    }

    internal static int ThrowInHandlersOfAProcess() {
        ThrowInHandlers();
        return 0;
    }

    sealed class Wrong : CustomOp {
        public Tensor[] Made;
        public Func<Tensor[], Tensor[]> Back;

        public override Tensor[] Forward(Tensor[] inputs) { return Made ?? new[] { inputs[0] * 2 }; }
        public override Tensor[] Backward(Tensor[] gradients) { return Back(gradients); }
    }

    /// Lists of the wrong length, where C reads as many as something else says: tests/bindings/lists/lists.txt.
    public static void ListsAreAsLongAsTheirCounts() {
        Tensor image = Tensor.Zeros(new long[] { 1, 1, 4, 4 }), weight = Tensor.Ones(new long[] { 1, 1, 2, 2 });
        var two = new long[] { 2, 2 };
        foreach (long[] given in new[] { new long[0], new long[] { 1 }, new long[] { 1, 1, 1 } }) {
            Names("stride", () => image.Conv2d(weight, null, given));
            Names("padding", () => image.Conv2d(weight, null, null, given));
            Names("kernel", () => image.MaxPool2d(given));
            Names("padding", () => image.MaxPool2d(two, two, given));
            if (given.Length > 0) Names("stride", () => image.MaxPool2d(two, given));
        }
        Tensor x = Leaf(new object[] { 1.0 }), seed = Tensor.From(new[] { 5f });
        using (var context = new Context())
            foreach (int count in new[] { 0, 1, 3 }) {
                var seeds = new Tensor[count];
                for (int i = 0; i < count; i++) seeds[i] = seed;
                Names("seeds for 2 roots", () => context.Backward(new BackwardOptions { Seeds = seeds }, x * 1, x * 2));
            }
        using (var worker = new Worker(new WorkerOptions { WorldSize = 1, Rank = 0, Rendezvous = "inproc://lists" }))
            foreach (string[] axes in new[] { null, new string[0], new[] { "x" }, new[] { "x", "y", "z" } })
                Names("one name and one size for each axis", () => new Mesh(worker, axes, new long[] { 1, 1 }));
        foreach (int count in new[] { 0, 2 }) {
            Func<Tensor[], Tensor[]> several = Several(count);
            string wanted = count + " tensors, 1 are wanted";
            Names(wanted, () => Tensor.ApplyCustom("Wrong", new Wrong { Made = several(null) }, new[] { x }));
            Tensor y = Tensor.ApplyCustom("Wrong", new Wrong { Back = several }, new[] { x })[0].Sum();
            using (var context = new Context()) Names(wanted, () => context.Backward(y));
        }
    }

    /// A closure of its own: one that has a result of the op too would keep both for ever.
    static Func<Tensor[], Tensor[]> Several(int count) { return given => new Tensor[count]; }

    static void Names(string part, Action call) {
        string said = Throws<DistagException>(call).Message;
        Check(said.Contains(part), said);
    }

    public static void CustomOpsThatFailNameThemselves() {
        Tensor x = Leaf(new object[] { 1L });
        var gone = Tensor.Scalar(1f);
        gone.Dispose();
        foreach (Tensor[] made in new[] { new Tensor[0], new Tensor[] { null }, new[] { gone } })
            Throws<DistagException>(() => Tensor.ApplyCustom("Wrong", new Wrong { Made = made }, new[] { x }));
        foreach (Func<Tensor[], Tensor[]> back in new Func<Tensor[], Tensor[]>[] { null, given => null, given => new[] { gone }, given => { given[0].Dispose(); throw new Exception("no"); } }) {
            Tensor loss = Tensor.ApplyCustom("Wrong", new Wrong { Back = back }, new[] { x })[0].Sum();
            using (var context = new Context()) Check(Throws<DistagException>(() => context.Backward(loss)).Message.Contains("Wrong"), "its name");
        }
        Tensor y = Tensor.ApplyCustom("Wrong", new Wrong { Back = given => new Tensor[] { null } }, new[] { x })[0].Sum(); // zeros
        using (var context = new Context()) context.Backward(y);
        x.AddHook(gradient => { throw new Exception("hooked"); });
        using (var context = new Context()) {
            Exception failure = Throws<DistagException>(() => context.Backward((x * 2).Sum()));
            Check(failure.Message.Contains("hooked") && failure.InnerException.Message == "hooked", failure.ToString());
        }
        var thrown = new DistagException((Status)1042, "not today");
        Func<DistagException> apply = () => Throws<DistagException>(() => Tensor.ApplyCustom("Wrong", new Thrower { Thrown = thrown }, new[] { x }));
        Check(ReferenceEquals(apply().InnerException, thrown), "another cause");
        Same(Throws<UsageException>(() => Tensor.Apply("no_such_op", new Tensor[0])).InnerException, null);
    }

    sealed class Thrower : CustomOp {
        public Exception Thrown;

        public override Tensor[] Forward(Tensor[] inputs) { throw Thrown; }
        public override Tensor[] Backward(Tensor[] gradients) { return null; }
    }

    sealed class Square : CustomOp {
        public Tensor Input, Gradient;

        public override Tensor[] Forward(Tensor[] inputs) {
            Input = inputs[0];
            return new[] { Input * Input };
        }

        public override Tensor[] Backward(Tensor[] gradients) {
            Gradient = gradients[0];
            return new[] { Gradient * Input * 2 };
        }
    }

    public static void CustomOpsMayKeepWhatTheyGet() {
        Tensor x = Leaf(new object[] { 3L, 4L }), seen = null;
        var op = new Square();
        ulong hook = x.AddHook(gradient => { seen = gradient; return null; });
        using (var context = new Context()) {
            context.Backward((Tensor.ApplyCustom("Square", op, new[] { x })[0] * 5).Sum());
            Same(context.Gradient(x).ToArray<float>(), new[] { 30f, 40f });
        }
        x.RemoveHook(hook);
        Same(op.Input.ToArray<float>(), new[] { 3f, 4f });
        Same(op.Gradient.ToArray<float>(), new[] { 5f, 5f });
        Same(seen.ToArray<float>(), new[] { 30f, 40f });
    }

    sealed class Kept {
        public static int Freed;
        public object Big = new byte[1000];
        ~Kept() { Interlocked.Increment(ref Freed); }
    }

    static void RegisterTwice() {
        Group((a, b) => {
            var kept = new Kept();
            a.Register("name", () => kept.Big == null ? 1 : 2);
            Same(Throws<UsageException>(() => a.Register("name", () => kept.Big)).Code, Status.InvalidState);
            Same(a.Call<long>("a", "name"), 2L);
            a.Unregister("name");
            Same(Throws<UsageException>(() => a.Unregister("name")).Code, Status.NotFound);
            Throws<UnsupportedException>(() => a.Register("name", () => kept.Big, "b")); // callers need a key for each worker
            a.Register("name", () => kept.Big == null ? 3 : 4);
            Throws<ArgumentNullException>(() => a.Register("other", (Func<Call, object>)null));
            Throws<UsageException>(() => a.Register("distag.own", () => 1));
        });
    }

    public static void ClosuresAreDroppedOnce() {
        Kept.Freed = 0;
        OnItsOwnStack(RegisterTwice);
        NothingIsLeft();
        var time = Stopwatch.StartNew();
        while (Kept.Freed == 0 && time.Elapsed < Long) OnItsOwnStack(() => { GC.Collect(); GC.WaitForPendingFinalizers(); });
        Same(Kept.Freed, 1);
    }
}

/// What nobody should do.
static class Misuse {
    // With DISTAG_VALIDATE=1 each is counted. A method of its own: Mono looks for a function before the one that calls it runs.
    [System.Runtime.CompilerServices.MethodImpl(System.Runtime.CompilerServices.MethodImplOptions.NoInlining)]
    static ulong MisuseCount() {
        return Distag.Raw.Native.distag_get_misuse_count();
    }

    public static void DisposeWhileOthersUse() {
        for (int round = 0; round < 2000; round++) {
            Tensor x = Tensor.From(new[] { 1f, 2f });
            Task user = Task.Run(() => {
                try {
                    for (int i = 0; i < 5; i++) using (Tensor y = x + x) Same(y.Count, 2L);
                } catch (ObjectDisposedException) {}
            });
            x.Dispose();
            x.Dispose();
            user.Wait();
        }
        Same(MisuseCount(), 0UL);
        for (int round = 0; round < 20; round++) {
            Worker[] workers = Create(null, "a", "b");
            Start(workers);
            Task[] callers = Enumerable.Range(0, 4).Select(each => Task.Run(() => {
                try {
                    for (;;) workers[0].Call<long>("b", "double", 1);
                } catch (DistagException) {
                } catch (ObjectDisposedException) {}
            })).ToArray();
            Thread.Yield();
            foreach (Worker each in workers) each.Dispose();
            Check(Task.WaitAll(callers, Long), "a caller waits for ever");
        }
    }

    public static void WhatIsKeptBeyondItsCall() {
        Call kept = null;
        Func<Call, object> keep = call => {
            kept = call;
            Check(call.TimeLeft > TimeSpan.Zero && !call.IsCancelled && call.Context == null && call.Function == "keep", "within");
            return null;
        };
        Reply reply = null;
        Func<Call, object> forget = call => { reply = call.Defer(); Check(call.Defer() == reply, "another reply"); return null; };
        Func<Call, object> both = call => { call.Defer(); throw new Exception("after all"); };
        Group(worker => { worker.Register("keep", keep); worker.Register("forget", forget); worker.Register("both", both); }, (a, b) => {
            a.Call<object>("b", "keep", new[] { 1f, 2f }.Select(each => (double)each).ToArray());
            Same(kept.Caller, "a");
            Same(kept.IsCancelled, true);
            Same(kept.TimeLeft, TimeSpan.Zero);
            Same(kept.Args[0], new object[] { 1.0, 2.0 });
            Same(Throws<UsageException>(() => kept.Defer()).Code, Status.InvalidState);
            Check(!kept.Token.IsCancellationRequested, "nothing looks any more");
            Task<object> call2 = a.CallAsync<object>("b", "forget");
            var time = Stopwatch.StartNew();
            while (reply == null && time.Elapsed < Long) Thread.Yield();
            reply.Finish(5);
            Throws<ObjectDisposedException>(() => reply.Finish(6));
            Same(call2.Result, 5L);
            reply = null;
            Task<object> call3 = a.CallAsync<object>("b", "forget");
            while (reply == null && time.Elapsed < Long) Thread.Yield();
            Throws<UsageException>(() => reply.Finish(new[] { new object() })); // the caller is told as well
            Check(Throws<UsageException>(() => call3.Wait()).Message.Contains("System.Object"), "the caller");
            reply = null;
            Task<object> call4 = a.CallAsync<object>("b", "forget");
            while (reply == null && time.Elapsed < Long) Thread.Yield();
            reply.Dispose();
            Same(Throws<DistagException>(() => call4.Wait()).Code, Status.Remote);
            Check(Throws<DistagException>(() => a.Call<object>("b", "both")).Message.Contains("after all"), "its own failure");
        });
    }

    public static void ClosedThingsSaySo() {
        var context = new Context();
        context.Dispose();
        Tensor x = Leaf(new object[] { 1L });
        Throws<ObjectDisposedException>(() => context.Backward(x.Sum()));
        Throws<ObjectDisposedException>(() => context.GetGradients());
        using (var open = new Context()) {
            Throws<ArgumentNullException>(() => open.Backward((BackwardOptions)null, x));
            Throws<ArgumentNullException>(() => open.BackwardAsync(null, x));
            var roots = new BackwardOptions { RemoteRoots = new RRef[] { null } };
            Same(Throws<ArgumentNullException>(() => open.Backward(roots)).ParamName, "RemoteRoots[0]");
        }
        Group((a, b) => {
            using (var open = new Context(a)) {
                var roots = new BackwardOptions { RemoteRoots = new[] { a.Remote("b", "double", 1), a.Remote("b", "double", 2) } };
                roots.RemoteRoots[1].Dispose();
                Same(Throws<ObjectDisposedException>(() => open.Backward(roots)).ObjectName, "RemoteRoots[1]");
            }
        });
        bool released = false;
        Check(Throws<UsageException>(() => Tensor.Borrow(new IntPtr(8), -1, DType.Float64, () => released = true, 1)).Message.Contains("the size is -1"), "the size");
        Check(released, "it was not released");
        var optimizer = new Optimizer(null, "sgd", new object[] { x });
        Throws<ObjectDisposedException>(() => optimizer.Step(context));
        Throws<ArgumentNullException>(() => optimizer.Step(null));
        optimizer.Dispose();
        Throws<ObjectDisposedException>(() => optimizer.Set("lr", 1));
        View<float> view = x.View<float>();
        Throws<IndexOutOfRangeException>(() => Same(view[1], null));
        Throws<IndexOutOfRangeException>(() => Same(view[-1], null));
        view.Dispose();
        view.Dispose();
        Throws<ObjectDisposedException>(() => Same(view[0], null));
        x.Dispose();
        Same(x.ToString(), "Tensor (disposed)");
        Same(Throws<ObjectDisposedException>(() => x.Relu()).ObjectName, "Tensor");
        Same(Throws<ObjectDisposedException>(() => Same(x.Shape, null)).ObjectName, "Tensor");
        Same(Throws<ObjectDisposedException>(() => Tensor.Concat(new[] { Tensor.Scalar(1.0), x })).ObjectName, "xs[1]");
        Throws<ObjectDisposedException>(() => x.GetHashCode());
    }

    static WeakReference Serving(string name) {
        var worker = new Worker(new WorkerOptions { Name = "server", Rank = 0, WorldSize = 2, Rendezvous = "inproc://" + name });
        Offer(worker);
        worker.StartAsync(Long);
        return new WeakReference(worker);
    }

    public static void AWorkerIsNotCollectedWhileItServes() {
        WeakReference server = null;
        OnItsOwnStack(() => server = Serving("collected"));
        using (var client = new Worker(new WorkerOptions { Name = "client", Rank = 1, WorldSize = 2, Rendezvous = "inproc://collected" })) {
            client.Start(Long);
            for (int i = 0; i < 3; i++) {
                OnItsOwnStack(() => { GC.Collect(); GC.WaitForPendingFinalizers(); });
                Same(client.Call<long>("server", "double", 2), 4L);
            }
            Task<Report> down = client.ShutdownAsync(Long);
            ((Worker)server.Target).Dispose();
            down.Wait();
        }
    }
}
