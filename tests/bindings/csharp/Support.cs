using System;
using System.Collections;
using System.Collections.Generic;
using System.Diagnostics;
using System.Globalization;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Distag;

/// What the tests share: checks, tensors of numbers in JSON, groups of workers in this process.
static class Support {
    public static readonly TimeSpan Long = TimeSpan.FromSeconds(120);

    public static void Check(bool condition, string message) {
        if (!condition) throw new Exception(message);
    }

    /// A value as text that tells its types; two are the same if their texts are.
    public static string Show(object value) {
        if (value == null) return "null";
        if (value is double) return ((double)value).ToString("R", CultureInfo.InvariantCulture) + (1 / (double)value < 0 ? "-d" : "d");
        if (value is float) return ((float)value).ToString("R", CultureInfo.InvariantCulture) + "f";
        if (value is string) return "\"" + value + "\"";
        if (value is bool || value.GetType().IsPrimitive || value is Enum) return value.GetType().Name + " " + value;
        var map = value as IDictionary;
        if (map != null)
            return "{" + string.Join(",", map.Keys.Cast<string>().OrderBy(each => each, StringComparer.Ordinal).Select(each => each + ":" + Show(map[each]))) + "}";
        var list = value as IEnumerable;
        return list == null ? value.ToString() : "[" + string.Join(",", list.Cast<object>().Select(Show)) + "]";
    }

    public static void Same(object found, object expected) {
        string one = Show(found), other = Show(expected);
        if (one != other) throw new Exception("found " + (one.Length > 300 ? one.Substring(0, 300) : one) + ", expected " + (other.Length > 300 ? other.Substring(0, 300) : other));
    }

    public static void Near(double[] found, double[] expected, double absolute, double relative) {
        Check(found.Length == expected.Length, found.Length + " numbers, not " + expected.Length);
        for (int i = 0; i < found.Length; i++) {
            double limit = Math.Max(absolute, relative * Math.Max(Math.Abs(found[i]), Math.Abs(expected[i])));
            bool same = found[i].Equals(expected[i]) || found[i] == expected[i] || Math.Abs(found[i] - expected[i]) <= limit;
            Check(same, "element " + i + " is " + found[i] + ", not " + expected[i]);
        }
    }

    public static T Throws<T>(Action run) where T : Exception {
        try {
            run();
        } catch (T expected) {
            return expected;
        } catch (AggregateException all) {
            if (all.InnerException is T) return (T)all.InnerException;
            throw;
        }
        throw new Exception("nothing failed, " + typeof(T).Name + " was expected");
    }

    // ---- numbers ----

    public static double[] Doubles(object numbers) {
        var list = numbers as object[];
        if (list != null) return list.SelectMany(Doubles).ToArray();
        return new[] { numbers is bool ? ((bool)numbers ? 1.0 : 0) : Convert.ToDouble(numbers) };
    }

    public static long[] Longs(object numbers) {
        return ((object[])numbers).Select(Convert.ToInt64).ToArray();
    }

    static long[] ShapeOf(object numbers) {
        var list = numbers as object[];
        if (list == null) return new long[0];
        return new[] { (long)list.Length }.Concat(list.Length == 0 ? new long[0] : ShapeOf(list[0])).ToArray();
    }

    static IEnumerable<object> Flat(object numbers) {
        var list = numbers as object[];
        return list == null ? new[] { numbers } : list.SelectMany(Flat);
    }

    public static Tensor Made(DType dtype, object numbers) {
        return Made(dtype, ShapeOf(numbers), Flat(numbers).ToArray());
    }

    static Tensor Made(DType dtype, long[] shape, object[] data) {
        Tensor flat;
        if (dtype == DType.Float32) flat = Tensor.From(data.Select(each => (float)Doubles(each)[0]).ToArray());
        else if (dtype == DType.Float64) flat = Tensor.From(data.Select(each => Doubles(each)[0]).ToArray());
        else if (dtype == DType.Int64) flat = Tensor.From(data.Select(Convert.ToInt64).ToArray());
        else flat = Tensor.From(data.Select(each => (bool)each).ToArray());
        return flat.Reshape(shape);
    }

