using System;
using System.Collections;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using Distag.Raw;

namespace Distag {
    /// <summary>Makes values of C for one call, and releases them at its end.</summary>
    sealed unsafe class Builder : IDisposable {
        // The library refuses 17 lists within each other. Far beyond that a value can only contain itself.
        const int Deepest = 64;
        readonly List<IntPtr> owned = new List<IntPtr>();
        readonly List<SafeHandle> held = new List<SafeHandle>();
        readonly List<string> path = new List<string>();

        public void Dispose() {
            foreach (IntPtr each in owned) Native.distag_value_release(each);
            foreach (SafeHandle each in held) each.DangerousRelease();
            owned.Clear();
            held.Clear();
        }

        internal IntPtr[] Arguments(object[] given) {
            given = given ?? new object[] { null };
            var values = new IntPtr[Math.Max(1, given.Length)];
            for (int i = 0; i < given.Length; i++) values[i] = At("args[" + i + "]", given[i]);
            return values;
        }

        /// <summary>The answer of a function.</summary>
        internal IntPtr Answer(object given) {
            path.Add("answer");
            IntPtr value = Value(given, true);
            path.Clear();
            return value;
        }

        IntPtr At(string place, object given) {
            path.Add(place);
            IntPtr value = Value(given, false);
            path.RemoveAt(path.Count - 1);
            return value;
        }

        UsageException Wrong(string message) {
            return Errors.Usage(path.Count == 0 ? message : string.Concat(path) + ": " + message);
        }

        IntPtr Own(int status, IntPtr value, distag_error* error) {
            if (status != 0 && path.Count > 0 && error->code == (int)Status.InvalidArgument)
                throw Wrong(Text.Read((IntPtr)error->message));
            Errors.Check(status, error);
            owned.Add(value);
            return value;
        }

        void Hold(SafeHandle handle) {
            bool done = false;
            handle.DangerousAddRef(ref done);
            held.Add(handle);
        }

        /// <summary>Converts what C# has. With objects, what is no value becomes an object that stays in this process.</summary>
        internal IntPtr Value(object given, bool objects) {
            var error = new distag_error();
            IntPtr made;
            if (given == null) return Own(Native.distag_value_create_null(&made, &error), made, &error);
            switch (Type.GetTypeCode(given.GetType())) {
                case TypeCode.Boolean:
                    return Own(Native.distag_value_create_bool((bool)given ? 1 : 0, &made, &error), made, &error);
                case TypeCode.SByte: case TypeCode.Byte: case TypeCode.Int16: case TypeCode.UInt16: case TypeCode.Int32:
                case TypeCode.UInt32: case TypeCode.Int64: case TypeCode.UInt64:
                    if (given is Enum) break;
                    if (given is ulong && (ulong)given > long.MaxValue)
                        throw Wrong(given + " is above the largest int64: send a text or a double");
                    return Own(Native.distag_value_create_int64(Convert.ToInt64(given), &made, &error), made, &error);
                case TypeCode.Single: case TypeCode.Double:
                    return Own(Native.distag_value_create_float64(Convert.ToDouble(given), &made, &error), made, &error);
                case TypeCode.String:
                    return Own(Native.distag_value_create_text(TextOf((string)given, "a text with a NUL or half of a surrogate pair inside: give a byte[]"), &made, &error), made, &error);
            }
            return Other(given, objects);
        }

        byte[] TextOf(string text, string refusal) {
            try {
                return Text.Give(text, "");
            } catch (UsageException) {
                throw Wrong(refusal);
            }
        }

        IntPtr Other(object given, bool objects) {
            var error = new distag_error();
            IntPtr made;
            var tensor = given as Tensor;
            if (tensor != null) {
                Usable(tensor.Kept);
                return Native.distag_tensor_as_value(tensor.Kept);
            }
            var reference = given as RRef;
            if (reference != null) {
                Usable(reference.Handle);
                return Native.distag_rref_as_value(reference.Handle);
            }
            // The types exactly: for `as` an sbyte[] is a byte[], and a ulong[] a long[].
            Type type = given.GetType();
            if (type == typeof(byte[])) {
                var bytes = (byte[])given;
                fixed (byte* first = bytes)
                    return Own(Native.distag_value_create_bytes(first, (UIntPtr)bytes.Length, &made, &error), made, &error);
            }
            if (type == typeof(long[])) {
                var integers = (long[])given;
                return Own(Native.distag_value_create_int64_list(integers, (UIntPtr)integers.Length, &made, &error), made, &error);
            }
            if (type == typeof(double[])) {
                var numbers = (double[])given;
                return Own(Native.distag_value_create_float64_list(numbers, (UIntPtr)numbers.Length, &made, &error), made, &error);
            }
            if (type.IsArray && type.GetArrayRank() > 1)
                throw Wrong("an array of " + type.GetArrayRank() + " dims is no value: give arrays of arrays, or a Tensor");
            if (path.Count > Deepest) throw Wrong("nested more than " + Deepest + " deep, or it contains itself: make it flat");
            var entries = given as IDictionary;
            if (entries != null) return Map(entries);
            var items = given as ICollection;
            if (items != null) return List(items);
            if (objects) return Object(given);
            throw Wrong(given.GetType() + " is no value: give numbers, text, byte[], tensors, references, lists or maps of them");
        }

