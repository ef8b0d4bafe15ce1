using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Distag;
using static Support;

/// The cases with workers: calls, values, passes, objects.
static class Workers {
    public static readonly Dictionary<string, Action<Given>> Cases = new Dictionary<string, Action<Given>> {
        { "workers: two in one process call each other", CallEachOther },
        { "workers: an async call", AsyncCall },
        { "workers: a value that stays is made and fetched", Stays },
        { "workers: a nested call back to the caller", Nested },
        { "workers: 100 calls at once from 8 threads or tasks", AtOnce },
        { "workers: a function that raises", Raises },
        { "workers: status 1042 is kept with its rank", OwnStatus },
        { "workers: an unknown function", Unknown },
        { "workers: a deadline", Deadline },
        { "workers: a cancellation reaches the callee", Cancellation },
        { "workers: a deferred reply from another thread", Deferred },
        { "workers: a second worker of another job", AnotherJob },
        { "values: every kind there and back", EveryKind },
        { "values: 16 deep travels, 17 deep is refused", Depth },
        { "values: 2^53 + 1 keeps its value", BigInteger },
        { "values: not a number stays one", NotANumber },
        { "values: a text with NUL is refused", Nul },
        { "values: 1 MiB of bytes", ManyBytes },
        { "values: an error names the path", Path },
        { "backward: through two workers", TwoWorkers },
        { "backward: through A, B and A again", ThereAndBack },
        { "backward: gradients are read on both sides", BothSides },
        { "backward: a failure in a remote custom op names it", FailingOp },
        { "objects: behind a reference, used by a function, freed once", Objects },
    };

    static void CallEachOther(Given given) {
        Group((a, b) => {
            Same(a.Call<object>("b", "double", given["argument"]), given["answer"]);
            Same(b.Call<int>("a", "double", given.Int("argument")), given.Int("answer"));
        });
    }

    static void AsyncCall(Given given) {
        Group((a, b) => {
            Task<long>[] calls = Longs(given["arguments"]).Select(each => a.CallAsync<long>("b", "double", each)).ToArray();
            Check(Task.WaitAll(calls, Long), "no answer");
            Same(calls.Select(each => each.Result).ToArray(), Longs(given["answers"]));
            Same(Awaited(a).Result, 42L);
        });
    }

    static async Task<long> Awaited(Worker worker) {
        Thread own = Thread.CurrentThread; // goes on by itself where the answer has come already
        long answer = await worker.CallAsync<long>("b", "double", 21);
        Check(Thread.CurrentThread.IsThreadPoolThread || Thread.CurrentThread == own, "a continuation runs on a thread of distag");
        return answer;
    }

    static void Stays(Given given) {
        Group((a, b) => {
            using (RRef made = a.Remote("b", "echo", Longs(given["made"]))) {
                Same(made.Owner, "b");
                Same(made.IsOwner, false);
                Same(made.Fetch<long[]>(), Longs(given["fetched"]));
                Same(made.FetchAsync<List<long>>().Result, Longs(given["fetched"]));
            }
        });
    }

    static void Nested(Given given) {
        Group(worker => worker.Register("ask_back", (Call call, long x) => call.Worker.Call<long>(call.Context, call.Caller, "double", x) + 1),
            (a, b) => Same(a.Call<long>("b", "ask_back", given["argument"]), given["answer"]));
    }

    static void AtOnce(Given given) {
        Group((a, b) => {
            long sum = 0;
            int calls = given.Int("calls"), callers = given.Int("callers");
            Thread[] threads = Enumerable.Range(0, callers).Select(caller => new Thread(() => {
                for (int each = caller; each < calls; each += callers) Interlocked.Add(ref sum, a.Call<long>("b", "double", each));
            })).ToArray();
            foreach (Thread each in threads) each.Start();
            foreach (Thread each in threads) each.Join();
            Same(sum, given["sum"]);
            Same(Task.WhenAll(Enumerable.Range(0, calls).Select(each => a.CallAsync<long>("b", "double", each))).Result.Sum(), given["sum"]);
        });
    }

    sealed class NoSuchUser : Exception {
        public NoSuchUser() : base("no such user") {}
    }

