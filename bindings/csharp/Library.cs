using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Reflection;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;
using Distag.Raw;

namespace Distag {
    /// <summary>The C library, which is loaded when it is first needed: libdistag, or the file that DISTAG_LIBRARY names.</summary>
    public static unsafe class Library {
        const int Now = 2; // RTLD_NOW
        static readonly object gate = new object();
        static readonly HashSet<Worker> started = new HashSet<Worker>();
        static volatile bool ready;
        static string failure;

        /// <summary>Whether the process ends, and its workers are down.</summary>
        internal static volatile bool HasEnded;

        [DllImport("libdl.so.2")]
        static extern IntPtr dlopen(byte[] path, int flags);
        [DllImport("libdl.so.2")]
        static extern IntPtr dlsym(IntPtr library, byte[] name);
        [DllImport("libdl.so.2")]
        static extern IntPtr dlerror();
        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        delegate IntPtr GetApi(uint major);
        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        delegate IntPtr GetVersion();

        /// <summary>The version of the library.</summary>
        public static string Version {
            get {
                return Later(() => Text.Read(Native.distag_get_version()));
            }
        }

        /// <summary>Handles of this process that are not released yet.</summary>
        public static long HandleCount {
            get {
                return Later(() => (long)Native.distag_get_handle_count());
            }
        }

        /// <summary>Gets what user code throws in a callback that answers no call: OnLog, OnMember, the release of a Borrow, what is
        /// registered at the token of a Call. Without a handler it is written to stderr.</summary>
        public static event Action<Exception> CallbackFailed;

        /// <summary>Never throws: nothing is above it but C, or a timer.</summary>
        internal static void Report(Exception failure) {
            Action<Exception> handler = CallbackFailed;
            try {
                if (handler != null) {
                    handler(failure);
                    return;
                }
            } catch (Exception) {} // of the handler: what it has not taken is written
            try {
                Console.Error.WriteLine("distag: a callback failed: " + Errors.Told(failure));
            } catch (Exception) {} // stderr is closed
        }

        /// <summary>The same in JSON; with DISTAG_VALIDATE=1 in the environment one by one.</summary>
        public static string HandleReport() {
            Require();
            return Text.Copied((byte[] buffer, UIntPtr capacity, out UIntPtr size) => {
                var error = new distag_error();
                UIntPtr found;
                Errors.Check(Native.distag_copy_handle_report(buffer, capacity, &found, &error), &error);
                size = found;
            });
        }

        /// <summary>Makes a new pair of keys of a worker: public and secret.</summary>
        public static KeyValuePair<string, string> CreateKeys() {
            return Later(() => {
                var error = new distag_error();
                var keys = new distag_key_pair { struct_size = (uint)sizeof(distag_key_pair) };
                Errors.Check(Native.distag_security_create_keys(&keys, &error), &error);
                return new KeyValuePair<string, string>(Text.Read((IntPtr)keys.public_key), Text.Read((IntPtr)keys.secret_key));
            });
        }

        /// <summary>Mono looks for a function of C before a method that calls it runs, and only once: Require is to have run by then,
        /// in a method of its own.</summary>
        internal static T Later<T>(Func<T> call) {
            Require();
            return call();
        }

        /// <summary>Throws DllNotFoundException if the library is missing or older. It was not called then, and is not again.</summary>
        internal static void Require() {
            if (!ready) Load();
        }

        static void Load() {
            lock (gate) {
                if (ready) return;
                if (failure == null) failure = Open() ?? "";
                if (failure != "") throw new DllNotFoundException(failure);
                AppDomain.CurrentDomain.ProcessExit += (sender, arguments) => Leave();
                AppDomain.CurrentDomain.DomainUnload += (sender, arguments) => Leave();
                ready = true;
            }
        }

        static byte[] Bytes(string text) {
            return Encoding.UTF8.GetBytes(text + "\0");
        }

