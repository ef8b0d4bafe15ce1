// Answers calls until it is asked to stop, by a call of "stop", or by Ctrl-C on a terminal: Mono sees no other signal
// without packages of others.
//
//     mono service.exe file:///tmp/group       serves as "service"
//     mono service.exe file:///tmp/group ask   joins the group, calls it, and asks it to stop
using System;
using System.Threading;
using Distag;

static class Service {
    static readonly TimeSpan limit = TimeSpan.FromSeconds(30);

    static void Serve(string rendezvous) {
        using (var stop = new ManualResetEventSlim())
        using (var worker = new Worker(new WorkerOptions { Name = "service", WorldSize = -1, Rendezvous = rendezvous })) {
            Console.CancelKeyPress += (sender, pressed) => {
                pressed.Cancel = true; // the process goes on, until it has left the group
                stop.Set();
            };
            worker.Register("mean", (Tensor x) => x.Mean());
            worker.Register("stop", () => {
                stop.Set();
                return "stopping";
            });
            worker.Start(limit);
            Console.WriteLine(worker.Name + " serves");
            stop.Wait();
            worker.Shutdown(TimeSpan.FromSeconds(10)); // the answer to "stop" goes out first
            Console.WriteLine("served " + worker.GetStats().CallsServed + " calls");
        }
    }

    static void Ask(string rendezvous) {
        using (var worker = new Worker(new WorkerOptions { Name = "client", Rank = -1, WorldSize = -1, Rendezvous = rendezvous })) {
            worker.Start(limit);
            using (Tensor x = Tensor.From(new[] { 1f, 2f, 6f }))
            using (Tensor mean = worker.Call<Tensor>("service", "mean", x))
                Console.WriteLine("mean " + mean.GetItem());
            Console.WriteLine(worker.Call<string>("service", "stop", new object[0]));
        }
    }

    static int Main(string[] arguments) {
        if (arguments.Length == 0) {
            Console.Error.WriteLine("usage: service.exe RENDEZVOUS [ask]");
            return 2;
        }
        try {
            if (arguments.Length > 1) Ask(arguments[0]);
            else Serve(arguments[0]);
            return 0;
        } catch (DistagException failure) {
            Console.Error.WriteLine(failure.Message);
            return 1;
        }
    }
}