    static void Raises(Given given) {
        Action<Worker> offer = worker => {
            worker.Register<object>("find", () => { throw new NoSuchUser(); });
            worker.Register<Task<long>>("find_later", async () => { await Task.Yield(); throw new NoSuchUser(); });
            worker.Register<object>("end", () => { Thread.CurrentThread.Abort(); return 1; });
        };
        Group(offer, (a, b) => {
            foreach (string name in new[] { "find", "find_later" }) {
                DistagException failure = given.Fails(() => a.Call<object>("b", name));
                Check(failure.Message.Contains("NoSuchUser: no such user"), failure.Message);
                Same(failure.Class, StatusClass.User);
            }
            var aborted = Throws<DistagException>(() => a.Call<object>("b", "end"));
            Check((int)aborted.Code == 1000 && aborted.Message.Contains("ThreadAbortException"), aborted.Message);
            given.Fails(() => a.Call<object>("b", "find"));
        });
    }

    static void OwnStatus(Given given) {
        Action<Worker> offer = worker => {
            worker.Register<object>("refuse", () => { throw new DistagException((Status)1042, "not today"); });
            worker.Register("pass_on", (Call call) => call.Worker.Call<object>("b", "refuse"));
        };
        Group(offer, (a, b) => {
            given.Fails(() => a.Call<object>("b", "refuse"));
            given.Fails(() => a.Call<object>("a", "pass_on"));
            given.Fails(() => a.CallAsync<object>("a", "pass_on").Wait());
        });
    }

    static void Unknown(Given given) {
        Group((a, b) => Check(given.Fails(() => a.Call<object>("b", (string)given["function"])) is UsageException, "the class"));
    }

    static void Deadline(Given given) {
        var release = new ManualResetEventSlim();
        Group(worker => worker.Register<object>("wait", () => { release.Wait(Long); return null; }), (a, b) => {
            var options = new CallOptions { Timeout = TimeSpan.FromMilliseconds(given.Int("timeout_ms")) };
            Check(given.Fails(() => a.Call<object>(options, "b", "wait")) is GaveUpException, "the class");
            Check(given.Fails(() => a.CallAsync<object>(options, "b", "wait").Wait()) is GaveUpException, "the class");
            release.Set();
        });
    }

    static void Cancellation(Given given) {
        foreach (bool asTask in new[] { false, true }) {
            var began = new ManualResetEventSlim();
            var heard = new ManualResetEventSlim();
            Func<Call, object> wait = call => {
                began.Set();
                if (call.Token.WaitHandle.WaitOne(Long)) heard.Set();
                call.Token.ThrowIfCancellationRequested();
                return null;
            };
            Group(worker => worker.Register("wait", wait), (a, b) => {
                var source = new CancellationTokenSource();
                ThreadPool.QueueUserWorkItem(state => { began.Wait(Long); source.Cancel(); });
                if (asTask) {
                    Task<object> call = a.CallAsync<object>(source.Token, "b", "wait");
                    Throws<OperationCanceledException>(() => call.Wait());
                    Check(call.IsCanceled, call.Status.ToString());
                } else {
                    var cancelled = Throws<OperationCanceledException>(() => a.Call<object>(source.Token, "b", "wait"));
                    Same((int)((DistagException)cancelled.InnerException).Code, given.Int("status"));
                }
                Check(heard.Wait(Long), "the function did not hear of it");
            });
        }
    }

    static void Deferred(Given given) {
        Func<Call, object> later = call => {
            Reply reply = call.Defer();
            new Thread(() => reply.Finish(given["answer"])).Start();
            return null;
        };
        Func<Task<object>> asTask = async () => { await Task.Delay(1); return given["answer"]; };
        Group(worker => { worker.Register("later", later); worker.Register("as_task", asTask); }, (a, b) => {
            Same(a.Call<object>("b", "later"), given["answer"]);
            Same(a.Call<object>("b", "as_task"), given["answer"]);
        });
    }

    static void AnotherJob(Given given) {
        Group((a, b) => Group(null, (c, d) => {
            Same(c.Call<long>("d", "double", 2), 4L);
            given.Fails(() => a.Call<object>("c", "double", 1));
        }, "c", "d"));
    }

