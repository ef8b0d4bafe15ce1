using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using System.Threading.Tasks;
using Distag.Raw;

namespace Distag {
    /// <summary>Options of a pass.</summary>
    public sealed class BackwardOptions {
        /// <summary>A gradient for each root; null for one that is a scalar.</summary>
        public Tensor[] Seeds { get; set; }
        /// <summary>Scalar roots that live on other workers.</summary>
        public RRef[] RemoteRoots { get; set; }
        /// <summary>Keep the graph for another pass.</summary>
        public bool RetainGraph { get; set; }
        /// <summary>Gradients have a history, for a pass through them.</summary>
        public bool CreateGraph { get; set; }
        /// <summary>Expect that the roots depend on every recorded call.</summary>
        public bool Fast { get; set; }
        /// <summary>Null: none.</summary>
        public TimeSpan? Timeout { get; set; }
        /// <summary>Cancels the pass; needs a worker.</summary>
        public CancellationToken Token { get; set; }
    }

    /// <summary>One forward and its backward passes. Dispose it to end it everywhere it reached.</summary>
    public sealed unsafe partial class Context : IDisposable {
        internal readonly ContextHandle Handle;
        readonly bool hasWorker;

        internal Context(ContextHandle handle, bool hasWorker) {
            Handle = handle;
            this.hasWorker = hasWorker;
        }

        /// <summary>Makes a context for calls and passes of a worker; without one, for training within this process.</summary>
        public Context(Worker worker = null) {
            Handle = Library.Later(() => {
                var error = new distag_error();
                IntPtr made;
                Errors.Check(Native.distag_context_create(worker == null ? WorkerHandle.Null : worker.Handle, &made, &error), &error);
                return new ContextHandle(made);
            });
            hasWorker = worker != null;
        }

        /// <summary>Ends the context: records and gradients are dropped, here and on every worker it reached.</summary>
        public void Dispose() {
            Handle.Dispose();
        }

        /// <summary>Runs a pass from roots of one element through every worker they depend on.</summary>
        public void Backward(params Tensor[] roots) {
            Backward(new BackwardOptions(), roots);
        }

        /// <summary>The same with options.</summary>
        public void Backward(BackwardOptions options, params Tensor[] roots) {
            if (options == null) throw new ArgumentNullException("options");
            if (options.Token.CanBeCanceled && hasWorker) Future.Wait(Begin(options, roots, true), options.Token);
            else Begin(options, roots, false);
        }

        /// <summary>The same as a task; needs a worker.</summary>
        public Task BackwardAsync(BackwardOptions options, params Tensor[] roots) {
            if (options == null) throw new ArgumentNullException("options");
            options.Token.ThrowIfCancellationRequested();
            return Future.Start(Begin(options, roots, true), options.Token, value => true);
        }

        IntPtr Begin(BackwardOptions options, Tensor[] roots, bool asTask) {
            Tensor[] seeds = options.Seeds ?? new Tensor[0];
            if (options.Seeds != null && seeds.Length != roots.Length)
                throw Errors.Usage("Backward: " + seeds.Length + " seeds for " + roots.Length + " roots: give one, or null, for each");
            SafeHandle[] references = RRef.HandlesOf(options.RemoteRoots ?? new RRef[0], "RemoteRoots");
            var error = new distag_error();
            IntPtr future = IntPtr.Zero;
            using (var held = new HandleArray(roots, "roots"))
            using (var ofSeeds = new HandleArray(HandleArray.HandlesOf(seeds, "Seeds", true)))
            using (var remote = new HandleArray(references))
            fixed (IntPtr* firstSeed = ofSeeds.Pointers)
            fixed (IntPtr* firstRemote = remote.Pointers) {
                var how = new distag_backward_options { struct_size = (uint)sizeof(distag_backward_options),
                    mode = options.Fast ? (uint)Native.DISTAG_BACKWARD_FAST : 0, retain_graph = options.RetainGraph ? 1u : 0,
                    create_graph = options.CreateGraph ? 1u : 0, timeout_ns = Times.InOptions(options.Timeout, "Timeout"),
                    seeds = options.Seeds == null ? IntPtr.Zero : (IntPtr)firstSeed,
                    remote_roots = references.Length == 0 ? IntPtr.Zero : (IntPtr)firstRemote, remote_root_count = (UIntPtr)references.Length };
                Errors.Check(asTask ? Native.distag_backward_async(Handle, held.Pointers, held.Count, &how, &future, &error)
                                    : Native.distag_backward(Handle, held.Pointers, held.Count, &how, &error), &error);
            }
            return future;
        }

