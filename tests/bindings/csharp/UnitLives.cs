using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Reflection;
using System.Threading;
using System.Threading.Tasks;
using Distag;
using static Support;

/// Memory, the collector, many calls at once.
static class Lives {
    public static void ACollectionEach50Calls() {
        Group((a, b) => {
            Tensor x = Leaf(new object[] { 1L, 2L });
            for (int i = 0; i < 500; i++) {
                if (i % 50 == 0) GC.Collect();
                if (i % 5 != 0) {
                    Same(a.Call<long>("b", "double", i), 2L * i);
                    continue;
                }
                using (var context = new Context(a)) context.Backward(a.Call<Tensor>(context, "b", "square", x).Sum());
            }
        });
    }

    static long Resident() {
        string line = File.ReadAllLines("/proc/self/status").First(each => each.StartsWith("VmRSS"));
        return long.Parse(line.Split(new[] { ' ', '\t' }, StringSplitOptions.RemoveEmptyEntries)[1]) / 1024;
    }

    static void DropMany() {
        var data = new float[1 << 18];
        for (int i = 0; i < 2000; i++) {
            Tensor.From(data);
            Check(i % 100 != 0 || Resident() < 300, Resident() + " MiB after " + i);
        }
    }

    public static void DroppedTensorsAreCollected() {
        OnItsOwnStack(DropMany);
    }

    sealed class Square : CustomOp {
        Tensor input;

        public override Tensor[] Forward(Tensor[] inputs) {
            input = inputs[0];
            return new[] { input * input };
        }

        public override Tensor[] Backward(Tensor[] gradients) {
            return new[] { gradients[0] * input * 2 };
        }
    }

    static void ThousandPasses() {
        Tensor x = Tensor.Parameter(Tensor.Ones(new[] { 1L << 16 }));
        x.AddHook(gradient => gradient * 2);
        for (int i = 0; i < 1000; i++) {
            using (var context = new Context()) context.Backward(Tensor.ApplyCustom("Square", new Square(), new[] { x })[0].Sum());
            Check(i % 20 != 0 || Resident() < 500, Resident() + " MiB after " + i);
        }
    }

    public static void WhatCustomOpsGetIsCollected() {
        OnItsOwnStack(ThousandPasses);
        NothingIsLeft();
    }

    public static void AScopeReleasesWhatWasMadeInIt() {
        NothingIsLeft();
        long before = Library.HandleCount;
        Tensor kept, inner;
        using (var scope = new Scope()) {
            Tensor x = Tensor.From(new[] { 1f, 2f });
            using (var nested = new Scope()) inner = nested.Keep(x * 3);
            Same(inner.ToArray<float>(), new[] { 3f, 6f });
            kept = scope.Keep(x * x);
            x.Dispose();
        }
        Throws<ObjectDisposedException>(() => inner.ToArray<float>());
        Same(kept.ToArray<float>(), new[] { 1f, 4f });
        Same(Library.HandleCount, before + 1);
        kept.Dispose();
    }

    static void DropInClosedScopes() {
        var scope = new Scope();
        Tensor first = Tensor.From(new[] { 1f });
        OnItsOwnStack(scope.Dispose); // as after an await
        Throws<ObjectDisposedException>(() => first.ToArray<float>());
        for (int i = 0; i < 200; i++) Tensor.From(new[] { 1f });
        var outer = new Scope();
        var inner = new Scope();
        outer.Dispose();
        Tensor second = inner.Keep(Tensor.From(new[] { 3f })), third = Tensor.From(new[] { 4f });
        inner.Dispose();
        Same(second.ToArray<float>(), new[] { 3f });
        Throws<ObjectDisposedException>(() => third.ToArray<float>());
        for (int i = 0; i < 200; i++) Tensor.From(new[] { 1f });
        AreCollected(200); // here, where the scopes were
    }

    static void AreCollected(long most) {
        var time = Stopwatch.StartNew();
        while (Library.HandleCount > most && time.Elapsed < Long) OnItsOwnStack(() => { GC.Collect(); GC.WaitForPendingFinalizers(); });
        Check(Library.HandleCount <= most, Library.HandleReport());
    }

