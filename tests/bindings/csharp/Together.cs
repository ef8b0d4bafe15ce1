using System;
using System.IO;
using System.Linq;
using System.Threading;
using Distag;

/// A member of the group in C#: see tests/bindings/together/README.md. usage: together.exe RANK SIZE FOLDER DIGITS FIRST STEPS
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

    static void Run(int first, int steps) {
        worker.Start(limit);
        for (int turn = 0; turn < size; turn++) {
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
        using (worker = new Worker(new WorkerOptions { Name = "layer" + rank, Rank = rank, WorldSize = size, Rendezvous = "file://" + arguments[2] })) {
            worker.Register("forward", (Tensor x) => Forward(x));
            worker.Register("step", (Call call) => Step(call));
            var settings = new System.Collections.Generic.Dictionary<string, double> { { "lr", 0.1 }, { "momentum", 0.9 } };
            sgd = new Optimizer(worker, "sgd", new object[] { weight, bias }, settings);
            try {
                Run(int.Parse(arguments[4]), int.Parse(arguments[5]));
                return 0;
            } catch (DistagException failure) {
                Console.WriteLine("failed " + (int)failure.Code + " " + failure.Message);
                Console.In.ReadToEnd();
                return 3;
            }
        }
    }
}