        /// <summary>The gradients that leaves of this worker have, summed over the passes.</summary>
        public Gradients GetGradients() {
            var error = new distag_error();
            IntPtr made;
            Errors.Check(Native.distag_get_gradients(Handle, &made, &error), &error);
            return new Gradients(made);
        }

        /// <summary>The gradient of one leaf.</summary>
        public Tensor Gradient(Tensor leaf) {
            using (Gradients all = GetGradients()) {
                Tensor found = all.Find(leaf);
                if (found != null) return found;
            }
            throw new UsageException(Status.NotFound,
                "no pass of this context has reached the tensor on this worker: ask for a leaf that requires a gradient");
        }

        /// <summary>The counts of the context on this worker.</summary>
        public ContextInfo GetInfo() {
            var error = new distag_error();
            var found = new distag_context_info { struct_size = (uint)sizeof(distag_context_info) };
            Errors.Check(Native.distag_context_get_info(Handle, &found, &error), &error);
            return new ContextInfo(found);
        }

        /// <summary>Passes and graph of the context on this worker in JSON.</summary>
        public string GetReport() {
            return Text.Copied((byte[] buffer, UIntPtr capacity, out UIntPtr size) => {
                var error = new distag_error();
                UIntPtr found;
                Errors.Check(Native.distag_context_copy_report(Handle, buffer, capacity, &found, &error), &error);
                size = found;
            });
        }
    }

    /// <summary>A snapshot of the gradients that leaves of this worker have in a context.</summary>
    public sealed unsafe partial class Gradients : IDisposable {
        internal readonly GradientsHandle Handle;

        internal Gradients(IntPtr owned) {
            Handle = new GradientsHandle(owned);
        }

        /// <summary>The leaves that were reached.</summary>
        public int Count {
            [MethodImpl(MethodImplOptions.NoInlining)] get { return (int)Native.distag_gradients_get_count(Handle); }
        }

        /// <summary>The gradient of a leaf; null when no pass has reached it.</summary>
        public Tensor Find(Tensor leaf) {
            using (Handle.Hold()) {
                IntPtr found = Native.distag_gradients_find(Handle, Tensor.Of(leaf, "leaf"));
                return found == IntPtr.Zero ? null : Tensor.Lent(found);
            }
        }

        /// <summary>Every leaf and its gradient, in the order of their ids.</summary>
        public KeyValuePair<Tensor, Tensor>[] ToArray() {
            using (Handle.Hold()) {
                var all = new KeyValuePair<Tensor, Tensor>[Count];
                for (int i = 0; i < all.Length; i++)
                    all[i] = new KeyValuePair<Tensor, Tensor>(Tensor.Lent(Native.distag_gradients_get_tensor(Handle, (UIntPtr)i)),
                        Tensor.Lent(Native.distag_gradients_get_gradient(Handle, (UIntPtr)i)));
                return all;
            }
        }

        /// <summary>Releases the snapshot.</summary>
        public void Dispose() {
            Handle.Dispose();
        }
    }

    /// <summary>A reference to a value at its owner.</summary>
    public sealed unsafe partial class RRef : IDisposable {
        internal readonly RRefHandle Handle;

        internal RRef(RRefHandle handle) {
            Handle = handle;
        }

        internal static SafeHandle[] HandlesOf(RRef[] references, string name) {
            var handles = new SafeHandle[references.Length];
            for (int i = 0; i < handles.Length; i++) {
                if (references[i] == null) throw new ArgumentNullException(name + "[" + i + "]");
                references[i].Handle.MustBeOpen(name, i);
                handles[i] = references[i].Handle;
            }
            return handles;
        }

        /// <summary>Waits for the value: at its owner the value itself, elsewhere a copy.</summary>
        public T Fetch<T>(CallOptions options = null) {
            CancellationToken token = (options ?? CallOptions.None).Token;
            token.ThrowIfCancellationRequested();
            return Value.Answer<T>(Future.Wait(Begin(options), token));
        }

        /// <summary>The same as a task.</summary>
        public Task<T> FetchAsync<T>(CallOptions options = null) {
            return Future.Start(Begin(options), (options ?? CallOptions.None).Token, Value.Answer<T>);
        }