    public static void AClosedScopeTakesNothing() {
        NothingIsLeft();
        OnItsOwnStack(DropInClosedScopes);
        NothingIsLeft();
    }

    public static void AScopeEndsWhileItsThreadMakesTensors() {
        OnItsOwnStack(() => {
            for (int round = 0; round < 200; round++) {
                var scope = new Scope();
                var begun = new ManualResetEventSlim();
                Task end = Task.Run(() => { begun.Set(); scope.Dispose(); });
                begun.Wait();
                for (int i = 0; i < 50; i++) Tensor.From(new[] { 1f });
                end.Wait();
            }
        });
        NothingIsLeft();
    }

    public static void TenThousandCallsAtOnce() {
        Group((a, b) => {
            Task<long>[] calls = Enumerable.Range(0, 10000).Select(each => a.CallAsync<long>("b", "double", each)).ToArray();
            Task.WaitAll(calls);
            Same(calls.Sum(each => each.Result), 99990000L);
        });
    }

    public static void ACancellationEndsTheWait() {
        var release = new ManualResetEventSlim();
        Group(worker => worker.Register<object>("wait", () => { release.Wait(Long); return null; }), (a, b) => {
            var times = new List<long>();
            for (int i = 0; i < 9; i++) {
                var source = new CancellationTokenSource();
                Task<object> call = a.CallAsync<object>(source.Token, "b", "wait");
                var time = Stopwatch.StartNew();
                source.Cancel();
                Throws<OperationCanceledException>(() => call.Wait());
                times.Add(time.ElapsedMilliseconds);
            }
            times.Sort();
            Console.WriteLine("figure: bindings_csharp.end_after_cancellation_ms " + times[4] + " ms");
            var before = new CancellationTokenSource();
            before.Cancel();
            Throws<OperationCanceledException>(() => a.Call<object>(before.Token, "b", "wait"));
            Throws<OperationCanceledException>(() => a.CallAsync<object>(before.Token, "b", "wait").Wait());
            release.Set();
        });
    }

    public static void AHeldTaskIsNoLeak() {
        Task<long> held = null;
        OnItsOwnStack(() => Group((a, b) => { held = a.CallAsync<long>("b", "double", 1); held.Wait(); }));
        NothingIsLeft();
        Same(held.Result, 2L);
    }
}

/// What goes beyond the cases of conformance.
static class Features {
    public static void ThreadsOfHostExecutorAreThoseThatPoll() {
        int runner = 0;
        Worker[] workers = Enumerable.Range(0, 2).Select(rank => new Worker(new WorkerOptions { Rank = rank, WorldSize = 2, Rendezvous = "inproc://frames",
            Executor = rank == 0 ? Executor.Host : Executor.Pool })).ToArray();
        workers[0].Register("where", () => runner = Thread.CurrentThread.ManagedThreadId);
        Task[] starts = workers.Select(each => each.StartAsync(Long)).ToArray();
        var time = Stopwatch.StartNew();
        Action<Task> frames = task => {
            while (!task.IsCompleted && time.Elapsed < Long) workers[0].Poll(TimeSpan.FromMilliseconds(1));
            task.Wait();
        };
        frames(Task.WhenAll(starts));
        frames(workers[1].CallAsync<int>("worker0", "where"));
        Same(runner, Thread.CurrentThread.ManagedThreadId);
        Task call = workers[1].CallAsync<int>("worker0", "where");
        workers[0].WaitForWork(Long);
        frames(call);
        Throws<GaveUpException>(() => workers[0].WaitForWork(TimeSpan.FromMilliseconds(1)));
        Throws<UsageException>(() => workers[1].Poll());
        frames(Task.WhenAll(workers.Select(each => each.ShutdownAsync(Long))));
        foreach (Worker each in workers) each.Dispose();
    }

