using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using System.Threading;

namespace Distag.Raw {
    /// <summary>One reference of C. It is released once: by Dispose, or by the collector. A call holds it until it returns.</summary>
    public abstract class NativeHandle : SafeHandle {
        long bytes;

        internal NativeHandle(IntPtr owned) : base(IntPtr.Zero, true) {
            SetHandle(owned);
        }

        /// <summary>Stands for NULL.</summary>
        public override bool IsInvalid {
            get { return handle == IntPtr.Zero; }
        }

        internal abstract void Release(IntPtr owned);

        /// <summary>A release never blocks. Once the process ends the library is left alone.</summary>
        protected override bool ReleaseHandle() {
            if (!Library.HasEnded) Release(handle);
            NativeMemory.Add(-bytes);
            return true;
        }

        internal void Count(long size) {
            bytes = size;
            NativeMemory.Add(size);
        }

        /// <summary>For a handle that is not the first of a call: where a later one is closed, Mono forgets to give the earlier ones
        /// back. An index is that in a list of this name.</summary>
        internal void MustBeOpen(string name, int index = -1) {
            if (IsClosed) throw new ObjectDisposedException(index < 0 ? name : name + "[" + index + "]", "use it before its Dispose");
        }

        internal Held Hold() {
            return new Held(this);
        }
    }

    /// <summary>Keeps a handle for the length of a using.</summary>
    struct Held : IDisposable {
        readonly SafeHandle handle;

        internal Held(SafeHandle handle) {
            bool held = false;
            handle.DangerousAddRef(ref held);
            this.handle = handle;
        }

        public void Dispose() {
            handle.DangerousRelease();
        }
    }

    /// <summary>Bytes of tensors that the collector does not see. A collection starts when they have doubled since the last one,
    /// beyond 64 MiB: Mono's collector takes AddMemoryPressure, and does nothing with it.</summary>
    static class NativeMemory {
        const long Least = 64 << 20, Large = 64 << 10;
        static long alive, leastSince;
        static int collecting;

        internal static void Add(long bytes) {
            if (bytes == 0) return;
            long now = Interlocked.Add(ref alive, bytes);
            if (bytes < 0) {
                if (-bytes >= Large) GC.RemoveMemoryPressure(-bytes);
                long least = Interlocked.Read(ref leastSince);
                while (now < least) {
                    long seen = Interlocked.CompareExchange(ref leastSince, now, least);
                    if (seen == least) break;
                    least = seen;
                }
                return;
            }
            if (bytes >= Large) GC.AddMemoryPressure(bytes);
            if (now <= Least || now <= 2 * Interlocked.Read(ref leastSince)) return;
            if (Interlocked.CompareExchange(ref collecting, 1, 0) != 0) return;
            Interlocked.Exchange(ref leastSince, now);
            GC.Collect();
            Interlocked.Exchange(ref collecting, 0);
        }
    }

    /// <summary>Handles that are held together, as an array for C.</summary>
    sealed class HandleArray : IDisposable {
        internal readonly IntPtr[] Pointers;
        readonly SafeHandle[] held;

        /// <summary>Of objects; a null of an array that may have some is NULL.</summary>
        internal HandleArray(SafeHandle[] handles) {
            Pointers = new IntPtr[Math.Max(1, handles.Length)];
            held = new SafeHandle[handles.Length];
            try {
                for (int i = 0; i < handles.Length; i++) {
                    if (handles[i] == null) continue;
                    bool done = false;
                    handles[i].DangerousAddRef(ref done);
                    held[i] = handles[i];
                    Pointers[i] = handles[i].DangerousGetHandle();
                }
            } catch {
                Dispose();
                throw;
            }
        }

        internal HandleArray(Tensor[] tensors, string name) : this(HandlesOf(tensors, name, false)) {}

        internal UIntPtr Count {
            get { return (UIntPtr)held.Length; }
        }

