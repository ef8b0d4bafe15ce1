using System;
using System.Diagnostics;
using System.Globalization;
using System.Threading.Tasks;
using Distag;

/// Is compared with the program in C: see tests/bindings/speed/README.md. usage: speed.exe ROLE FOLDER
static class Speed {
    const int Flight = 1000;

    static double Measure(string name, int rounds, Worker worker) {
        Tensor small = Tensor.From(new[] { 1f }), x = Tensor.From(new[] { 1f, 2f, 3f, 4f });
        var time = Stopwatch.StartNew();
        for (int i = 0; i < rounds; i++) {
            if (name == "call") worker.Call<Tensor>("b", "echo", small).Dispose();
            else if (name == "op") (x + x).Dispose();
            else if (i % Flight == 0) Fly(worker, small);
        }
        return time.Elapsed.TotalSeconds / rounds;
    }

    static void Fly(Worker worker, Tensor x) {
        var calls = new Task<Tensor>[Flight];
        for (int i = 0; i < Flight; i++) calls[i] = worker.CallAsync<Tensor>("b", "echo", x);
        foreach (Task<Tensor> each in calls) each.Result.Dispose();
    }

    static void Main(string[] arguments) {
        bool serves = arguments[0] == "serve";
        var options = new WorkerOptions { Name = serves ? "b" : "a", Rank = serves ? 1 : 0, WorldSize = 2, Rendezvous = "file://" + arguments[1] };
        using (var worker = new Worker(options)) {
            worker.Register("echo", (Call call) => call.Args[0]);
            worker.Start();
            for (string line; !serves && (line = Console.ReadLine()) != null;) {
                string[] words = line.Split(' ');
                Console.WriteLine(Measure(words[0], int.Parse(words[1]), worker).ToString("F9", CultureInfo.InvariantCulture));
            }
            worker.Shutdown();
        }
    }
}