    // Another thread polled last: the shutdown runs what is open on its own.
    public static void AShutdownOfAHostExecutorPolls() {
        using (var worker = new Worker(new WorkerOptions { WorldSize = 1, Rendezvous = "inproc://polls", Executor = Executor.Host })) {
            worker.Register("double", (int x) => 2 * x);
            worker.Register("end", () => Throws<UsageException>(() => worker.Shutdown()).Code == Status.InvalidState);
            worker.Start(Long);
            var other = new Thread(() => worker.Poll());
            other.Start();
            other.Join();
            Task<int> call = worker.CallAsync<int>("worker0", "double", 4);
            Task<bool> within = worker.CallAsync<bool>("worker0", "end");
            Report report = worker.Shutdown(Long);
            Same(report.Clean, true);
            Same(call.Result, 8);
            Same(within.Result, true);
        }
    }

    // On a thread of its own: a wait that does not poll would hang.
    static void WaitForTasks() {
        using (var worker = new Worker(new WorkerOptions { WorldSize = 1, Rendezvous = "inproc://waits", Executor = Executor.Host })) {
            int runner = 0;
            worker.Register("where", () => runner = Thread.CurrentThread.ManagedThreadId);
            worker.Register<object>("fail", () => { throw new Exception("not today"); });
            worker.StartAsync(Long).Wait();
            worker.Poll();
            Same(worker.CallAsync<int>("worker0", "where").Result, Thread.CurrentThread.ManagedThreadId);
            Same(runner, Thread.CurrentThread.ManagedThreadId);
            Task.WaitAll(Enumerable.Range(0, 10).Select(each => worker.CallAsync<int>("worker0", "where")).ToArray());
            Check(Throws<DistagException>(() => worker.CallAsync<object>("worker0", "fail").Wait()).Message.Contains("not today"), "the failure");
            var source = new CancellationTokenSource();
            Task<int> call = worker.CallAsync<int>(source.Token, "worker0", "where");
            source.Cancel();
            Throws<OperationCanceledException>(() => call.Wait());
            Check(call.IsCanceled, call.Status.ToString());
            Throws<OperationCanceledException>(() => worker.StartAsync(Long, source.Token).Wait());
            Same(worker.ShutdownAsync(Long).Result.Clean, true);
        }
    }

    public static void AWaitForATaskPolls() {
        var waiter = Task.Factory.StartNew(WaitForTasks, TaskCreationOptions.LongRunning);
        Check(((IAsyncResult)waiter).AsyncWaitHandle.WaitOne(Long), "the wait hangs");
        waiter.Wait();
        NothingIsLeft();
    }

    public static void TensorsWithoutElementsHaveNoView() {
        OnMembers(worker => {
            using (var mesh = new Mesh(worker, new[] { "data" }, new[] { 2L })) {
                Tensor x = Tensor.Arange(0, 6);
                x.MarkSharding(mesh, "('data',)");
                var refused = Throws<UsageException>(() => x.View<float>());
                Same(refused.Code, Status.InvalidState);
                Check(refused.Message.Contains("the elements are not here"), refused.Message);
                Same(x.ToLocal().View<float>().Length, 3L);
            }
        });
    }

    static void OnMesh(Worker worker) {
        using (var mesh = new Mesh(worker, new[] { "data" }, new[] { 2L })) {
            Check(mesh.Visualize("('data', None)", new[] { 4L, 2L }).Contains("CPU 1"), "no picture");
            Tensor own = Tensor.From(new[] { 1f + worker.Rank, 2f });
            Same(mesh.Collective(CollectiveKind.AllReduce, own).ToArray<float>(), new[] { 3f, 4f });
            Tensor reduced = mesh.Collective(CollectiveKind.Reduce, own, new CollectiveOptions { Root = 1, Reduction = Reduction.Max });
            Same(reduced == null, worker.Rank == 0);
            Tensor weight = Tensor.Parameter(Tensor.From(new[] { 1f, 2f, 3f, 4f }, 2, 2));
            weight.MarkSharding(mesh, "('data', None)");
            Tensor x = mesh.FromLocal(Tensor.From(new[] { 1f, 1f }, 1, 2), "(None, None)");
            using (Context context = mesh.CreateJointContext()) {
                Tensor y = x.Linear(weight);
                Same(y.GatherWhole().ToArray<float>(), new[] { 3f, 7f });
                context.Backward(y.Redistribute("(None, None)").Sum());
                Same(context.Gradient(weight).GatherWhole().ToArray<float>(), new[] { 1f, 1f, 1f, 1f });
                Same(context.Gradient(weight).ToLocal().Shape, new[] { 1L, 2L });
            }
            Throws<ObjectDisposedException>(() => { mesh.Dispose(); mesh.CreateJointContext(); });
        }
    }