        void Usable(SafeHandle handle) {
            if (handle.IsClosed) throw new ObjectDisposedException(string.Concat(path), "use it before its Dispose");
            Hold(handle);
        }

        IntPtr List(ICollection items) {
            var error = new distag_error();
            IntPtr made;
            var values = new List<IntPtr>(items.Count + 1);
            foreach (object each in items) values.Add(At("[" + values.Count + "]", each));
            int count = values.Count;
            return Own(Native.distag_value_create_list(values.ToArray(), (UIntPtr)count, &made, &error), made, &error);
        }

        IntPtr Map(IDictionary entries) {
            var error = new distag_error();
            IntPtr made;
            var keys = new List<string>();
            var values = new List<IntPtr>();
            foreach (DictionaryEntry each in entries) {
                var key = each.Key as string;
                if (key == null) throw Wrong("a map with the key " + each.Key + ", which is no text: use strings as keys");
                TextOf(key, "a key with a NUL or half of a surrogate pair inside: remove it");
                values.Add(At("." + key, each.Value));
                keys.Add(key);
            }
            using (var memory = new Memory()) {
                var pointers = new IntPtr[keys.Count + 1];
                for (int i = 0; i < keys.Count; i++) pointers[i] = memory.Copy(keys[i], "a key");
                return Own(Native.distag_value_create_map(pointers, values.ToArray(), (UIntPtr)values.Count, &made, &error), made, &error);
            }
        }

        static readonly byte[] TypeName = Text.Said("csharp");

        IntPtr Object(object given) {
            var error = new distag_error();
            IntPtr made;
            IntPtr kept = GCHandle.ToIntPtr(GCHandle.Alloc(given)); // Free is called also when this fails
            return Own(Native.distag_value_create_object(TypeName, kept, Callbacks.Free, &made, &error), made, &error);
        }

        // ---- the way back ----

        /// <summary>Converts a value of C, which is lent. Lists are object[], maps Dictionary, numbers long and double.</summary>
        internal static object Read(IntPtr value) {
            var error = new distag_error();
            IntPtr found;
            switch (Native.distag_value_get_kind(value)) {
                case Native.DISTAG_VALUE_BOOL:
                    int truth;
                    Errors.Check(Native.distag_value_get_bool(value, &truth, &error), &error);
                    return truth != 0;
                case Native.DISTAG_VALUE_INT64:
                    long integer;
                    Errors.Check(Native.distag_value_get_int64(value, &integer, &error), &error);
                    return integer;
                case Native.DISTAG_VALUE_FLOAT64:
                    double number;
                    Errors.Check(Native.distag_value_get_float64(value, &number, &error), &error);
                    return number;
                case Native.DISTAG_VALUE_TEXT:
                    Errors.Check(Native.distag_value_get_text(value, &found, &error), &error);
                    return Text.Read(found);
                case Native.DISTAG_VALUE_BYTES:
                    UIntPtr size;
                    Errors.Check(Native.distag_value_get_bytes(value, &found, &size, &error), &error);
                    var bytes = new byte[(int)size];
                    if (bytes.Length > 0) Marshal.Copy(found, bytes, 0, bytes.Length);
                    return bytes;
                case Native.DISTAG_VALUE_TENSOR:
                    Errors.Check(Native.distag_value_get_tensor(value, &found, &error), &error);
                    return Tensor.Lent(found);
                case Native.DISTAG_VALUE_RREF:
                    Errors.Check(Native.distag_value_get_rref(value, &found, &error), &error);
                    return new RRef(RRefHandle.Retain(found));
                case Native.DISTAG_VALUE_OBJECT:
                    Errors.Check(Native.distag_value_get_object(value, TypeName, &found, &error), &error);
                    return GCHandle.FromIntPtr(found).Target;
                case Native.DISTAG_VALUE_LIST: case Native.DISTAG_VALUE_MAP:
                    return ReadItems(value);
            }
            return null;
        }