        IntPtr Begin(CallOptions options) {
            options = options ?? CallOptions.None;
            var error = new distag_error();
            IntPtr future;
            using (var memory = new Memory()) {
                distag_call_options how = options.Struct(memory);
                Errors.Check(Native.distag_rref_fetch_async(Handle, options.ContextHandle, &how, &future, &error), &error);
            }
            return future;
        }

        /// <summary>The value itself, at its owner.</summary>
        public T Local<T>() {
            var error = new distag_error();
            IntPtr found;
            using (Handle.Hold()) {
                Errors.Check(Native.distag_rref_get_local(Handle, &found, &error), &error);
                return Value.Answer<T>(Builder.Read(found));
            }
        }

        /// <summary>Gives the reference back.</summary>
        public void Dispose() {
            Handle.Dispose();
        }
    }

    /// <summary>An update rule and its state, kept where each parameter is.</summary>
    public sealed unsafe class Optimizer : IDisposable {
        internal readonly OptimizerHandle Handle;

        /// <summary>"sgd", "adagrad", "adam", "adamw", "adadelta", "rmsprop", "adamax" or "rprop", with the rules and defaults of PyTorch.
        /// Parameters are Tensor, or RRef to a tensor or a list of tensors anywhere; the worker may be null when all are tensors.</summary>
        public Optimizer(Worker worker, string kind, object[] parameters, IDictionary<string, double> settings = null) {
            if (parameters == null) throw new ArgumentNullException("parameters");
            Handle = Library.Later(() => {
                var error = new distag_error();
                IntPtr made;
                using (var builder = new Builder()) {
                    IntPtr[] given = builder.Arguments(parameters);
                    Errors.Check(Native.distag_optimizer_create(worker == null ? WorkerHandle.Null : worker.Handle, Text.Give(kind, "kind"),
                        given, (UIntPtr)parameters.Length, &made, &error), &error);
                }
                return new OptimizerHandle(made);
            });
            if (settings == null) return;
            try {
                foreach (KeyValuePair<string, double> each in settings) Set(each.Key, each.Value);
            } catch {
                Dispose();
                throw;
            }
        }

        /// <summary>Releases the optimizer.</summary>
        public void Dispose() {
            Handle.Dispose();
        }

        /// <summary>Changes a setting ("lr", "momentum" ...) from the next step on.</summary>
        public void Set(string setting, double value) {
            var error = new distag_error();
            Errors.Check(Native.distag_optimizer_set(Handle, Text.Give(setting, "setting"), value, &error), &error);
        }

        static ContextHandle Of(Context context) {
            if (context == null) throw new ArgumentNullException("context");
            context.Handle.MustBeOpen("context");
            return context.Handle;
        }

        /// <summary>Updates each parameter with its gradient in the context, at all owners side by side.</summary>
        public void Step(Context context, TimeSpan? timeout = null) {
            var error = new distag_error();
            var how = new distag_call_options { struct_size = (uint)sizeof(distag_call_options), timeout_ns = Times.InOptions(timeout, "timeout") };
            Errors.Check(Native.distag_optimizer_step(Handle, Of(context), &how, &error), &error);
        }

        /// <summary>The same as a task; needs a worker.</summary>
        public Task StepAsync(Context context, CallOptions options = null) {
            options = options ?? CallOptions.None;
            var error = new distag_error();
            IntPtr future;
            using (var memory = new Memory()) {
                distag_call_options how = options.Struct(memory);
                Errors.Check(Native.distag_optimizer_step_async(Handle, Of(context), &how, &future, &error), &error);
            }
            return Future.Start(future, options.Token, value => true);
        }

        /// <summary>Scales the gradients so that their joint norm is at most maxNorm, and gives the norm that it found.</summary>
        public double Clip(Context context, double maxNorm) {
            var error = new distag_error();
            double norm;
            Errors.Check(Native.distag_optimizer_clip(Handle, Of(context), maxNorm, null, &norm, &error), &error);
            return norm;
        }

        /// <summary>The state at all owners and the settings as one value.</summary>
        public object Save() {
            var error = new distag_error();
            IntPtr state;
            Errors.Check(Native.distag_optimizer_save(Handle, null, &state, &error), &error);
            return Builder.Take(state);
        }

        /// <summary>Puts a saved state back.</summary>
        public void Load(object state) {
            var error = new distag_error();
            using (var builder = new Builder())
                Errors.Check(Native.distag_optimizer_load(Handle, builder.Value(state, false), null, &error), &error);
        }
    }
}