    static void OnMembers(Action<Worker> run) {
        Group((a, b) => {
            Exception failure = null;
            Thread[] members = new[] { a, b }.Select(worker => new Thread(() => {
                try {
                    run(worker);
                } catch (Exception thrown) {
                    failure = thrown;
                }
            })).ToArray();
            foreach (Thread each in members) each.Start();
            foreach (Thread each in members) each.Join();
            if (failure != null) throw new Exception(failure.ToString());
        });
    }

    public static void AMeshOfTwo() {
        OnMembers(OnMesh);
    }

    // Rows of a cut batch are counted unread, unless the target to ignore is given; what is refused ends the mesh.
    static void IgnoreTargets(string name, Func<Tensor, Tensor, long?, Tensor> loss) {
        var gathered = new Barrier(2);
        OnMembers(worker => {
            using (var mesh = new Mesh(worker, new[] { "data" }, new[] { 2L })) {
                Tensor logs = mesh.FromLocal(Tensor.From(new[] { 1.0, 2, 3, 4 }, 2, 2).LogSoftmax(), "('data', None)");
                Tensor targets = mesh.FromLocal(Tensor.From(new[] { -100L, 1 }), "('data',)");
                double found = loss(logs, targets, -100).GatherWhole().GetItem();
                Check(Math.Abs(found - Math.Log(1 + Math.Exp(-1))) < 1e-12, name + " is " + found);
                Check(gathered.SignalAndWait(Long), "the other member has failed");
                Exception refused = Throws<UsageException>(() => loss(logs, targets, null));
                Check(refused.Message.Contains(name + ": target -100"), refused.Message);
            }
        });
    }

    public static void TargetsToIgnore() {
        IgnoreTargets("cross_entropy", (logs, targets, ignored) => logs.CrossEntropy(targets, ignoreIndex: ignored));
        IgnoreTargets("nll_loss", (logs, targets, ignored) => logs.NllLoss(targets, ignoreIndex: ignored));
    }

    public static void KeysOfWorkers() {
        KeyValuePair<string, string>[] keys = Enumerable.Range(0, 3).Select(each => Library.CreateKeys()).ToArray();
        Check(keys[0].Key.Length == 40 && keys[0].Value.Length == 40, "a key");
        string folder = Path.Combine(Path.GetTempPath(), "distag-csharp-" + Process.GetCurrentProcess().Id);
        Directory.CreateDirectory(folder);
        try {
            Func<int, int, Worker> make = (rank, key) => new Worker(new WorkerOptions { Name = "k" + rank, Rank = rank, WorldSize = 2, Bind = "tcp://127.0.0.1:0",
                Rendezvous = "file://" + folder, SecretKey = keys[key].Value, PublicKey = keys[key].Key,
                Peers = new Dictionary<string, string> { { "k" + (1 - rank), keys[1 - rank].Key } } });
            Worker[] workers = { make(0, 0), make(1, 1) };
            foreach (Worker each in workers) Offer(each);
            Start(workers);
            Same(workers[0].Call<long>("k1", "double", 2), 4L);
            Task.WaitAll(workers.Select(each => each.ShutdownAsync(Long)).ToArray());
            foreach (Worker each in workers) each.Dispose();
            Throws<UsageException>(() => new Worker(new WorkerOptions { Name = "k0", Rank = 0, WorldSize = 1, Rendezvous = "inproc://k", SecretKey = "none" }));
        } finally {
            Directory.Delete(folder, true);
        }
    }