    public static DType DTypeNamed(object name) {
        return (DType)Enum.Parse(typeof(DType), (string)name, true);
    }

    /// A tensor of reference numbers: {"dtype", "shape", "data"}, or null.
    public static Tensor Reference(object numbers, bool requiresGrad) {
        var map = (Dictionary<string, object>)numbers;
        if (map == null) return null;
        DType dtype = DTypeNamed(map["dtype"]);
        Tensor x = Made(dtype, Longs(map["shape"]), (object[])map["data"]);
        return requiresGrad && dtype == DType.Float64 ? x.RequiresGradient(true) : x;
    }

    public static double[] Elements(Tensor x) {
        switch (x.DType) {
            case DType.Float64: return x.ToArray<double>();
            case DType.Float32: return x.ToArray<float>().Select(each => (double)each).ToArray();
            case DType.Int64: return x.ToArray<long>().Select(each => (double)each).ToArray();
        }
        return x.ToArray<bool>().Select(each => each ? 1.0 : 0).ToArray();
    }

    public static Tensor Leaf(object numbers) {
        return Tensor.Parameter(Made(DType.Float32, numbers));
    }

    // ---- groups of workers in this process ----

    static int jobs;

    public static void Offer(Worker worker) {
        worker.Register("double", (long x) => 2 * x);
        worker.Register("square", (Tensor x) => x * x);
        worker.Register("echo", (object x) => x);
    }

    public static Worker[] Create(Action<Worker> offer, params string[] names) {
        string job = "job" + Process.GetCurrentProcess().Id + "-" + Interlocked.Increment(ref jobs);
        var workers = new Worker[names.Length];
        for (int rank = 0; rank < names.Length; rank++) {
            workers[rank] = new Worker(new WorkerOptions { Name = names[rank], Rank = rank, WorldSize = names.Length, Rendezvous = "inproc://" + job, Job = job });
            Offer(workers[rank]);
            if (offer != null) offer(workers[rank]);
        }
        return workers;
    }

    public static void Start(params Worker[] workers) {
        Task.WaitAll(workers.Select(each => each.StartAsync(Long)).ToArray());
    }

    /// Runs with two workers that are started, and shuts them down side by side.
    public static void Group(Action<Worker> offer, Action<Worker, Worker> use, string first = "a", string second = "b") {
        Worker[] workers = Create(offer, first, second);
        try {
            Start(workers);
            use(workers[0], workers[1]);
            Task.WaitAll(workers.Select(each => each.ShutdownAsync(Long)).ToArray());
        } finally {
            foreach (Worker each in workers) each.Dispose();
        }
    }

    public static void Group(Action<Worker, Worker> use) {
        Group(null, use);
    }

    /// Waits until the collector has had its way. What a method has left on its stack is scanned too, so some other ones run before.
    public static void NothingIsLeft(long expected = 0) {
        var time = Stopwatch.StartNew();
        while (Library.HandleCount > expected && time.Elapsed < TimeSpan.FromSeconds(120)) {
            var thread = new Thread(() => { GC.Collect(); GC.WaitForPendingFinalizers(); });
            thread.Start();
            thread.Join();
        }
        Check(Library.HandleCount <= expected, Library.HandleReport());
    }

    /// Runs a method on a thread of its own, whose stack goes: Mono's collector takes what looks like a pointer on a stack for one.
    public static void OnItsOwnStack(Action run) {
        Exception failure = null;
        var thread = new Thread(() => {
            try {
                run();
            } catch (Exception thrown) {
                failure = thrown;
            }
        });
        thread.Start();
        thread.Join();
        if (failure != null) throw new Exception(failure.ToString());
    }
}