        /// <summary>Loads it by its path; DllImport, which asks for its soname, finds that one. Gives what is wrong.</summary>
        static string Open() {
            string path = Environment.GetEnvironmentVariable("DISTAG_LIBRARY");
            bool named = !string.IsNullOrEmpty(path);
            if (!named) path = Native.SONAME;
            IntPtr opened = dlopen(Bytes(path), Now);
            if (opened == IntPtr.Zero)
                return "distag: " + (named ? "DISTAG_LIBRARY cannot be loaded" : "libdistag is not found: install it, or name its file in DISTAG_LIBRARY") +
                    " (" + Text.Read(dlerror()) + "); this assembly needs version " + Native.VERSION;
            IntPtr version = dlsym(opened, Bytes("distag_get_version")), api = dlsym(opened, Bytes("distag_get_api"));
            if (version == IntPtr.Zero || api == IntPtr.Zero) return "distag: " + path + " is no libdistag: name its file in DISTAG_LIBRARY";
            IntPtr table = ((GetApi)Marshal.GetDelegateForFunctionPointer(api, typeof(GetApi)))((uint)Native.DISTAG_ABI_MAJOR);
            if (table != IntPtr.Zero && *(uint*)table >= Native.API_SIZE) return null;
            string found = Text.Read(((GetVersion)Marshal.GetDelegateForFunctionPointer(version, typeof(GetVersion)))());
            return "distag: " + path + " is version " + found + ", and this assembly needs version " + Native.VERSION + " with ABI " +
                Native.DISTAG_ABI_MAJOR + " or a later one: install that library, or an older assembly";
        }

        internal static void Started(Worker worker) {
            lock (started) started.Add(worker);
        }

        internal static void Down(Worker worker) {
            lock (started) started.Remove(worker);
        }

        /// <summary>Shuts down what still serves, before the runtime ends: its threads would wait for those of distag.</summary>
        static void Leave() {
            Worker[] left;
            lock (started) {
                left = new Worker[started.Count];
                started.CopyTo(left);
                started.Clear();
            }
            var time = Stopwatch.StartNew();
            foreach (Worker each in left) each.BeginToLeave();
            if (!AreDown(left, time, 5)) {
                Errors.AbortFunctions(); // Mono does so too, but then waits for threads that only another shutdown ends
                AreDown(left, time, 7);
            }
            HasEnded = true;
        }

        static bool AreDown(Worker[] workers, Stopwatch time, double seconds) {
            bool all = true;
            foreach (Worker each in workers) {
                bool isDown;
                while (!(isDown = each.Leave(TimeSpan.FromSeconds(seconds) - time.Elapsed)) && time.Elapsed.TotalSeconds < seconds) {}
                all &= isDown;
            }
            return all;
        }
    }

    /// <summary>Marks what C calls, for compilers ahead of time, which look for this name.</summary>
    [AttributeUsage(AttributeTargets.Method)]
    sealed class MonoPInvokeCallbackAttribute : Attribute {
        internal MonoPInvokeCallbackAttribute(Type type) {
            Type = type;
        }

        internal Type Type { get; private set; }
    }

    /// <summary>Text of C: UTF-8 that ends in NUL.</summary>
    static unsafe class Text {
        static readonly UTF8Encoding strict = new UTF8Encoding(false, true), lenient = new UTF8Encoding(false, false);

        internal delegate void Copy(byte[] buffer, UIntPtr capacity, out UIntPtr size);

        /// <summary>What C reads during one call; null stays null. A NUL inside is refused: C would cut it there.</summary>
        internal static byte[] Give(string text, string what) {
            if (text == null) return null;
            if (text.IndexOf('\0') >= 0) throw Errors.Usage(what + ": a text with a NUL inside: remove it");
            try {
                var bytes = new byte[strict.GetByteCount(text) + 1];
                strict.GetBytes(text, 0, text.Length, bytes, 0);
                return bytes;
            } catch (EncoderFallbackException) {
                throw Errors.Usage(what + ": a text with half of a surrogate pair is no UTF-8: remove it");
            }
        }

        /// <summary>The text of an error, in which nothing is refused.</summary>
        internal static byte[] Said(string text) {
            return lenient.GetBytes((text ?? "").Replace('\0', '\uFFFD') + "\0");
        }

        internal static string Read(IntPtr text) {
            if (text == IntPtr.Zero) return null;
            var bytes = (byte*)text;
            int length = 0;
            while (bytes[length] != 0) length++;
            return length == 0 ? "" : new string((sbyte*)bytes, 0, length, lenient);
        }

        /// <summary>What a function copies, whose length may be another the next time.</summary>
        internal static string Copied(Copy copy) {
            var buffer = new byte[4096];
            for (;;) {
                UIntPtr size;
                copy(buffer, (UIntPtr)buffer.Length, out size);
                if ((int)size < buffer.Length) return lenient.GetString(buffer, 0, (int)size);
                buffer = new byte[2 * (int)size];
            }
        }
    }
}
