using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;

/// What the file says of a case.
sealed class Given : Dictionary<string, object> {
    public readonly string Repository;

    public Given(string repository, IDictionary<string, object> values) : base(values) {
        Repository = repository;
    }

    public object[] List(string name) {
        return ContainsKey(name) ? (object[])this[name] : new object[0];
    }

    public double[] Doubles(string name) {
        return Support.Doubles(this[name]);
    }

    public int Int(string name) {
        return (int)(long)this[name];
    }

    /// Asserts that it fails as the case says.
    public Distag.DistagException Fails(Action run) {
        var failure = Support.Throws<Distag.DistagException>(run);
        if (ContainsKey("status")) Support.Check((int)failure.Code == Int("status"), "status " + (int)failure.Code + ", not " + Int("status") + ": " + failure.Message);
        foreach (object part in List("message_has")) Support.Check(failure.Message.Contains((string)part), part + " is not in: " + failure.Message);
        if (ContainsKey("origin_rank")) Support.Same(failure.OriginRank, Int("origin_rank"));
        if (ContainsKey("may_have_run")) Support.Same(failure.MayHaveRun, this["may_have_run"]);
        return failure;
    }

    /// The reference numbers of a file.
    public IEnumerable<Given> Lines() {
        string text = File.ReadAllText(Path.Combine(Repository, (string)this["file"]));
        var all = text.StartsWith("[") ? (object[])Json.Read(text) : text.Trim().Split('\n').Select(Json.Read).ToArray();
        return all.Select(each => new Given(Repository, (Dictionary<string, object>)each));
    }
}

/// Runs the cases of bindings/conformance/cases.json through the binding for C#.
/// usage: conformance.exe REPOSITORY [WORD...]; with words, only the cases whose names have one of them.
static class Program {
    static readonly Dictionary<string, Action<Given>> cases = new Dictionary<string, Action<Given>>();

    static bool Run(int number, string name, Given given) {
        bool passed = true;
        try {
            if (!cases.ContainsKey(name)) throw new Exception("there is no such case in C#");
            cases[name](given);
        } catch (Exception failure) {
            Console.Error.WriteLine(name + ": " + failure);
            passed = false;
        }
        Console.WriteLine((passed ? "ok " : "not ok ") + number + " - " + name);
        GC.Collect();
        return passed;
    }

    static int Main(string[] arguments) {
        if (arguments[0] == "leave") {
            Life.Leave(int.Parse(arguments[1]));
            return 0;
        }
        if (arguments[0] == "child") {
            Life.Child();
            return 0;
        }
        foreach (var more in new[] { Local.Cases, Workers.Cases, Life.Cases })
            foreach (var each in more) cases.Add(each.Key, each.Value);
        string text = File.ReadAllText(Path.Combine(arguments[0], "bindings", "conformance", "cases.json"));
        var listed = (object[])((Dictionary<string, object>)Json.Read(text))["cases"];
        int number = 0, failed = 0;
        foreach (Dictionary<string, object> each in listed) {
            var name = (string)each["name"];
            if (arguments.Length > 1 && !arguments.Skip(1).Any(name.Contains)) continue;
            if (!Run(++number, name, new Given(arguments[0], each))) failed++;
        }
        Console.WriteLine("1.." + number);
        return failed == 0 ? 0 : 1;
    }
}
