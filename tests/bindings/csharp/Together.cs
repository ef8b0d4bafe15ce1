using System;
using System.IO;
using System.Linq;
using System.Threading;
using Distag;

/// A member of the group in C#: see tests/bindings/together/README.md. usage: together.exe RANK SIZE RENDEZVOUS DIGITS FIRST STEPS
static class Together {
    const int Batch = 32, Count = 1600;
    static readonly TimeSpan limit = TimeSpan.FromSeconds(120);
    static int rank, size;
    static Tensor weight, bias;
    static Worker worker;
    static Optimizer sgd;

    static float[][] rows;
    static long[] classes;

    static void ReadDigits(string path) {
        int[][] lines = File.ReadAllLines(path).Select(line => line.Split(',').Select(int.Parse).ToArray()).ToArray();
        rows = lines.Select(line => line.Take(64).Select(pixel => pixel / 16f).ToArray()).ToArray();
        classes = lines.Select(line => (long)line[64]).ToArray();
    }

    static Tensor Forward(Tensor x) {
        Tensor y = x.Linear(weight, bias);
        return rank == size - 1 ? y : y.Relu();
    }

    static readonly uint[] table = Enumerable.Range(0, 256).Select(each => {
        var entry = (uint)each;
        for (int bit = 0; bit < 8; bit++) entry = (entry & 1) != 0 ? 0xEDB88320 ^ (entry >> 1) : entry >> 1;
        return entry;
    }).ToArray();

    static uint Crc(uint sum, Tensor x) {
        float[] data = x.ToArray<float>();
        var bytes = new byte[4 * data.Length];
        Buffer.BlockCopy(data, 0, bytes, 0, bytes.Length);
        sum = ~sum;
        foreach (byte each in bytes) sum = table[(sum ^ each) & 0xFF] ^ (sum >> 8);
        return ~sum;
    }

    static long Step(Call call) {
        sgd.Step(call.Context);
        using (Gradients gradients = call.Context.GetGradients())
            return new[] { weight, gradients.Find(weight), bias, gradients.Find(bias) }.Aggregate(0u, Crc);
    }

    static void Train(int turn, int number, int begin) {
        using (new Scope())
        using (var context = new Context(worker)) {
            Tensor x = Tensor.From(rows.Skip(begin).Take(Batch).SelectMany(row => row).ToArray(), Batch, 64);
            for (int layer = 0; layer < size; layer++) x = worker.Call<Tensor>(context, "layer" + layer, "forward", x);
            Tensor loss = x.CrossEntropy(Tensor.From(classes.Skip(begin).Take(Batch).ToArray()));
            context.Backward(loss);
            string line = turn + " " + number + " " + BitConverter.ToInt32(BitConverter.GetBytes(loss.ToArray<float>()[0]), 0).ToString("x8");
            for (int layer = 0; layer < size; layer++) line += " " + worker.Call<long>(context, "layer" + layer, "step", new object[0]);
            Console.Out.WriteLine(line);
            Console.Out.Flush();
        }
    }

    /// What is sent there and back.
    static object[] Parcel(long number) {
        return new object[] {
            new[] { rank, number, 9007199254740993 },
            new System.Collections.Generic.Dictionary<string, object> { { "from", "layer" + rank }, { "number", number } },
            "Grüße aus Schicht " + rank + ", Nr. " + number + ": äöüß €",
            Enumerable.Range(0, 1 << 20).Select(i => (byte)(i + 31 * rank + number)).ToArray(),
            Tensor.Randn(1000 + 100 * rank + number, new[] { 8L, 8 })
        };
    }

    static bool IsUnchanged(object[] found, object[] sent) {
        var map = (System.Collections.Generic.Dictionary<string, object>)found[1];
        Tensor x = (Tensor)found[4], expected = (Tensor)sent[4];
        return found.Length == 5 && Value.As<long[]>(found[0]).SequenceEqual((long[])sent[0]) && map.Count == 2 &&
            (string)map["from"] == "layer" + rank && (long)map["number"] == ((long[])sent[0])[1] && (string)found[2] == (string)sent[2] &&
            ((byte[])found[3]).SequenceEqual((byte[])sent[3]) && x.Shape.SequenceEqual(expected.Shape) &&
            x.ToArray<float>().SequenceEqual(expected.ToArray<float>());
    }

    static void Exchange(int count) {
        using (new Scope()) {
            var calls = Enumerable.Range(0, count * size).Where(number => number % size != rank)
                .Select(number => worker.CallAsync<object[]>("layer" + number % size, "echo", new object[] { Parcel(number) })).ToArray();
            int unchanged = calls.Count(each => IsUnchanged(each.Result, Parcel(Value.As<long[]>(each.Result[0])[1])));
            Console.WriteLine("exchanged " + unchanged);
            Console.In.ReadToEnd();
        }
    }

    static void Run(int first, int steps) {
        worker.Start(limit);
        if (first < 0) Exchange(steps);
        for (int turn = 0; first >= 0 && turn < size; turn++) {
            for (int number = 0; number < steps && (first + turn) % size == rank; number++)
                Train(turn, number, Batch * (steps * turn + number) % Count);
            worker.AllGather(null, limit);
        }
        worker.Shutdown(limit);
    }

    static int Main(string[] arguments) {
        rank = int.Parse(arguments[0]);
        size = int.Parse(arguments[1]);
        ReadDigits(arguments[3]);
        long outputs = rank == size - 1 ? 10 : 32;
        weight = Tensor.Parameter(Tensor.Randn(100 + rank, new[] { outputs, rank == 0 ? 64L : 32 }) * 0.2);
        bias = Tensor.Parameter(Tensor.Zeros(new[] { outputs }));
        using (worker = new Worker(new WorkerOptions { Name = "layer" + rank, Rank = rank, WorldSize = size, Rendezvous = arguments[2] })) {
            worker.Register("forward", (Tensor x) => Forward(x));
            worker.Register("step", (Call call) => Step(call));
            worker.Register("echo", (object x) => x);
            var settings = new System.Collections.Generic.Dictionary<string, double> { { "lr", 0.1 }, { "momentum", 0.9 } };
            sgd = new Optimizer(worker, "sgd", new object[] { weight, bias }, settings);
            try {
                Run(int.Parse(arguments[4]), int.Parse(arguments[5]));
                return 0;
            } catch (DistagException failure) {
                Console.WriteLine("failed " + (int)failure.Code + " " + failure.Message);
                for (string line; (line = Console.In.ReadLine()) != null;)
                    for (int number = 0; number < int.Parse(line); number++) Train(0, number, Batch * number);
                return 3;
            }
        }
    }
}