    public static void GradientsOfGradients() {
        Tensor x = Leaf(new object[] { 2L });
        using (var first = new Context())
        using (var second = new Context()) {
            first.Backward(new BackwardOptions { CreateGraph = true }, (x * x * x).Sum());
            Tensor slope = first.Gradient(x);
            Same(slope.GetItem(), 12.0);
            second.Backward(slope.Sum());
            Same(second.Gradient(x).GetItem(), 12.0);
        }
    }

    public static void OptimizersWithAWorker() {
        Group((a, b) => {
            Tensor x = Leaf(new object[] { 3L, 4L });
            RRef there = a.Remote("b", "echo", Tensor.From(new[] { 1f }).RequiresGradient(true));
            var settings = new Dictionary<string, double> { { "lr", 0.5 }, { "momentum", 0.9 } };
            using (var optimizer = new Optimizer(a, "sgd", new object[] { x }, settings))
            using (var context = new Context(a)) {
                context.Backward((x * x).Sum());
                Same(optimizer.Clip(context, 5), 10.0);
                optimizer.StepAsync(context).Wait();
                Near(x.ToArray<float>().Select(each => (double)each).ToArray(), new[] { 1.5, 2.0 }, 1e-6, 0);
                object state = optimizer.Save();
                optimizer.Load(state);
                Throws<DistagException>(() => optimizer.Load(new Dictionary<string, object>()));
                Same(Throws<UsageException>(() => optimizer.Set("learning", 1)).Code, Status.NotFound);
            }
            there.Dispose();
        });
    }

    public static void WhatALauncherTells() {
        foreach (string rank in new[] { "3", "3x", "" }) Ends.Run("launched", 0, "", "RANK", rank);
    }

    public static void TheEngineOfSockets() {
        string folder = Path.Combine(Path.GetTempPath(), "distag-engine-" + Process.GetCurrentProcess().Id);
        foreach (SocketEngine engine in new[] { SocketEngine.Zmq, SocketEngine.Zmtp }) {
            Directory.CreateDirectory(folder);
            using (var worker = new Worker(new WorkerOptions { WorldSize = 1, Rendezvous = "file://" + folder, SocketEngine = engine })) {
                worker.Start();
                Check(worker.GetReport().Contains("\"engine\": \"" + engine.ToString().ToLowerInvariant() + "\""), worker.GetReport());
                worker.Shutdown();
            }
            Directory.Delete(folder);
        }
    }

    public static void TracesAndTheirSpans() {
        string folder = Path.Combine(Path.GetTempPath(), "distag-trace-" + Process.GetCurrentProcess().Id);
        Directory.CreateDirectory(folder);
        try {
            Group((a, b) => {
                a.Trace("before").Dispose();
                a.StartTrace(folder, 1 << 20);
                IDisposable outer = a.Trace("epoch α");
                using (a.Trace("step")) a.Call<long>("b", "double", 4);
                outer.Dispose();
                outer.Dispose();
                Same(Throws<UsageException>(() => a.StartTrace(folder)).Code, Status.InvalidState);
                Throws<UsageException>(() => b.StartTrace(Path.Combine(folder, "none")));
                Throws<UsageException>(() => b.StartTrace("a\0b"));
                Throws<UsageException>(() => a.Trace(new string('x', 128)));
                Throws<UsageException>(() => a.Trace("a\0b"));
                IDisposable late = a.Trace("late");
                a.StopTrace();
                a.StopTrace();
                late.Dispose();
            });
            var events = ((object[])Json.Read(File.ReadAllText(Path.Combine(folder, "a.trace.json")))).Cast<Dictionary<string, object>>();
            string begun = string.Join(", ", events.Where(each => (string)each["ph"] == "b" && (string)each["name"] != "double").Select(each => each["name"]));
            Check(begun.StartsWith("step, epoch α"), begun);
        } finally {
            Directory.Delete(folder, true);
        }
    }

    public static void Pictures() {
        string text = Mesh.VisualizeSharding("{devices=[2,2]0,1,2,3}", new[] { 4L, 4L });
        Check(text.Contains("CPU 0") && text.Contains("CPU 3"), text);
        Check(Mesh.VisualizeSharding("{devices=[2,2]0,1,2,3}", null, new PictureOptions { Format = PictureFormat.Svg, Label = "H" }).Contains("<svg"), "SVG");
        Throws<UsageException>(() => Mesh.VisualizeSharding("nonsense"));
        Throws<UsageException>(() => Mesh.VisualizeSharding("a\0b"));
        Throws<UsageException>(() => Mesh.VisualizeSharding("{devices=[2,2]0,1,2,3}", null, new PictureOptions { Width = -1 }));
    }

