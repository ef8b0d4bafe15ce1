// Trains a classifier of hand-written digits whose layers live in three processes, in any language.
//
//     distag run -n 3 mono digits.exe DIGITS.CSV [EPOCHS]
//
// Rank 0, "trainer", has the data, a convolution and the loss; "middle" and "last" have a layer each, and may as well be
// the program in C (samples/04_digits.c).
using System;
using System.Diagnostics;
using System.Globalization;
using System.IO;
using System.Linq;
using Distag;

/// 16 filters of 3 x 3; 256 to 64; 64 to 10.
sealed class Layer {
    static readonly long[][] shapes = { new long[] { 16, 1, 3, 3 }, new long[] { 64, 256 }, new long[] { 10, 64 } };
    static readonly double[] fanIn = { 9, 256, 64 };
    readonly int index;

    public Tensor[] Parameters { get; private set; }

    /// Normal numbers, scaled by the fan-in (He et al. 2015).
    public Layer(int index) {
        this.index = index;
        Tensor weight = Tensor.Randn(100 + index, shapes[index]) * Math.Sqrt(2 / fanIn[index]);
        Parameters = new[] { Tensor.Parameter(weight), Tensor.Parameter(Tensor.Zeros(new[] { shapes[index][0] })) };
    }

    public Tensor Forward(Tensor x) {
        if (index > 0) {
            Tensor y = x.Linear(Parameters[0], Parameters[1]);
            return index == 2 ? y : y.Relu();
        }
        Tensor filtered = x.Reshape(new long[] { -1, 1, 8, 8 }).Conv2d(Parameters[0], Parameters[1], padding: new long[] { 1, 1 });
        return filtered.Relu().MaxPool2d(new long[] { 2, 2 }).Reshape(new long[] { -1, 256 });
    }
}

/// Rows of pixels, and their classes.
sealed class Images {
    readonly float[][] pixels;
    readonly long[] classes;

    Images(int[][] lines) {
        pixels = lines.Select(line => line.Take(64).Select(pixel => pixel / 16f).ToArray()).ToArray();
        classes = lines.Select(line => (long)line[64]).ToArray();
    }

    public int Count {
        get { return classes.Length; }
    }

    /// Those to train with, and every fifth line, which is held out.
    public static void Read(string path, out Images train, out Images heldOut) {
        int[][] lines = File.ReadAllLines(path).Select(line => line.Split(',').Select(int.Parse).ToArray()).ToArray();
        train = new Images(lines.Where((line, i) => i % 5 != 4).ToArray());
        heldOut = new Images(lines.Where((line, i) => i % 5 == 4).ToArray());
    }

    /// The same order on every run: a linear congruential generator (Knuth, MMIX).
    public void Shuffle(ulong seed) {
        for (int i = Count - 1; i > 0; i--) {
            seed = unchecked(seed * 6364136223846793005 + 1442695040888963407);
            var j = (int)((seed >> 33) % (ulong)(i + 1));
            Swap(pixels, i, j);
            Swap(classes, i, j);
        }
    }

    static void Swap<T>(T[] list, int i, int j) {
        T kept = list[i];
        list[i] = list[j];
        list[j] = kept;
    }

    public Tensor Pixels(int begin, int count) {
        return Tensor.From(pixels.Skip(begin).Take(count).SelectMany(row => row).ToArray(), count, 64);
    }

    public Tensor Classes(int begin, int count) {
        return Tensor.From(classes.Skip(begin).Take(count).ToArray());
    }
}

/// The steps of rank 0.
sealed class Trainer : IDisposable {
    const int Batch = 32;
    const double Rate = 0.2; // of the first epoch; falls to 0 in a straight line
    readonly Worker worker;
    readonly Layer own;
    readonly RRef[] others;
    readonly Optimizer sgd;
    int steps;

