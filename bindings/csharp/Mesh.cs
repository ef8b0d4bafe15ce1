using System;
using System.Threading;
using Distag.Raw;

namespace Distag {
    /// <summary>Options of a collective.</summary>
    public sealed class CollectiveOptions {
        /// <summary>Among the members that differ only in these; null: all.</summary>
        public string Axes { get; set; }
        /// <summary>Sum unless it is set.</summary>
        public Reduction Reduction { get; set; }
        /// <summary>Negative: from the end.</summary>
        public long Dim { get; set; }
        /// <summary>Where blocks are joined.</summary>
        public long DimTo { get; set; }
        /// <summary>A position among those that take part.</summary>
        public long Root { get; set; }
        /// <summary>Positions in a circle.</summary>
        public long Shift { get; set; }
        /// <summary>Null: that of the mesh.</summary>
        public TimeSpan? Timeout { get; set; }
    }

    /// <summary>Arranges workers, its members, as a grid whose axes have names. All members make the same calls on it, in the same
    /// order; members in one process take a thread each.</summary>
    public sealed unsafe partial class Mesh : IDisposable {
        internal readonly MeshHandle Handle;

        /// <summary>Makes a mesh of all living members of the group, and waits until they have come.</summary>
        public Mesh(Worker worker, string[] axes, long[] shape, CancellationToken token = default(CancellationToken)) {
            if (worker == null) throw new ArgumentNullException("worker");
            if (axes == null || shape == null || axes.Length != shape.Length) throw Errors.Usage("Mesh: one name and one size for each axis");
            var error = new distag_error();
            IntPtr made, future;
            using (var memory = new Memory()) {
                var names = Array.ConvertAll(axes, each => memory.Copy(each, "axis"));
                Errors.Check(Native.distag_mesh_create_async(worker.Handle, null, UIntPtr.Zero, shape, names, (UIntPtr)shape.Length, null,
                    &made, &future, &error), &error);
            }
            Handle = new MeshHandle(made);
            try {
                Future.Wait(future, token);
            } catch {
                Dispose();
                throw;
            }
        }

        /// <summary>Takes this worker out of the mesh.</summary>
        public void Dispose() {
            Handle.Dispose();
        }

        /// <summary>Runs a collective on a plain tensor; null where this member gets none.</summary>
        public Tensor Collective(CollectiveKind kind, Tensor x, CollectiveOptions options = null) {
            options = options ?? new CollectiveOptions();
            var error = new distag_error();
            var how = new distag_collective_options { struct_size = (uint)sizeof(distag_collective_options),
                reduction = (uint)options.Reduction, dim = options.Dim, dim_to = options.DimTo, root = options.Root,
                shift = options.Shift, timeout_ns = Times.InOptions(options.Timeout, "Timeout") };
            IntPtr made;
            Errors.Check(Native.distag_collective(Handle, (uint)kind, Text.Give(options.Axes, "Axes"), Tensor.Of(x, "x"), &how, &made, &error), &error);
            return made == IntPtr.Zero ? null : new Tensor(made);
        }

        /// <summary>Makes a context that all members share: Backward on it is collective.</summary>
        public Context CreateJointContext() {
            var error = new distag_error();
            IntPtr made;
            Errors.Check(Native.distag_context_create_joint(Handle, &made, &error), &error);
            return new Context(new ContextHandle(made), false);
        }

        /// <summary>Makes a sharded tensor of which local is this worker's shard, as a spec such as "('data', None)" says.</summary>
        public Tensor FromLocal(Tensor local, string spec, params long[] shape) {
            var error = new distag_error();
            IntPtr made;
            Errors.Check(Native.distag_tensor_from_local(Handle, Tensor.Of(local, "local"), Text.Give(spec, "spec"), shape.Length == 0 ? null : shape,
                (UIntPtr)shape.Length, null, &made, &error), &error);
            return new Tensor(made);
        }
    }

    public sealed unsafe partial class Tensor {
        /// <summary>Turns this tensor, without history, into a sharded one. sourceRank -1: each member has all of it already.</summary>
        public void MarkSharding(Mesh mesh, string spec, int sourceRank = -1) {
            if (mesh == null) throw new ArgumentNullException("mesh");
            mesh.Handle.MustBeOpen("mesh");
            var error = new distag_error();
            Errors.Check(Native.distag_tensor_mark_sharding(Handle, mesh.Handle, Text.Give(spec, "spec"), sourceRank, &error), &error);
        }

        /// <summary>The same values under another spec; recorded.</summary>
        public Tensor Redistribute(string spec) {
            var error = new distag_error();
            IntPtr made;
            Errors.Check(Native.distag_redistribute(Handle, Text.Give(spec, "spec"), 0, &made, &error), &error);
            return new Tensor(made);
        }

        /// <summary>The shard of this worker as a plain tensor.</summary>
        public Tensor ToLocal() {
            var error = new distag_error();
            IntPtr made;
            Errors.Check(Native.distag_tensor_to_local(Handle, null, &made, &error), &error);
            return new Tensor(made);
        }

        /// <summary>The whole as a plain tensor without history, on the member of a rank (null elsewhere), or with -1 on all.</summary>
        public Tensor GatherWhole(int rank = -1, TimeSpan? timeout = null) {
            var error = new distag_error();
            IntPtr made;
            Errors.Check(Native.distag_tensor_gather(Handle, rank, Times.InOptions(timeout, "timeout"), &made, &error), &error);
            return made == IntPtr.Zero ? null : new Tensor(made);
        }
    }
}
