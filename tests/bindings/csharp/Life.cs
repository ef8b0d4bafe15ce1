using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Reflection;
using System.Threading;
using System.Threading.Tasks;
using Distag;
using static Support;

/// The cases of lives: handles, ends, processes; and reports.
static class Life {
    public static readonly Dictionary<string, Action<Given>> Cases = new Dictionary<string, Action<Given>> {
        { "life: everything released leaves no handle", NoHandles },
        { "life: a collector between all steps", Collector },
        { "life: a worker shut down twice", ShutDownTwice },
        { "life: use after close is an error", UseAfterClose },
        { "life: leaving main with calls open", Leaving },
        { "life: a fork", Fork },
        { "report: stats and reports parse", Reports },
    };

    static void UseEverything() {
        Tensor x = Leaf(new object[] { 1L, 2L });
        x.AddHook(gradient => null);
        Group((a, b) => {
            using (var context = new Context(a)) {
                context.Backward(a.Call<Tensor>(context, "b", "square", x).Sum());
                new Optimizer(a, "sgd", new object[] { x }, new Dictionary<string, double> { { "lr", 0.1 } }).Step(context);
            }
            RRef reference = a.Remote("b", "square", x);
            Check(Elements(reference.Fetch<Tensor>())[1] < 4, "no step");
        });
    }

    static void NoHandles(Given given) {
        NothingIsLeft();
        OnItsOwnStack(UseEverything);
        NothingIsLeft();
    }

    static void Collector(Given given) {
        Group((a, b) => {
            Tensor x = Leaf(given["x"]);
            GC.Collect();
            using (var context = new Context(a)) {
                GC.Collect();
                Tensor loss = a.Call<Tensor>(context, "b", "square", x).Sum();
                GC.Collect();
                context.Backward(loss);
                GC.Collect();
                Same(Elements(context.Gradient(x)), given.Doubles("gradient"));
            }
        });
    }

    static void ShutDownTwice(Given given) {
        Worker[] workers = Create(null, "a", "b");
        Start(workers);
        Task<Report> other = workers[1].ShutdownAsync(Long);
        Same(workers[0].Shutdown(Long).Clean, given["clean"]);
        Same(workers[0].Shutdown(Long).Clean, given["clean"]);
        Same(other.Result.Clean, true);
        foreach (Worker each in workers) {
            each.Dispose();
            each.Dispose();
        }
        var alone = new Worker(new WorkerOptions { Name = "alone", Rank = 0, WorldSize = 1, Rendezvous = "inproc://alone" });
        alone.Dispose();
        alone.Dispose();
    }

    static void UseAfterClose(Given given) {
        Tensor x = Tensor.From(new[] { 1f }), weight = Tensor.From(new[] { 1f }, 1, 1);
        x.Dispose();
        x.Dispose();
        Throws<ObjectDisposedException>(() => x.AddScalar(1));
        Throws<ObjectDisposedException>(() => x.ToArray<float>());
        Throws<ObjectDisposedException>(() => Same(x.Shape, null));
        Throws<ObjectDisposedException>(() => weight.Linear(weight, x)); // an optional input is not left out because it is closed
        Throws<ObjectDisposedException>(() => Tensor.Concat(new[] { weight, x }));
        Worker[] workers = Create(null, "a", "b");
        Start(workers);
        var context = new Context(workers[0]);
        Throws<ObjectDisposedException>(() => workers[0].Call<object>(context, "b", "square", x));
        context.Dispose();
        Throws<ObjectDisposedException>(() => workers[0].Call<object>(context, "b", "square", weight));
        workers[0].Shutdown(TimeSpan.Zero);
        Check(Throws<DistagException>(() => workers[0].Call<object>("b", "square", weight)).Code == Status.InvalidState, "after the shutdown");
        foreach (Worker each in workers) each.Dispose();
        Throws<ObjectDisposedException>(() => workers[0].Call<object>("b", "square", weight));
        Throws<ObjectDisposedException>(() => workers[0].GetReport());
        Throws<ObjectDisposedException>(() => workers[0].Register("late", (long each) => each));
    }

    /// Ends its process while calls are open.
    public static void Leave(int calls) {
        var answering = new ManualResetEventSlim();
        Action<Worker> offer = worker => worker.Register("wait_a_little", () => {
            answering.Set();
            Thread.Sleep(10);
            return Tensor.Zeros(new long[] { 4 });
        });
        Worker[] workers = Create(offer, "a", "b");
        Start(workers);
        for (int i = 0; i < calls; i++) workers[0].CallAsync<Tensor>("b", "wait_a_little");
        answering.Wait();
    }

    public static string Run(string arguments, out int code, int milliseconds) {
        string program = Assembly.GetExecutingAssembly().Location;
        var start = new ProcessStartInfo("/usr/bin/mono", program + " " + arguments) { UseShellExecute = false, RedirectStandardOutput = true, RedirectStandardError = true };
        using (Process process = Process.Start(start)) {
            Task<string> errors = process.StandardError.ReadToEndAsync(), said = process.StandardOutput.ReadToEndAsync();
            if (!process.WaitForExit(milliseconds)) {
                process.Kill();
                throw new Exception(arguments + ": it did not end");
            }
            code = process.ExitCode;
            return said.Result + errors.Result;
        }
    }

    static void Leaving(Given given) {
        int runs = given.Int("runs"), next = 0;
        var failures = new List<string>();
        Thread[] threads = Enumerable.Range(0, 2).Select(half => new Thread(() => {
            while (Interlocked.Increment(ref next) <= runs) {
                try {
                    int code;
                    string said = Run("leave " + given["calls"], out code, 1000 * given.Int("seconds"));
                    if (code != given.Int("exit_code") || said != "") lock (failures) failures.Add(code + " " + said);
                } catch (Exception failure) {
                    lock (failures) failures.Add(failure.Message);
                }
            }
        })).ToArray();
        foreach (Thread each in threads) each.Start();
        foreach (Thread each in threads) each.Join();
        Check(failures.Count == 0, string.Join("\n", failures));
    }

    /// A process that was made while its parent has workers.
    public static void Child() {
        Group((a, b) => Same(a.Call<long>("b", "double", 3), 6L));
        Console.WriteLine("child");
    }

    // Mono forks to execute another program only: that one is new, and its parent goes on.
    static void Fork(Given given) {
        Group((a, b) => {
            int code;
            Same(Run("child", out code, 20000), "child\n");
            Same(code, 0);
            Same(a.Call<long>("b", "double", 4), 8L);
        });
    }

    static void Reports(Given given) {
        Group((a, b) => {
            using (var context = new Context(a)) {
                a.Call<object>(context, "b", "double", 3);
                Stats stats = a.GetStats();
                Check(stats.CallsMade >= 1, "no call");
                foreach (string name in given.List("stats"))
                    Check(typeof(Stats).GetProperty(string.Concat(name.Split('_').Select(part => char.ToUpper(part[0]) + part.Substring(1)))) != null, name);
                var report = (Dictionary<string, object>)Json.Read(a.GetReport());
                foreach (string name in given.List("report")) Check(report.ContainsKey(name), name);
                Check(a.GetMetrics().Contains("distag_calls_made_total{worker=\"a\"}"), a.GetMetrics());
                Json.Read(context.GetReport());
                Json.Read(Library.HandleReport());
                Same(context.GetInfo().KnownCount, 1UL);
                context.Dispose();
                Throws<ObjectDisposedException>(() => context.GetInfo());
            }
        });
    }
}
