using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using Distag.Raw;

namespace Distag {
    /// <summary>A dense array of numbers with its history. Two objects of one tensor are equal.</summary>
    public sealed unsafe partial class Tensor : IDisposable {
        internal readonly TensorHandle Kept; // also after Dispose
        internal TensorHandle Handle {
            get {
                Kept.MustBeOpen("Tensor");
                return Kept;
            }
        }

        // By the plain handle, without a SafeHandle: nobody else has it yet, and this runs for each result of an op.
        [DllImport(Native.SONAME, CallingConvention = CallingConvention.Cdecl, EntryPoint = "distag_tensor_get_size")]
        static extern UIntPtr SizeOf(IntPtr tensor);

        /// <summary>Takes one reference.</summary>
        internal Tensor(IntPtr owned) {
            Kept = new TensorHandle(owned);
            Kept.Count((long)SizeOf(owned));
            Scope.Add(this);
        }

        internal static Tensor Lent(IntPtr lent) {
            Native.distag_tensor_retain(lent);
            return new Tensor(lent);
        }

        /// <summary>Releases the tensor; graphs and messages that need it keep it.</summary>
        public void Dispose() {
            Kept.Dispose();
        }

        internal static TensorHandle Of(Tensor tensor, string name) {
            if (tensor == null) throw new ArgumentNullException(name);
            tensor.Kept.MustBeOpen(name);
            return tensor.Kept;
        }

        static TensorHandle OrNull(Tensor tensor) {
            return tensor == null ? TensorHandle.Null : Of(tensor, "tensor");
        }

        static UIntPtr Length(long[] list) {
            return (UIntPtr)(list == null ? 0 : list.Length);
        }

        static long[] Pair(string op, string name, long[] given) {
            if (given != null && given.Length == 2) return given;
            throw Errors.Usage(op + ": " + name + " has two items: rows, columns");
        }

        // ---- making ----

        static DType DTypeOf(Type type) {
            if (type == typeof(float)) return DType.Float32;
            if (type == typeof(double)) return DType.Float64;
            if (type == typeof(long)) return DType.Int64;
            if (type == typeof(bool)) return DType.Bool;
            throw Errors.Usage(type + " is no type of a dtype: use float, double, long or bool");
        }

        static int SizeOf(DType dtype) {
            return dtype == DType.Bool ? 1 : dtype == DType.Float32 ? 4 : 8;
        }

        /// <summary>Runs with a pointer to the first of an array of float, double, long or bool.</summary>
        static void Pinned(Array data, Action<IntPtr> use) {
            fixed (float* floats = data as float[])
            fixed (double* doubles = data as double[])
            fixed (long* longs = data as long[])
            fixed (bool* bools = data as bool[])
                use((IntPtr)(floats != null ? floats : doubles != null ? doubles : longs != null ? longs : (void*)bools));
        }

        /// <summary>Copies data (float, double, long or bool), row-major, into a new tensor; without a shape it has one dim.</summary>
        public static Tensor From<T>(T[] data, params long[] shape) where T : struct {
            if (data == null) throw new ArgumentNullException("data");
            return Create(data, shape.Length == 0 ? new long[] { data.Length } : shape);
        }

        /// <summary>Makes a tensor without dims.</summary>
        public static Tensor Scalar<T>(T value) where T : struct {
            return Create(new T[] { value }, new long[0]);
        }

        static Tensor Made(Func<IntPtr> make) {
            return new Tensor(Library.Later(make));
        }

        static Tensor Create(Array data, long[] shape) {
            Library.Require();
            DType dtype = DTypeOf(data.GetType().GetElementType());
            IntPtr made = IntPtr.Zero;
            Pinned(data, first => {
                var error = new distag_error();
                IntPtr created;
                Errors.Check(Native.distag_tensor_create((void*)first, (UIntPtr)((long)data.Length * SizeOf(dtype)), (int)dtype, shape,
                    Length(shape), &created, &error), &error);
                made = created;
            });
            return new Tensor(made);
        }

        /// <summary>Makes a tensor over size bytes of memory of C, without a copy. It stays as it is until release runs, on any thread,
        /// also when this fails. A borrowed tensor cannot be written or stepped.</summary>
        public static Tensor Borrow(IntPtr data, long size, DType dtype, Action release, params long[] shape) {
            if (size < 0) {
                var wrong = Errors.Usage("Borrow: the size is " + size + ": give the bytes of the memory");
                try { if (release != null) release(); }
                catch (Exception failure) { throw new AggregateException(wrong, failure); }
                throw wrong;
            }
            return Made(() => {
                var error = new distag_error();
                IntPtr made;
                IntPtr kept = Callbacks.Keep(release ?? (Action)(() => {}));
                Errors.Check(Native.distag_tensor_create_borrowed((void*)data, (UIntPtr)size, (int)dtype, shape, null, Length(shape), kept,
                    Callbacks.Run, &made, &error), &error);
                return made;
            });
        }