    public static void OperatorsWithNumbers() {
        foreach (Tensor x in new[] { Tensor.From(new[] { 1f, 4f }), Tensor.From(new[] { 1.0, 4.0 }) }) {
            Same(Elements(x / 2), new[] { 0.5, 2.0 });
            Same(Elements(2 / x), new[] { 2.0, 0.5 });
            Same(Elements(2 - x), new[] { 1.0, -2.0 });
            Same(Elements(2 + x), new[] { 3.0, 6.0 });
            Same((x / 2).DType, x.DType);
        }
        Tensor whole = Tensor.From(new[] { 1L, 4L }), other = Tensor.From(new[] { 2L, 4L });
        Same(Elements(whole / 2), new[] { 0.5, 2.0 });
        Same((whole < other).ToArray<bool>(), new[] { true, false });
        Same((whole > other).ToArray<bool>(), new[] { false, false });
        Same((whole <= other).ToArray<bool>(), new[] { true, true });
        Same((whole >= other).ToArray<bool>(), new[] { false, true });
        Same(Throws<ArgumentNullException>(() => Same((Tensor)null / 2, null)).ParamName, "left");
        Tensor leaf = Leaf(new object[] { 2.0, 4.0 });
        using (var context = new Context()) {
            context.Backward((1 / leaf + leaf / 4 - 3).Sum());
            Same(context.Gradient(leaf).ToArray<float>(), new[] { 0f, 0.1875f });
        }
    }

    public static void EqualityIsThatOfTensors() {
        Tensor x = Tensor.Scalar(1.0), y = Tensor.Scalar(1.0);
        using (var context = new Context()) {
            x.RequiresGradient(true);
            context.Backward(x * 2.0);
            using (Gradients all = context.GetGradients()) {
                Tensor leaf = all.ToArray()[0].Key;
                Check(leaf.Equals(x) && !leaf.Equals(y) && !x.Equals(null) && leaf.GetHashCode() == x.GetHashCode(), "equality");
            }
        }
    }
}

/// Ends of processes, each in one of its own, and libraries that are not there.
static class Ends {
    public static void LeavingMainWithCallsOpen50Times() {
        Parallel(50, i => Run("leave-" + (i % 2 == 0 ? "pool" : "host"), 0));
    }

    public static void EndsOfAllKinds() {
        Parallel(4, i => {
            Run("exit", 7);
            Run("throw", 1, "System.Exception: uncaught in Main");
            Run("throw-in-thread", 1, "System.Exception: uncaught in a thread");
            Run("hold-everything", 0);
            if (i % 2 == 0) Run("never", 0);
        });
    }

    public static void SignalsEndIt() {
        foreach (string signal in new[] { "TERM", "INT" }) {
            using (Process process = Begin("serve")) {
                Same(process.StandardOutput.ReadLine(), "serving");
                using (Process kill = Process.Start("/bin/kill", "-" + signal + " " + process.Id)) kill.WaitForExit();
                Check(process.WaitForExit(10000), "it goes on after SIG" + signal);
                Check(process.ExitCode == 128 + (signal == "TERM" ? 15 : 2), "SIG" + signal + ": " + process.ExitCode);
                Same(process.StandardError.ReadToEnd(), "");
            }
        }
    }

    public static void AllModesOfSuspension() {
        var modes = new[] { "preemptive", "coop", "hybrid" };
        Parallel(modes.Length, i => Run("collect", 0, "", "MONO_THREADS_SUSPEND", modes[i]));
    }