        static object ReadItems(IntPtr value) {
            var items = new object[(int)Native.distag_value_get_count(value)];
            for (int i = 0; i < items.Length; i++) {
                IntPtr item = Native.distag_value_get_item(value, (UIntPtr)i);
                if (item == IntPtr.Zero) throw new OutOfMemoryException("distag: there is no memory for an item of a value");
                items[i] = Read(item);
            }
            if (Native.distag_value_get_kind(value) != Native.DISTAG_VALUE_MAP) return items;
            var entries = new Dictionary<string, object>();
            for (int i = 0; i < items.Length; i++) entries[Text.Read(Native.distag_value_get_key(value, (UIntPtr)i))] = items[i];
            return entries;
        }

        /// <summary>The same of an owned value, which goes.</summary>
        internal static object Take(IntPtr value) {
            if (value == IntPtr.Zero) return null;
            try {
                return Read(value);
            } finally {
                Native.distag_value_release(value);
            }
        }
    }

    /// <summary>What calls carry: null, bool, numbers, text, byte[], Tensor, RRef, and lists and maps (IDictionary with texts as
    /// keys) of them.</summary>
    public static class Value {
        /// <summary>What a call gave, as a type: numbers that fit, arrays, List and Dictionary item by item.</summary>
        public static T As<T>(object value) {
            return Is<T>(value) ? (T)value : (T)As(value, typeof(T), "");
        }

        /// <summary>The same of an answer, which is named in errors.</summary>
        internal static T Answer<T>(object value) {
            return Is<T>(value) ? (T)value : (T)As(value, typeof(T), "answer");
        }

        /// <summary>Whether it is one as it is. For the runtime a byte[] is an sbyte[] as well, with other numbers.</summary>
        internal static bool Is<T>(object value) {
            return value is T && !(value is Array && HasOtherItems(value.GetType(), typeof(T)));
        }

        static bool HasOtherItems(Type type, Type target) {
            while (type.IsArray) {
                target = target.IsArray ? target.GetElementType() : target.IsGenericType ? target.GetGenericArguments()[0] : null;
                if (target == null) return false; // an object, or a list of them
                type = type.GetElementType();
            }
            return type.IsValueType && type != target;
        }

        internal static object As(object value, Type target, string path) {
            if (value == null) {
                if (target.IsValueType && Nullable.GetUnderlyingType(target) == null) throw Mismatch(value, target, path);
                return null;
            }
            target = Nullable.GetUnderlyingType(target) ?? target;
            if (target.IsInstanceOfType(value) && !(value is Array && HasOtherItems(value.GetType(), target))) return value;
            if (value is long || value is double) return Number(value, target, path);
            var items = value as object[];
            if (items != null) return Items(items, target, path);
            var entries = value as Dictionary<string, object>;
            if (entries == null || !target.IsGenericType || target.GetGenericTypeDefinition() != typeof(Dictionary<,>) ||
                target.GetGenericArguments()[0] != typeof(string))
                throw Mismatch(value, target, path);
            var map = (IDictionary)Activator.CreateInstance(target);
            foreach (KeyValuePair<string, object> each in entries)
                map[each.Key] = As(each.Value, target.GetGenericArguments()[1], path + "." + each.Key);
            return map;
        }

        static object Number(object value, Type target, string path) {
            if (value is double) {
                if (target != typeof(float)) throw Mismatch(value, target, path);
                var narrowed = (float)(double)value;
                if (!float.IsInfinity(narrowed) || double.IsInfinity((double)value)) return narrowed;
                throw Errors.Usage(At(path) + value + " does not fit into " + target);
            }
            var integer = (long)value;
            if (target == typeof(double) || target == typeof(float)) {
                double number = target == typeof(float) ? (float)integer : (double)integer;
                if (number < 9.2e18 && (long)number == integer) return Convert.ChangeType(number, target);
            } else if (target.IsPrimitive && target != typeof(bool) && target != typeof(char)) {
                try {
                    return Convert.ChangeType(integer, target);
                } catch (OverflowException) {}
            } else {
                throw Mismatch(value, target, path);
            }
            throw Errors.Usage(At(path) + integer + " does not fit into " + target);
        }

        static object Items(object[] items, Type target, string path) {
            bool isList = target.IsGenericType && target.GetGenericTypeDefinition() == typeof(List<>);
            if (!isList && !(target.IsArray && target.GetArrayRank() == 1)) throw Mismatch(items, target, path);
            Type type = isList ? target.GetGenericArguments()[0] : target.GetElementType();
            Array array = Array.CreateInstance(type, items.Length);
            for (int i = 0; i < items.Length; i++) array.SetValue(As(items[i], type, path + "[" + i + "]"), i);
            return isList ? Activator.CreateInstance(target, array) : array;
        }

        static string At(string path) {
            return path == "" ? "" : path + ": ";
        }

        static UsageException Mismatch(object value, Type target, string path) {
            return Errors.Usage(At(path) + (value == null ? "null" : "a " + value.GetType()) + ", where a " + target + " is wanted");
        }
    }
}
