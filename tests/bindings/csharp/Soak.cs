using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Distag;

/// Makes calls and training steps and disposes no tensor by hand: memory, handles, threads and descriptors stay as they are
/// after the first tenth. usage: soak.exe [CALLS [STEPS]]
static class Soak {
    const int MostHandles = 64; // far more than the program holds

    /// What the process holds: KiB, threads, descriptors, handles.
    static long[] Measure() {
        var time = Stopwatch.StartNew();
        do { // finalizers run beside the program, and a collector that scans stacks may keep some
            var thread = new Thread(() => { GC.Collect(); GC.WaitForPendingFinalizers(); });
            thread.Start();
            thread.Join();
        } while (Library.HandleCount > MostHandles && time.Elapsed < TimeSpan.FromSeconds(120));
        Func<string, long> read = name => long.Parse(File.ReadAllLines("/proc/self/status").First(line => line.StartsWith(name)).Split(new[] { ' ', '\t' }, StringSplitOptions.RemoveEmptyEntries)[1]);
        return new[] { read("VmRSS:"), read("Threads:"), Directory.GetFiles("/proc/self/fd").Length, Library.HandleCount };
    }

    static bool Watch(string name, int rounds, Action round) {
        long[] first = null;
        bool flat = true;
        for (int tenth = 1; tenth <= 10; tenth++) {
            for (int i = 0; i < rounds / 10; i++) round();
            long[] now = Measure();
            Console.WriteLine(name + " " + 10 * tenth + " %: " + now[0] + " KiB, " + now[1] + " threads, " + now[2] + " descriptors, " + now[3] + " handles");
            first = first ?? now;
            flat = now[0] <= first[0] + 8 * 1024 && now[1] <= first[1] + 4 && now[2] <= first[2] + 2 && now[3] <= MostHandles;
        }
        return flat;
    }

    static int Main(string[] arguments) {
        int calls = arguments.Length > 0 ? int.Parse(arguments[0]) : 1000000, steps = arguments.Length > 1 ? int.Parse(arguments[1]) : 100000;
        Worker[] workers = Enumerable.Range(0, 2).Select(rank => new Worker(new WorkerOptions { Rank = rank, WorldSize = 2, Rendezvous = "inproc://soak" })).ToArray();
        foreach (Worker each in workers) {
            each.Register("echo", (object x) => x);
            each.Register("square", (Tensor x) => x * x);
        }
        Task.WaitAll(workers.Select(each => each.StartAsync(TimeSpan.FromSeconds(120))).ToArray());
        Tensor weight = Tensor.Parameter(Tensor.Ones(new[] { 16L }));
        var sgd = new Optimizer(workers[0], "sgd", new object[] { weight }, new Dictionary<string, double> { { "lr", 0.0001 } });
        bool flat = Watch("calls", calls, () => workers[0].Call<long>("worker1", "echo", 7));
        flat &= Watch("steps", steps, () => {
            using (var context = new Context(workers[0])) {
                context.Backward(workers[0].Call<Tensor>(context, "worker1", "square", weight).Sum());
                sgd.Step(context);
            }
        });
        foreach (Worker each in workers) each.Dispose();
        return flat ? 0 : 1;
    }
}