    public static void LibrariesThatDoNotFit() {
        string older = Path.Combine(Path.GetDirectoryName(Assembly.GetExecutingAssembly().Location), "libolder.so");
        Run("load", 0, "DISTAG_LIBRARY cannot be loaded (/nowhere/libdistag.so: ", "DISTAG_LIBRARY", "/nowhere/libdistag.so");
        Run("load", 0, "libm.so.6 is no libdistag", "DISTAG_LIBRARY", "libm.so.6");
        Run("load", 0, older + " is version 0.2.9, and this assembly needs version " + Distag.Raw.Native.VERSION, "DISTAG_LIBRARY", older);
        Run("load", 0, older.Replace("older", "major") + " is version 1.0.0, and", "DISTAG_LIBRARY", older.Replace("older", "major"));
    }

    public static void NoRoomIsAnError() {
        Run("no-room", 0);
    }

    // ---- the processes ----

    static void Parallel(int count, Action<int> run) {
        int next = -1;
        var failures = new List<string>();
        Thread[] threads = Enumerable.Range(0, 3).Select(each => new Thread(() => {
            for (int i; (i = Interlocked.Increment(ref next)) < count;) {
                try {
                    run(i);
                } catch (Exception failure) {
                    lock (failures) failures.Add(failure.Message);
                }
            }
        })).ToArray();
        foreach (Thread each in threads) each.Start();
        foreach (Thread each in threads) each.Join();
        Check(failures.Count == 0, string.Join("\n", failures));
    }

    static Process Begin(string what, string variable = "DISTAG_CSHARP", string value = "1") {
        var start = new ProcessStartInfo("/usr/bin/mono", Assembly.GetExecutingAssembly().Location + " as " + what) { UseShellExecute = false,
            RedirectStandardOutput = true, RedirectStandardError = true };
        start.EnvironmentVariables[variable] = value;
        return Process.Start(start);
    }

    public static void Run(string what, int code, string part = "", string variable = "DISTAG_CSHARP", string value = "1") {
        using (Process process = Begin(what, variable, value)) {
            Task<string> errors = process.StandardError.ReadToEndAsync(), output = process.StandardOutput.ReadToEndAsync();
            if (!process.WaitForExit(60000)) { // against hanging, not a measure of speed
                process.Kill();
                throw new Exception(what + ": it did not end");
            }
            string said = output.Result + errors.Result;
            Check(process.ExitCode == code, what + " left with " + process.ExitCode + ": " + said);
            Check(part == "" ? said == "" : said.Contains(part), what + " said " + said);
        }
    }

    public static int As(string what) {
        switch (what) {
            case "leave-pool": Open(Executor.Pool); return 0;
            case "leave-host": Open(Executor.Host); return 0;
            case "exit": Open(Executor.Pool); Environment.Exit(7); return 0;
            case "throw": Open(Executor.Pool); throw new Exception("uncaught in Main");
            case "throw-in-thread": Open(Executor.Pool); new Thread(() => { throw new Exception("uncaught in a thread"); }).Start(); Thread.Sleep(Timeout.Infinite); return 0;
            case "never": Never(false); return 0;
            case "never-disposed": Never(true); return 0;
            case "hold-everything": Everything(); return 0;
            case "serve": Serve(); return 0;
            case "collect": Collect(); return 0;
            case "launched": Launched(); return 0;
            case "load": return Load();
            case "throw-in-handlers": return UserCode.ThrowInHandlersOfAProcess();
            case "throw-in-reports": return UserCode.ThrowInReports();
            case "no-room": return NoRoom();
        }
        return 99;
    }

    static Worker[] opened;

    /// Leaves 1,000 calls open; the case of conformance leaves 4,000.
    static void Open(Executor executor) {
        var answering = new ManualResetEventSlim();
        Func<long> wait = () => {
            answering.Set();
            Thread.Sleep(10);
            return 1;
        };
        opened = Enumerable.Range(0, 2).Select(rank => new Worker(new WorkerOptions { Rank = rank, WorldSize = 2, Rendezvous = "inproc://open", Executor = executor })).ToArray();
        opened[1].Register("wait", wait);
        Task starts = Task.WhenAll(opened.Select(each => each.StartAsync(Long)));
        Action poll = () => { if (executor == Executor.Host) foreach (Worker each in opened) each.Poll(TimeSpan.FromMilliseconds(1), 10); };
        while (!starts.IsCompleted) poll();
        starts.Wait();
        for (int i = 0; i < 1000; i++) opened[0].CallAsync<long>("worker1", "wait");
        while (!answering.IsSet) poll();
    }