    static void EveryKind(Given given) {
        Group((a, b) => {
            foreach (object value in given.List("values")) Same(a.Call<object>("b", "echo", new[] { value }), value);
            foreach (string digits in given.List("bytes_hex")) {
                byte[] bytes = Enumerable.Range(0, digits.Length / 2).Select(i => Convert.ToByte(digits.Substring(2 * i, 2), 16)).ToArray();
                Same(a.Call<byte[]>("b", "echo", bytes), bytes);
            }
            Tensor sent = Made(DType.Float32, given["tensor"]);
            Same(Elements(a.Call<Tensor>("b", "echo", sent)), given.Doubles("tensor"));
            using (RRef kept = a.CreateRRef(new Dictionary<string, int> { { "kept", 1 } })) {
                RRef back = a.Call<RRef[]>("b", "echo", (object)new object[] { kept })[0];
                Same(back.Id, kept.Id);
                Same(kept.Local<Dictionary<string, long>>(), new Dictionary<string, long> { { "kept", 1 } });
                back.Dispose();
            }
        });
    }

    static void Depth(Given given) {
        object value = "leaf";
        for (int i = 0; i < given.Int("depth"); i++) value = new[] { value };
        Group((a, b) => {
            Same(a.Call<object>("b", "echo", new[] { value }), value);
            object deeper = new[] { value };
            given.Fails(() => a.Call<object>("b", "echo", new[] { deeper }));
            var itself = new object[1];
            itself[0] = itself;
            given.Fails(() => a.Call<object>("b", "echo", (object)itself));
        });
    }

    static void BigInteger(Given given) {
        Group((a, b) => {
            Same(a.Call<object>("b", "echo", given["value"]), given["value"]);
            Same(a.Call<object>("b", "echo", new[] { (long)given["value"] }), new[] { given["value"] });
            var tooLarge = Throws<UsageException>(() => a.Call<object>("b", "echo", 1UL << 63));
            Check(tooLarge.Message.Contains("args[0]"), tooLarge.Message);
            var narrow = Throws<UsageException>(() => a.Call<sbyte>("b", "echo", 300));
            Check(narrow.Message.Contains("SByte"), narrow.Message);
            Throws<UsageException>(() => a.Call<double>("b", "echo", given["value"]));
        });
    }

    static void NotANumber(Given given) {
        Group((a, b) => {
            Check(double.IsNaN(a.Call<double>("b", "echo", double.NaN)), "a number");
            var key = Throws<UsageException>(() => a.Call<object>("b", "echo", new Dictionary<double, int> { { double.NaN, 1 } }));
            Check(key.Message.Contains("args[0]"), key.Message);
        });
    }

    static void Nul(Given given) {
        Group((a, b) => {
            given.Fails(() => a.Call<object>("b", "echo", "a\0b"));
            given.Fails(() => a.Call<object>("b", "echo", new Dictionary<string, int> { { "a\0b", 1 } }));
            given.Fails(() => a.Call<object>("b\0", "echo", 1));
            given.Fails(() => a.Call<object>("b", "echo\0", 1));
            given.Fails(() => a.Call<object>(new CallOptions { Label = "a\0b" }, "b", "echo", 1));
            given.Fails(() => a.Register("a\0b", (long x) => x));
            given.Fails(() => new Worker(new WorkerOptions { Name = "a\0b" }));
            given.Fails(() => new Optimizer(null, "s\0gd", new object[0]));
            given.Fails(() => a.Call<object>("b", "echo", "half \uD800 of a pair"));
        });
    }

    static void ManyBytes(Given given) {
        var bytes = new byte[given.Int("size")];
        for (int i = 0; i < bytes.Length; i++) bytes[i] = (byte)i;
        Group((a, b) => Check(bytes.SequenceEqual(a.Call<byte[]>("b", "echo", bytes)), "other bytes"));
    }