        /// <summary>The same over an array (float, double or long), which the collector cannot move until no tensor, graph or message
        /// needs it, and which nothing may write until then.</summary>
        public static Tensor Borrow<T>(T[] data, params long[] shape) where T : struct {
            if (data == null) throw new ArgumentNullException("data");
            DType dtype = DTypeOf(data.GetType().GetElementType());
            if (dtype == DType.Bool) throw Errors.Usage("Borrow: the runtime cannot pin a bool[]: copy it by From");
            GCHandle pinned = GCHandle.Alloc(data, GCHandleType.Pinned);
            return Borrow(pinned.AddrOfPinnedObject(), (long)data.Length * SizeOf(dtype), dtype, pinned.Free,
                shape.Length == 0 ? new long[] { data.Length } : shape);
        }

        /// <summary>A tensor with the values of this one, which asks for gradients: a leaf to train.</summary>
        public static Tensor Parameter(Tensor values) {
            Tensor parameter = values.Detach().Clone();
            parameter.RequiresGradient(true);
            return parameter;
        }

        // ---- looking ----

        distag_tensor_info Info() {
            var error = new distag_error();
            var info = new distag_tensor_info { struct_size = (uint)sizeof(distag_tensor_info) };
            Errors.Check(Native.distag_tensor_get_info(Handle, &info, &error), &error);
            return info;
        }

        static long[] ListOf(IntPtr first, UIntPtr count) {
            var list = new long[(int)count];
            if (list.Length > 0) Marshal.Copy(first, list, 0, list.Length);
            return list;
        }

        /// <summary>The size of each dim.</summary>
        public long[] Shape {
            get {
                using (Handle.Hold()) {
                    distag_tensor_info info = Info();
                    return ListOf(info.shape, info.ndim);
                }
            }
        }

        /// <summary>The distance of neighbours in each dim, in elements.</summary>
        public long[] Strides {
            get {
                using (Handle.Hold()) {
                    distag_tensor_info info = Info();
                    return ListOf(info.strides, info.ndim);
                }
            }
        }

        /// <summary>The only element.</summary>
        public double GetItem() {
            var error = new distag_error();
            double item;
            Errors.Check(Native.distag_tensor_get_item(Handle, &item, &error), &error);
            return item;
        }

        /// <summary>Copies all elements, row-major.</summary>
        public T[] ToArray<T>() where T : struct {
            Matches(typeof(T));
            var data = new T[Count];
            Pinned(data, first => {
                var error = new distag_error();
                UIntPtr capacity = (UIntPtr)((long)data.Length * SizeOf(DType));
                Errors.Check(Native.distag_tensor_copy_data(Handle, (void*)first, capacity, &error), &error);
            });
            return data;
        }

        void Matches(Type type) {
            if (DTypeOf(type) != DType) throw Errors.Usage("a tensor of " + DType + " is wanted as " + DTypeOf(type) + ": cast it");
        }

        /// <summary>The elements of this moment without a copy, to be read until its Dispose, whatever is written meanwhile.</summary>
        public View<T> View<T>() where T : struct {
            Matches(typeof(T));
            Tensor snapshot = Snapshot();
            if (snapshot.Count > 0 && Native.distag_tensor_get_data(snapshot.Handle) == IntPtr.Zero) {
                snapshot.Dispose();
                throw new UsageException(Status.InvalidState, "View: the elements are not here: use ToLocal or GatherWhole");
            }
            using (snapshot.Handle.Hold()) {
                if ((snapshot.Info().flags & Native.DISTAG_TENSOR_CONTIGUOUS) == 0) {
                    Tensor contiguous = snapshot.Clone();
                    snapshot.Dispose();
                    snapshot = contiguous;
                }
            }
            IntPtr first = Native.distag_tensor_get_data(snapshot.Handle);
            return new View<T>(snapshot, first, snapshot.Count);
        }

        /// <summary>A tensor with the values of this moment, without history; no write to the other one changes it.</summary>
        public Tensor Snapshot() {
            var error = new distag_error();
            IntPtr made;
            Errors.Check(Native.distag_tensor_create_snapshot(Handle, &made, &error), &error);
            return new Tensor(made);
        }

        // ---- writing ----

        /// <summary>Asks for gradients with respect to this tensor, or no longer.</summary>
        public Tensor RequiresGradient(bool requiresGrad) {
            var error = new distag_error();
            Errors.Check(Native.distag_tensor_set_requires_grad(Handle, requiresGrad ? 1 : 0, &error), &error);
            return this;
        }