    /// Leaves Main while a function never returns, managed or in C.
    static void Never(bool disposes) {
        var began = new CountdownEvent(2);
        Action<Worker> offer = worker => {
            worker.Register<object>("sleep", () => { began.Signal(); Thread.Sleep(Timeout.Infinite); return null; });
            worker.Register<object>("spin", () => { began.Signal(); for (long i = 0;; i++) Thread.VolatileWrite(ref spun, i); });
        };
        Worker[] workers = Create(offer, "a", "b");
        Start(workers);
        workers[0].CallAsync<object>("b", "sleep");
        workers[0].CallAsync<object>("b", "spin");
        began.Wait();
        if (disposes) workers[1].Dispose();
    }

    static long spun;

    public static object Held;

    static void Everything() {
        Worker[] workers = Create(null, "a", "b");
        Start(workers);
        Tensor x = Leaf(new object[] { 1L });
        x.AddHook(gradient => gradient * 2);
        var context = new Context(workers[0]);
        context.Backward(workers[0].Call<Tensor>(context, "b", "square", x).Sum());
        Held = new object[] { workers, x, context, x.View<float>(), workers[0].Remote("b", "echo", 1), new Optimizer(workers[0], "adam", new object[] { x }) };
    }

    static void Serve() {
        Open(Executor.Pool);
        Console.WriteLine("serving");
        Thread.Sleep(Timeout.Infinite);
    }

    static void Collect() {
        Group((a, b) => {
            for (int i = 0; i < 500; i++) {
                if (i % 50 == 0) GC.Collect();
                Same(a.Call<long>("b", "double", i), 2L * i);
            }
        });
    }

    static void Launched() {
        foreach (string each in Environment.GetEnvironmentVariables().Keys.Cast<string>().ToArray())
            if (each.StartsWith("DISTAG_") && each != "DISTAG_LIBRARY") Environment.SetEnvironmentVariable(each, null);
        string rank = Environment.GetEnvironmentVariable("RANK");
        Check(Throws<UsageException>(() => LaunchEnvironment.Read()).Message.Contains("WORLD_SIZE"), "what is missing");
        Environment.SetEnvironmentVariable("WORLD_SIZE", "4");
        Environment.SetEnvironmentVariable("LOCAL_RANK", "1");
        if (rank != "3") {
            Check(Throws<UsageException>(() => LaunchEnvironment.Read()).Message.Contains("RANK"), "what is wrong");
            return;
        }
        LaunchEnvironment found = LaunchEnvironment.Read();
        Same(new[] { found.Rank, found.WorldSize, found.LocalRank, found.LocalSize, found.Node, found.NodeCount, found.Restart }, new[] { 3, 4, 1, 0, -1, 0, 0 });
        Same(found.Launcher, "torchrun");
    }

    /// Asks twice for a library that does not fit.
    static int Load() {
        string first = Throws<DllNotFoundException>(() => Tensor.Zeros(new[] { 1L })).Message;
        foreach (Action each in new Action[] { () => new Worker(), () => Tensor.From(new[] { 1f }), () => new Context(), () => Same(Library.Version, ""), () => Library.CreateKeys() })
            Same(Throws<DllNotFoundException>(each).Message, first);
        Check(first.IndexOf('\n') < 0, "more than a line");
        Console.WriteLine(first);
        return 0;
    }

    static int NoRoom() {
        Throws<RetryException>(() => Tensor.Zeros(new[] { 1L << 45 }));
        Same(Tensor.Ones(new[] { 3L }).Sum().GetItem(), 3.0);
        Group((a, b) => {
            Throws<RetryException>(() => a.Call<Tensor>("b", "zeros", new Dictionary<string, object> { { "shape", new[] { 1L << 45 } } }));
            Same(a.Call<long>("b", "double", 1), 2L);
        });
        return 0;
    }
}