    static void Path(Given given) {
        Group((a, b) => {
            foreach (object strange in new object[] { new object(), DayOfWeek.Friday, given.GetType(), new Func<int>(() => 1), 1.5m, DateTime.UtcNow }) {
                var layers = new Dictionary<string, object> { { "layers", new[] { strange } } };
                DistagException failure = given.Fails(() => a.Call<object>("b", "echo", 1, layers));
                Check(failure.Message.Contains((string)given["path"]), failure.Message);
            }
        });
    }

    static void TwoWorkers(Given given) {
        Tensor x = Leaf(given["x"]);
        Group((a, b) => {
            using (var context = new Context(a)) {
                Tensor loss = a.Call<Tensor>(context, "b", "square", x).Sum();
                Same(loss.GetItem(), given.Doubles("loss")[0]);
                context.Backward(loss);
                Same(Elements(context.Gradient(x)), given.Doubles("gradient"));
            }
        });
    }

    static void ThereAndBack(Given given) {
        Tensor x = Leaf(given["x"]);
        Func<Call, Tensor, Tensor> twice = (call, tensor) => call.Worker.Call<Tensor>(call.Context, "a", "square", tensor) * 2;
        Group(worker => worker.Register("twice_square", twice), (a, b) => {
            using (var context = new Context(a)) {
                Tensor loss = a.CallAsync<Tensor>(context, "b", "twice_square", x).Result.Sum();
                Same(loss.GetItem(), given.Doubles("loss")[0]);
                context.BackwardAsync(new BackwardOptions { Token = new CancellationTokenSource().Token }, loss).Wait();
                Same(Elements(context.Gradient(x)), given.Doubles("gradient"));
            }
        });
    }

    static void BothSides(Given given) {
        Tensor weight = Leaf(given["weight"]), x = Leaf(given["x"]);
        Context kept = null;
        Func<Call, Tensor, Tensor> scale = (call, tensor) => {
            kept = call.Context;
            return tensor * weight;
        };
        Group(worker => { worker.Register("scale", scale); worker.Register("gradient", () => kept.Gradient(weight)); }, (a, b) => {
            using (var context = new Context(a)) {
                context.Backward(a.Call<Tensor>(context, "b", "scale", x).Sum());
                Same(Elements(context.Gradient(x)), given.Doubles("gradient_of_x"));
                Same(Elements(a.Call<Tensor>("b", "gradient")), given.Doubles("gradient_of_weight"));
            }
            kept.Dispose();
        });
    }

    sealed class Broken : CustomOp {
        public override Tensor[] Forward(Tensor[] inputs) {
            return new[] { inputs[0] * 1 };
        }

        public override Tensor[] Backward(Tensor[] gradients) {
            throw new InvalidOperationException("out of luck");
        }
    }

    static void FailingOp(Given given) {
        Tensor x = Leaf(new object[] { 1L });
        Group(worker => worker.Register("run", (Tensor input) => Tensor.ApplyCustom("Broken", new Broken(), new[] { input })[0]), (a, b) => {
            using (var context = new Context(a)) {
                Tensor loss = a.Call<Tensor>(context, "b", "run", x).Sum();
                given.Fails(() => context.Backward(loss));
            }
        });
    }

    sealed class Counter {
        public static int Freed;
        public long Number;

        ~Counter() {
            Interlocked.Increment(ref Freed);
        }
    }

    static void CountThem(Given given) {
        Action<Worker> offer = worker => {
            worker.Register("make", () => new Counter());
            worker.Register("count", (RRef reference) => {
                using (reference) return ++reference.Local<Counter>().Number;
            });
        };
        Group(offer, (a, b) => {
            using (RRef reference = a.Remote("b", "make")) {
                foreach (object answer in given.List("answers")) Same(a.Call<object>("b", "count", reference), answer);
                GC.Collect();
                Same(Counter.Freed, 0);
            }
            Throws<UsageException>(() => a.Call<object>("b", "make")); // an object as an answer
        });
    }

    static void Objects(Given given) {
        Counter.Freed = 0;
        OnItsOwnStack(() => CountThem(given));
        var time = Stopwatch.StartNew();
        while (Counter.Freed < given.Int("freed") + 1 && time.Elapsed < TimeSpan.FromSeconds(120)) {
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }
        Same(Counter.Freed, given.Int("freed") + 1); // that of the refused answer, too
    }
}