        internal static SafeHandle[] HandlesOf(Tensor[] tensors, string name, bool nullable) {
            if (tensors == null) throw new ArgumentNullException(name);
            var handles = new SafeHandle[tensors.Length];
            for (int i = 0; i < handles.Length; i++) {
                if (tensors[i] == null && !nullable) throw new ArgumentNullException(name + "[" + i + "]");
                if (tensors[i] == null) continue;
                tensors[i].Kept.MustBeOpen(name, i);
                handles[i] = tensors[i].Kept;
            }
            return handles;
        }

        public void Dispose() {
            for (int i = 0; i < held.Length; i++) {
                if (held[i] != null) held[i].DangerousRelease();
                held[i] = null;
            }
        }
    }

    /// <summary>Memory of C until the end of a using.</summary>
    sealed class Memory : IDisposable {
        readonly List<IntPtr> blocks = new List<IntPtr>();

        internal unsafe IntPtr Zeroed(int size) {
            IntPtr block = Marshal.AllocHGlobal(Math.Max(1, size));
            blocks.Add(block);
            for (int i = 0; i < size; i++) ((byte*)block)[i] = 0;
            return block;
        }

        internal IntPtr Copy(string text, string what) {
            byte[] bytes = Text.Give(text, what);
            if (bytes == null) return IntPtr.Zero;
            IntPtr block = Zeroed(bytes.Length);
            Marshal.Copy(bytes, 0, block, bytes.Length);
            return block;
        }

        internal IntPtr Copy(ICollection<string> texts, string what) {
            IntPtr array = Zeroed((texts.Count + 1) * IntPtr.Size);
            int i = 0;
            foreach (string text in texts) Marshal.WriteIntPtr(array, i++ * IntPtr.Size, Copy(text, what));
            return array;
        }

        public void Dispose() {
            foreach (IntPtr block in blocks) Marshal.FreeHGlobal(block);
            blocks.Clear();
        }
    }
}

namespace Distag {
    /// <summary>Disposes at its end the tensors that its thread made since its begin, but those that are kept. A training loop
    /// in a using of one is flat without a collector. It may end on another thread, and after the scope around it, but it takes
    /// what its own thread makes until then: do not await in one.</summary>
    public sealed class Scope : IDisposable {
        [ThreadStatic] static Scope current;
        readonly Scope outer;
        readonly HashSet<TensorHandleKey> made = new HashSet<TensorHandleKey>(); // locked: Dispose and Keep come from any thread
        volatile bool closed;

        /// <summary>Begins.</summary>
        public Scope() {
            outer = Open(current);
            current = this;
        }

        // Two objects of one tensor are two members.
        struct TensorHandleKey : IEquatable<TensorHandleKey> {
            internal Tensor Tensor;

            public bool Equals(TensorHandleKey other) {
                return ReferenceEquals(Tensor, other.Tensor);
            }

            public override int GetHashCode() {
                return System.Runtime.CompilerServices.RuntimeHelpers.GetHashCode(Tensor);
            }
        }

        static Scope Open(Scope scope) {
            while (scope != null && scope.closed) scope = scope.outer;
            return scope;
        }

        // False when the scope has ended meanwhile.
        bool Take(Tensor tensor) {
            lock (made) {
                if (closed) return false;
                made.Add(new TensorHandleKey { Tensor = tensor });
                return true;
            }
        }

        internal static void Add(Tensor tensor) {
            if (current == null) return;
            do current = Open(current);
            while (current != null && !current.Take(tensor));
        }

        /// <summary>Lets a tensor outlive the scope; it belongs to the scope around, if there is one.</summary>
        public Tensor Keep(Tensor tensor) {
            bool removed;
            lock (made) removed = made.Remove(new TensorHandleKey { Tensor = tensor });
            if (!removed) return tensor;
            Scope around = Open(outer);
            while (around != null && !around.Take(tensor)) around = Open(around);
            return tensor;
        }

        /// <summary>Ends.</summary>
        public void Dispose() {
            TensorHandleKey[] all;
            lock (made) {
                if (closed) return;
                closed = true;
                all = new TensorHandleKey[made.Count];
                made.CopyTo(all);
                made.Clear();
            }
            if (current == this) current = Open(outer);
            foreach (TensorHandleKey each in all) each.Tensor.Dispose();
        }
    }
}