    public Trainer(Worker worker, Layer own) {
        this.worker = worker;
        this.own = own;
        others = Digits.Names.Skip(1).Select(name => worker.Remote(name, "parameters")).ToArray();
        sgd = new Optimizer(worker, "sgd", own.Parameters.Concat<object>(others).ToArray());
    }

    public void Dispose() {
        sgd.Dispose();
        foreach (RRef each in others) each.Dispose();
    }

    /// Through all three processes; without a context nothing is recorded.
    Tensor Logits(Context context, Tensor x) {
        x = worker.Call<Tensor>(context, "middle", "forward", own.Forward(x));
        return worker.Call<Tensor>(context, "last", "forward", x);
    }

    /// One batch: forward, backward, step. Gives the loss.
    double Step(Images images, int begin) {
        int count = Math.Min(Batch, images.Count - begin);
        using (new Scope()) // ends the tensors that are made in it
        using (var context = new Context(worker)) {
            Tensor loss = Logits(context, images.Pixels(begin, count)).CrossEntropy(images.Classes(begin, count));
            context.Backward(loss);
            sgd.Step(context);
            steps++;
            return loss.GetItem();
        }
    }

    double Accuracy(Images images) {
        using (new Scope())
            return Logits(null, images.Pixels(0, images.Count)).Argmax(1).Eq(images.Classes(0, images.Count)).Cast(DType.Float32).Mean().GetItem();
    }

    public void Train(string path, int epochs) {
        Images images, heldOut;
        Images.Read(path, out images, out heldOut);
        var spent = new Stopwatch();
        double accuracy = 0;
        for (int epoch = 1; epoch <= epochs; epoch++) {
            images.Shuffle((ulong)epoch);
            sgd.Set("lr", Rate * (epochs - epoch + 1) / epochs);
            spent.Start();
            int[] begins = Enumerable.Range(0, (images.Count + Batch - 1) / Batch).Select(i => i * Batch).ToArray();
            double loss = begins.Sum(begin => Step(images, begin)) / begins.Length;
            spent.Stop();
            accuracy = Accuracy(heldOut);
            Console.WriteLine(string.Format(CultureInfo.InvariantCulture, "epoch {0,2} of {1}   loss {2:F4}   held-out accuracy {3:F4}", epoch,
                epochs, loss, accuracy));
        }
        Console.WriteLine(string.Format(CultureInfo.InvariantCulture, "held-out accuracy {0:F4} on {1} images, after {2} steps over {3} processes",
            accuracy, heldOut.Count, steps, Digits.Names.Length));
        Console.WriteLine(string.Format(CultureInfo.InvariantCulture, "{0:F0} steps per second", steps / spent.Elapsed.TotalSeconds));
    }
}

static class Digits {
    public static readonly string[] Names = { "trainer", "middle", "last" };

    static void Work(int rank, string path, int epochs) {
        var own = new Layer(rank);
        using (var worker = new Worker(new WorkerOptions { Name = Names[rank] })) { // rank, size and address come from distag run
            worker.Register("forward", (Tensor x) => own.Forward(x));
            worker.Register("parameters", () => own.Parameters); // stays here, by Remote; the optimizer gets a reference to it
            worker.Start(TimeSpan.FromSeconds(30));
            if (rank == 0)
                using (var trainer = new Trainer(worker, own)) trainer.Train(path, epochs);
            worker.Shutdown(); // serves until all others shut down too
        }
    }

    static int Main(string[] arguments) {
        int rank;
        if (arguments.Length == 0 || !int.TryParse(Environment.GetEnvironmentVariable("RANK"), out rank) || rank < 0 || rank >= Names.Length) {
            Console.Error.WriteLine("usage: distag run -n 3 mono digits.exe DIGITS.CSV [EPOCHS]");
            return 2;
        }
        try {
            Work(rank, arguments[0], arguments.Length > 1 ? int.Parse(arguments[1]) : 30);
            return 0;
        } catch (DistagException failure) {
            Console.Error.WriteLine(Names[rank] + ": " + failure.Message);
            return 1;
        }
    }
}