        /// <summary>Sets the values in place, unrecorded.</summary>
        public void Write<T>(T[] data) where T : struct {
            if (data == null) throw new ArgumentNullException("data");
            Matches(typeof(T));
            Pinned(data, first => {
                var error = new distag_error();
                UIntPtr size = (UIntPtr)((long)data.Length * SizeOf(DType));
                Errors.Check(Native.distag_tensor_write(Handle, (void*)first, size, &error), &error);
            });
        }

        /// <summary>Sets the values in place to those of another tensor, cast and broadcast.</summary>
        public void Assign(Tensor source) {
            var error = new distag_error();
            Errors.Check(Native.distag_tensor_assign(Handle, Of(source, "source"), &error), &error);
        }

        /// <summary>Adds scale * source to the values in place.</summary>
        public void AddScaled(Tensor source, double scale) {
            var error = new distag_error();
            Errors.Check(Native.distag_tensor_add_scaled(Handle, Of(source, "source"), scale, &error), &error);
        }

        // ---- ops ----

        /// <summary>Runs any built-in op by its name.</summary>
        public static Tensor[] Apply(string op, Tensor[] inputs, IDictionary<string, object> attributes = null, int outputs = 1) {
            return Library.Later(() => Run(op, inputs, attributes, outputs));
        }

        static Tensor[] Run(string op, Tensor[] inputs, IDictionary<string, object> attributes, int outputs) {
            var error = new distag_error();
            var made = new IntPtr[Math.Max(1, outputs)];
            using (var builder = new Builder())
            using (var held = new HandleArray(HandleArray.HandlesOf(inputs, "inputs", true))) {
                IntPtr map = builder.Value(attributes == null ? null : new Dictionary<string, object>(attributes), false);
                fixed (IntPtr* first = made)
                    Errors.Check(Native.distag_apply(Text.Give(op, "op"), held.Pointers, held.Count,
                        attributes == null ? IntPtr.Zero : map, 0, first, (UIntPtr)outputs, &error), &error);
            }
            return Array.ConvertAll(outputs == 0 ? new IntPtr[0] : made, each => new Tensor(each));
        }

        /// <summary>Runs an op with the attributes that are not null; the first inputs have to be there.</summary>
        static Tensor[] Applied(string op, int required, Tensor[] inputs, int outputs, params object[] given) {
            for (int i = 0; i < required && i < inputs.Length; i++)
                if (inputs[i] == null) throw new ArgumentNullException("input " + i + " of " + op);
            var attributes = new Dictionary<string, object>();
            for (int i = 0; i < given.Length; i += 2)
                if (given[i + 1] != null)
                    attributes[(string)given[i]] = given[i + 1] is DType ? given[i + 1].ToString().ToLowerInvariant() : given[i + 1];
            return Apply(op, inputs, attributes, outputs);
        }

        /// <summary>Runs an op of the user and records it; its name shows in errors and graphs.</summary>
        public static Tensor[] ApplyCustom(string name, CustomOp op, Tensor[] inputs, int outputs = 1) {
            if (op == null) throw new ArgumentNullException("op");
            return Library.Later(() => Run(name, op, inputs, outputs));
        }

        static Tensor[] Run(string name, CustomOp op, Tensor[] inputs, int outputs) {
            var error = new distag_error();
            var made = new IntPtr[Math.Max(1, outputs)];
            using (var memory = new Memory())
            using (var held = new HandleArray(inputs, "inputs"))
            fixed (IntPtr* first = made) {
                var custom = new distag_custom_op { struct_size = (uint)sizeof(distag_custom_op), name = memory.Copy(name, "name"),
                    forward = Callbacks.Forward, backward = Callbacks.Backward, user_data = Callbacks.Keep(op), destroy = Callbacks.Free };
                Errors.Check(Native.distag_apply_custom(&custom, held.Pointers, held.Count, first, (UIntPtr)outputs, &error), &error);
            }
            return Array.ConvertAll(outputs == 0 ? new IntPtr[0] : made, each => new Tensor(each));
        }

        /// <summary>Adds a hook, which sees the whole gradient in a pass and gives another one in its place, or null; gives its id.</summary>
        public ulong AddHook(Func<Tensor, Tensor> hook) {
            if (hook == null) throw new ArgumentNullException("hook");
            var error = new distag_error();
            ulong id;
            using (Handle.Hold())
                Errors.Check(Native.distag_tensor_add_hook(Handle, Callbacks.Hook, Callbacks.Keep(hook), Callbacks.Free, &id, &error), &error);
            return id;
        }

        /// <summary>Removes a hook by its id.</summary>
        public void RemoveHook(ulong id) {
            var error = new distag_error();
            Errors.Check(Native.distag_tensor_remove_hook(Handle, id, &error), &error);
        }

