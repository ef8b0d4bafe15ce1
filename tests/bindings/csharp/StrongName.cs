using System;
using System.IO;

/// Whether an assembly has the strong name of a key. usage: strong_name.exe ASSEMBLY KEY
static class StrongName {
    static int Main(string[] arguments) {
        return new Mono.Security.StrongName(File.ReadAllBytes(arguments[1])).Verify(arguments[0]) ? 0 : 1;
    }
}
