using System;
using System.Runtime.InteropServices;
using Distag.Raw;

namespace Distag {
    /// <summary>What C calls: static functions whose delegates live for ever. Their user data is a GCHandle, which Free ends.</summary>
    static unsafe class Callbacks {
        static readonly distag_deleter free = OnFree;
        static readonly distag_deleter run = OnRun;
        static readonly distag_function invoke = Call.Invoke;
        static readonly distag_future_callback done = Completion.OnDone;
        static readonly distag_log_sink log = OnLog;
        static readonly distag_member_callback member = OnMember;
        static readonly distag_custom_forward forward = OnForward;
        static readonly distag_custom_backward backward = OnBackward;
        static readonly distag_tensor_hook hook = OnHook;

        internal static readonly IntPtr Free = Pointer(free), Run = Pointer(run), Invoke = Pointer(invoke), Done = Pointer(done),
            Log = Pointer(log), Member = Pointer(member), Forward = Pointer(forward), Backward = Pointer(backward),
            Hook = Pointer(hook);

        static IntPtr Pointer(Delegate function) {
            return Marshal.GetFunctionPointerForDelegate(function);
        }

        /// <summary>The user data of an object; Free ends it, once, on every path.</summary>
        internal static IntPtr Keep(object target) {
            return GCHandle.ToIntPtr(GCHandle.Alloc(target));
        }

        internal static T Target<T>(IntPtr data) {
            return (T)GCHandle.FromIntPtr(data).Target;
        }

        [MonoPInvokeCallback(typeof(distag_deleter))]
        static void OnFree(IntPtr data) {
            GCHandle.FromIntPtr(data).Free();
        }

        [MonoPInvokeCallback(typeof(distag_deleter))]
        static void OnRun(IntPtr data) {
            Errors.Report(() => {
                GCHandle kept = GCHandle.FromIntPtr(data);
                var release = (Action)kept.Target;
                kept.Free();
                release();
            });
        }

        [MonoPInvokeCallback(typeof(distag_log_sink))]
        static void OnLog(IntPtr data, int level, IntPtr message) {
            Errors.Report(() => Target<Listener>(data).Run(options => options.OnLog((LogLevel)level, Text.Read(message))));
        }

        [MonoPInvokeCallback(typeof(distag_member_callback))]
        static void OnMember(IntPtr data, IntPtr worker, distag_member* seen) {
            Errors.Report(() => {
                var member = new Member(seen);
                Target<Listener>(data).Run(options => options.OnMember(member));
            });
        }

        // ---- custom ops and hooks ----

        [MonoPInvokeCallback(typeof(distag_custom_forward))]
        static int OnForward(IntPtr data, IntPtr* inputs, UIntPtr inputCount, IntPtr* outputs, UIntPtr outputCount,
            distag_error* error) {
            return Errors.Guard(error, () => {
                Compute(Target<CustomOp>(data).Forward, inputs, (int)inputCount, outputs, (int)outputCount);
                return 0;
            });
        }

        [MonoPInvokeCallback(typeof(distag_custom_backward))]
        static int OnBackward(IntPtr data, IntPtr* gradients, UIntPtr outputCount, IntPtr* inputs, UIntPtr inputCount,
            distag_error* error) {
            return Errors.Guard(error, () => {
                Compute(Target<CustomOp>(data).Backward, gradients, (int)outputCount, inputs, (int)inputCount);
                return 0;
            });
        }

        [MonoPInvokeCallback(typeof(distag_tensor_hook))]
        static int OnHook(IntPtr data, IntPtr gradient, IntPtr* other, distag_error* error) {
            return Errors.Guard(error, () => {
                IntPtr lent = gradient;
                Compute(given => new Tensor[] { Target<Func<Tensor, Tensor>>(data)(given[0]) }, &lent, 1, other, 1);
                return 0;
            });
        }

        /// <summary>Runs the code of an op, and hands over what it gives. What it gets is not disposed: it may keep that.</summary>
        static void Compute(Func<Tensor[], Tensor[]> code, IntPtr* first, int count, IntPtr* made, int wanted) {
            var given = new Tensor[count];
            for (int i = 0; i < count; i++) given[i] = first[i] == IntPtr.Zero ? null : Tensor.Lent(first[i]);
            Tensor[] found = code(given);
            if (found == null || found.Length != wanted)
                throw Errors.Usage("a custom op gives " + (found == null ? 0 : found.Length) + " tensors, " + wanted + " are wanted");
            using (var held = new HandleArray(HandleArray.HandlesOf(found, "outputs", true)))
                for (int i = 0; i < wanted; i++) {
                    if (held.Pointers[i] != IntPtr.Zero) Native.distag_tensor_retain(held.Pointers[i]);
                    made[i] = held.Pointers[i];
                }
        }
    }

    /// <summary>An op of the user, for one application; it may keep the tensors that it gets, such as the inputs that Backward
    /// needs. They go with the collector, or with the Scope of the thread that runs it.</summary>
    public abstract class CustomOp {
        /// <summary>Computes the outputs, each a new tensor. Inputs come without history.</summary>
        public abstract Tensor[] Forward(Tensor[] inputs);

        /// <summary>The gradient of each input from that of each output; null stands for zeros.</summary>
        public abstract Tensor[] Backward(Tensor[] gradients);
    }
}
