using System;
using Distag.Raw;

namespace Distag {
    /// <summary>The place of this process in its group, as its launcher tells; -1 and 0 where it does not.</summary>
    public sealed unsafe class LaunchEnvironment {
        /// <summary>-1 in an open world: the group gives one.</summary>
        public int Rank { get; private set; }
        /// <summary>-1: an open world.</summary>
        public int WorldSize { get; private set; }
        /// <summary>Among the processes of this node.</summary>
        public int LocalRank { get; private set; }
        /// <summary>The number of processes of this node.</summary>
        public int LocalSize { get; private set; }
        /// <summary>From 0.</summary>
        public int Node { get; private set; }
        /// <summary>The number of nodes.</summary>
        public int NodeCount { get; private set; }
        /// <summary>How often the launcher has started this anew.</summary>
        public int Restart { get; private set; }
        /// <summary>"own", "torchrun", "slurm" or "kubernetes".</summary>
        public string Launcher { get; private set; }

        LaunchEnvironment(distag_environment found) {
            Rank = found.rank;
            WorldSize = found.world_size;
            LocalRank = found.local_rank;
            LocalSize = found.local_size;
            Node = found.node;
            NodeCount = found.node_count;
            Restart = found.restart;
            Launcher = Text.Read((IntPtr)found.launcher);
        }

        /// <summary>What a worker whose options have no rank and size would take; the exception names all that is missing.</summary>
        public static LaunchEnvironment Read() {
            return Library.Later(() => {
                var error = new distag_error();
                var found = new distag_environment { struct_size = (uint)sizeof(distag_environment) };
                Errors.Check(Native.distag_get_environment(&found, &error), &error);
                return new LaunchEnvironment(found);
            });
        }
    }

    public sealed unsafe partial class Worker {
        /// <summary>Writes what the started worker does to folder/NAME.trace.json, which https://ui.perfetto.dev shows. Without a folder it is
        /// the one that DISTAG_TRACE names; maxBytes 0: 256 MiB.</summary>
        public void StartTrace(string folder = null, ulong maxBytes = 0) {
            var error = new distag_error();
            using (var memory = new Memory()) {
                var how = new distag_trace_options { struct_size = (uint)sizeof(distag_trace_options), max_bytes = maxBytes, folder = memory.Copy(folder, "folder") };
                Errors.Check(Native.distag_worker_start_trace(Handle, &how, &error), &error);
            }
        }

        /// <summary>Ends the trace, if there is one, and closes its file, as the shutdown does.</summary>
        public void StopTrace() {
            var error = new distag_error();
            Errors.Check(Native.distag_worker_stop_trace(Handle, &error), &error);
        }

        /// <summary>A span in the trace, which Dispose ends, on any thread: using (worker.Trace("step")) { ... }</summary>
        public IDisposable Trace(string label) {
            if (label == null) throw new ArgumentNullException("label");
            var error = new distag_error();
            ulong span;
            Errors.Check(Native.distag_trace_begin(Handle, Text.Give(label, "label"), &span, &error), &error);
            return new Span(Handle, span);
        }

        sealed class Span : IDisposable {
            readonly WorkerHandle worker;
            long span;

            internal Span(WorkerHandle worker, ulong span) {
                this.worker = worker;
                this.span = unchecked((long)span);
            }

            public void Dispose() {
                long open = System.Threading.Interlocked.Exchange(ref span, 0);
                if (open == 0) return;
                try {
                    Native.distag_trace_end(worker, unchecked((ulong)open));
                } catch (ObjectDisposedException) {} // the file is closed
            }
        }
    }

    /// <summary>Options of a drawing.</summary>
    public sealed class PictureOptions {
        /// <summary>Text unless it is set.</summary>
        public PictureFormat Format { get; set; }
        /// <summary>Text with escape codes.</summary>
        public bool Color { get; set; }
        /// <summary>Columns of text; 0: 80.</summary>
        public int Width { get; set; }
        /// <summary>With Column the two dims that are drawn; 0 and 0: the first two.</summary>
        public int Row { get; set; }
        /// <summary>The other one.</summary>
        public int Column { get; set; }
        /// <summary>Before the numbers of members; null: "CPU".</summary>
        public string Label { get; set; }
    }

    public sealed unsafe partial class Mesh {
        /// <summary>Draws which members hold which part of a tensor under a spec, such as "('data', None)".</summary>
        public string Visualize(string spec, long[] shape = null, PictureOptions options = null) {
            Handle.MustBeOpen("mesh");
            return Draw(Handle, spec, shape, options);
        }

        /// <summary>The same without a mesh: the spec is HLO text, which names devices itself, "{devices=[2,2]0,1,2,3}".</summary>
        public static string VisualizeSharding(string spec, long[] shape = null, PictureOptions options = null) {
            return Library.Later(() => Draw(MeshHandle.Null, spec, shape, options));
        }

        static string Draw(MeshHandle mesh, string spec, long[] shape, PictureOptions options) {
            options = options ?? new PictureOptions();
            if (options.Width < 0 || options.Row < 0 || options.Column < 0) throw Errors.Usage("Visualize: a negative width or dim");
            using (var memory = new Memory()) {
                var how = new distag_picture_options { struct_size = (uint)sizeof(distag_picture_options), format = (uint)options.Format,
                    color = options.Color ? 1u : 0, width = (uint)options.Width, row_dim = (uint)options.Row, column_dim = (uint)options.Column,
                    label = memory.Copy(options.Label, "Label") };
                byte[] text = Text.Give(spec, "spec");
                return Text.Copied((byte[] buffer, UIntPtr capacity, out UIntPtr size) => {
                    var error = new distag_error();
                    UIntPtr found;
                    distag_picture_options given = how;
                    Errors.Check(Native.distag_visualize_sharding(mesh, text, shape, (UIntPtr)(shape == null ? 0 : shape.Length), &given, buffer,
                        capacity, &found, &error), &error);
                    size = found;
                });
            }
        }
    }
}