        /// <summary>a + b, broadcast.</summary>
        public static Tensor operator +(Tensor a, Tensor b) { return Left(a).Add(b); }
        /// <summary>a - b, broadcast.</summary>
        public static Tensor operator -(Tensor a, Tensor b) { return Left(a).Sub(b); }
        /// <summary>a * b, elementwise.</summary>
        public static Tensor operator *(Tensor a, Tensor b) { return Left(a).Mul(b); }
        /// <summary>a / b, elementwise.</summary>
        public static Tensor operator /(Tensor a, Tensor b) { return Left(a).Div(b); }
        /// <summary>x + s</summary>
        public static Tensor operator +(Tensor x, double s) { return Left(x).AddScalar(s); }
        /// <summary>x - s</summary>
        public static Tensor operator -(Tensor x, double s) { return Left(x).AddScalar(-s); }
        /// <summary>x * s</summary>
        public static Tensor operator *(Tensor x, double s) { return Left(x).MulScalar(s); }
        /// <summary>s * x</summary>
        public static Tensor operator *(double s, Tensor x) { return Left(x).MulScalar(s); }
        /// <summary>s + x</summary>
        public static Tensor operator +(double s, Tensor x) { return Left(x).AddScalar(s); }
        /// <summary>s - x</summary>
        public static Tensor operator -(double s, Tensor x) { return Left(x).Neg().AddScalar(s); }
        /// <summary>x / s</summary>
        public static Tensor operator /(Tensor x, double s) { return Left(x).Div(x.Beside(s)); }
        /// <summary>s / x</summary>
        public static Tensor operator /(double s, Tensor x) { return Left(x).Beside(s).Div(x); }
        /// <summary>Where a is below b, elementwise.</summary>
        public static Tensor operator <(Tensor a, Tensor b) { return Left(a).Lt(b); }
        /// <summary>Where a is above b, elementwise.</summary>
        public static Tensor operator >(Tensor a, Tensor b) { return Left(a).Gt(b); }
        /// <summary>Where a is at most b, elementwise.</summary>
        public static Tensor operator <=(Tensor a, Tensor b) { return Left(a).Le(b); }
        /// <summary>Where a is at least b, elementwise.</summary>
        public static Tensor operator >=(Tensor a, Tensor b) { return Left(a).Ge(b); }
        /// <summary>-x</summary>
        public static Tensor operator -(Tensor x) { return Left(x).Neg(); }

        /// <summary>A number as an operand of an op with this tensor.</summary>
        Tensor Beside(double s) {
            return Full(s, new long[0], DType == DType.Int64 || DType == DType.Bool ? DType.Float32 : DType);
        }

        static Tensor Left(Tensor tensor) {
            if (tensor == null) throw new ArgumentNullException("left");
            return tensor;
        }

        /// <summary>Whether both stand for one tensor.</summary>
        public override bool Equals(object other) {
            var tensor = other as Tensor;
            return tensor != null && (ReferenceEquals(this, tensor) || Id == tensor.Id);
        }

        /// <summary>That of the id.</summary>
        public override int GetHashCode() {
            return Id.GetHashCode();
        }

        /// <summary>dtype and shape.</summary>
        public override string ToString() {
            return Kept.IsClosed ? "Tensor (disposed)" : "Tensor " + DType + " [" + string.Join(", ", Shape) + "]";
        }
    }

    /// <summary>Elements of a tensor, without a copy, until Dispose.</summary>
    public sealed unsafe class View<T> : IDisposable where T : struct {
        readonly Tensor snapshot;
        readonly IntPtr first;

        internal View(Tensor snapshot, IntPtr first, long length) {
            this.snapshot = snapshot;
            this.first = first;
            Length = length;
        }

        /// <summary>The number of elements.</summary>
        public long Length { get; private set; }

        /// <summary>The first element, for code that is unsafe; IntPtr.Zero without elements. To be read only.</summary>
        public IntPtr Pointer {
            get { return first; }
        }

        /// <summary>One element.</summary>
        public T this[long index] {
            get {
                if (index < 0 || index >= Length) throw new IndexOutOfRangeException();
                using (snapshot.Handle.Hold()) return Reader.At(first, index);
            }
        }

        /// <summary>Releases the memory.</summary>
        public void Dispose() {
            snapshot.Dispose();
        }

        static class Reader {
            internal static readonly Func<IntPtr, long, T> At = (Func<IntPtr, long, T>)Make();

            static object Make() {
                if (typeof(T) == typeof(float)) return (Func<IntPtr, long, float>)((data, i) => ((float*)data)[i]);
                if (typeof(T) == typeof(double)) return (Func<IntPtr, long, double>)((data, i) => ((double*)data)[i]);
                if (typeof(T) == typeof(long)) return (Func<IntPtr, long, long>)((data, i) => ((long*)data)[i]);
                return (Func<IntPtr, long, bool>)((data, i) => ((bool*)data)[i]);
            }
        }
    }
}
