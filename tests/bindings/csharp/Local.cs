using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Reflection;
using Distag;
using static Support;

/// The cases within one process and without workers.
static class Local {
    public static readonly Dictionary<string, Action<Given>> Cases = new Dictionary<string, Action<Given>> {
        { "tensor: every dtype, made and read", EveryDType },
        { "tensor: without elements, without dims, with strides", Shapes },
        { "tensor: every op once with reference numbers", EveryOp },
        { "tensor: write and assign in place", Write },
        { "tensor: a read copy or snapshot is not changed by a write", ReadCopies },
        { "tensor: a view of its memory outlives it", ViewOutlives },
        { "tensor: a wrong shape is an error that names it", WrongShape },
        { "local: backward through two layers", TwoLayers },
        { "local: a custom op", ACustomOp },
        { "local: a hook sees the gradient and gives another", Hook },
        { "local: an optimizer of each kind, one step", Optimizers },
    };

    static void EveryDType(Given given) {
        foreach (Dictionary<string, object> numbers in given.List("tensors")) {
            Tensor x = Reference(numbers, false);
            Same(x.DType, DTypeNamed(numbers["dtype"]));
            Same(x.Shape, Longs(numbers["shape"]));
            if (x.DType == DType.Int64) Same(x.ToArray<long>(), Longs(numbers["data"]));
            else Same(Elements(x), Doubles(numbers["data"]));
        }
    }

    static void Shapes(Given given) {
        Tensor empty = Tensor.Zeros(Longs(given["empty_shape"]));
        Same(empty.Shape, Longs(given["empty_shape"]));
        Same(empty.Count, 0L);
        Same(empty.ToArray<float>(), new float[0]);
        using (View<float> view = empty.View<float>()) Same(view.Length, 0L);
        Tensor scalar = Tensor.Scalar((double)given["scalar"]);
        Same(scalar.GetItem(), given["scalar"]);
        Same(scalar.Shape, new long[0]);
        Tensor matrix = Made(DType.Float32, given["matrix"]);
        Tensor transposed = matrix.Transpose(0, 1);
        Same(Elements(transposed), given.Doubles("transposed"));
        using (View<float> view = transposed.View<float>()) Same((double)view[1], given.Doubles("transposed")[1]);
        Same(Elements(matrix.Slice(dim: 1, step: 2)), given.Doubles("every_second_column"));
    }

    static Tensor[] Tensors(object list, object[] requiresGrad) {
        return ((object[])list).Select((each, i) => Reference(each, i < requiresGrad.Length && requiresGrad[i] != null)).ToArray();
    }

    static object Plain(object value) {
        var list = value as object[];
        return list == null ? value : list.Select(Convert.ToInt64).ToArray();
    }

    static Dictionary<string, object> Attributes(Given line) {
        return ((Dictionary<string, object>)line["attributes"]).Where(each => each.Value != null).ToDictionary(each => each.Key, each => Plain(each.Value));
    }

    /// Compares one line of the reference numbers, forward and backward.
    static void CheckOp(Given given, Given line) {
        double absolute = (double)given["absolute"], relative = (double)given["relative"];
        object[] wanted = line.List("grad_inputs");
        Tensor[] inputs = Tensors(line["inputs"], wanted);
        Tensor[] outputs = Tensor.Apply((string)line["op"], inputs, Attributes(line), line.List("outputs").Length);
        for (int i = 0; i < outputs.Length; i++) {
            var expected = (Dictionary<string, object>)line.List("outputs")[i];
            Same(outputs[i].Shape, Longs(expected["shape"]));
            Near(Elements(outputs[i]), Doubles(expected["data"]), absolute, relative);
        }
        if (!inputs.Any(each => each != null && each.RequiresGrad)) return;
        using (var context = new Context()) {
            context.Backward(new BackwardOptions { Seeds = Tensors(line["grad_outputs"], new object[0]) }, outputs);
            for (int i = 0; i < inputs.Length; i++)
                if (inputs[i] != null && inputs[i].RequiresGrad && wanted[i] != null)
                    Near(Elements(context.Gradient(inputs[i])), Doubles(((Dictionary<string, object>)wanted[i])["data"]), absolute, relative);
        }
    }

    static string Camel(string name) {
        return string.Concat(name.Split('_').Select(part => char.ToUpperInvariant(part[0]) + part.Substring(1)));
    }

    static string LowerCamel(string name) {
        string camel = Camel(name);
        return char.ToLowerInvariant(camel[0]) + camel.Substring(1);
    }

    /// Calls the method of the binding: each parameter by its name, those that are not given by their defaults.
    static Tensor[] Method(Dictionary<string, object> op, Tensor[] inputs, Dictionary<string, object> attributes) {
        MethodInfo method = typeof(Tensor).GetMethods().Single(each => each.Name == Camel((string)op["name"]) && each.DeclaringType == typeof(Tensor) &&
            (each.ReturnType == typeof(Tensor) || each.ReturnType == typeof(Tensor[])));
        var named = new Dictionary<string, object>();
        object[] described = (object[])op["inputs"];
        for (int i = 0; i < described.Length; i++) {
            var input = (Dictionary<string, object>)described[i];
            named[LowerCamel((string)input["name"])] = (string)input["kind"] == "many" ? (object)inputs : i < inputs.Length ? inputs[i] : null;
        }
        foreach (var each in attributes) named[LowerCamel(each.Key)] = each.Value;
        object receiver = method.IsStatic ? null : inputs[0];
        object[] arguments = method.GetParameters().Select(each => Fit(named.ContainsKey(each.Name) ? named[each.Name] : Default(each), each.ParameterType)).ToArray();
        object found = method.Invoke(receiver, arguments);
        return found as Tensor[] ?? new[] { (Tensor)found };
    }

    static object Default(ParameterInfo parameter) {
        if (parameter.HasDefaultValue) return parameter.DefaultValue;
        Check(parameter.ParameterType == typeof(long[]), parameter.Name + " is missing");
        return new long[0];
    }

    static object Fit(object value, Type type) {
        if (value == null || type.IsInstanceOfType(value)) return value;
        if (type == typeof(DType)) return value is string ? DTypeNamed(value) : Enum.ToObject(type, value);
        return Convert.ChangeType(value, type);
    }

    static void EveryOp(Given given) {
        var api = (Dictionary<string, object>)Json.Read(File.ReadAllText(Path.Combine(given.Repository, "bindings", "api.json")));
        var byName = ((object[])api["ops"]).Cast<Dictionary<string, object>>().ToDictionary(each => (string)each["name"]);
        var seen = new HashSet<string>();
        foreach (Given line in given.Lines()) {
            var name = (string)line["op"];
            if (!byName.ContainsKey(name)) {
                Check(given.List("not_in_the_library").Contains(name), name + " is in no library");
                continue;
            }
            CheckOp(given, line);
            Tensor[] outputs = Method(byName[name], Tensors(line["inputs"], new object[0]), Attributes(line));
            for (int i = 0; i < outputs.Length; i++) {
                double[] expected = Doubles(((Dictionary<string, object>)line.List("outputs")[i])["data"]);
                Near(Elements(outputs[i]), expected, (double)given["absolute"], (double)given["relative"]);
            }
            seen.Add(name);
        }
        foreach (Dictionary<string, object> each in given.List("others")) {
            var line = new Given(given.Repository, each);
            Tensor[] inputs = line.List("inputs").Select(numbers => Made(DType.Float32, numbers)).ToArray();
            Tensor[] outputs = Method(byName[(string)line["op"]], inputs, Attributes(line));
            for (int i = 0; i < outputs.Length; i++) Near(Elements(outputs[i]), Doubles(line.List("outputs")[i]), 0, 0);
            seen.Add((string)line["op"]);
        }
        foreach (string name in byName.Keys) Check(seen.Contains(name), name + " was not tried");
    }

    static void Write(Given given) {
        Tensor x = Made(DType.Float32, given["before"]), view = x.Slice(start: 1);
        x.Write(given.Doubles("written").Select(each => (float)each).ToArray());
        Same(Elements(view), given.Doubles("written").Skip(1).ToArray());
        x.Assign(Tensor.Scalar(Doubles(given["assigned"])[0]));
        Same(Elements(x), given.Doubles("expected_assigned"));
        x.AddScaled(Made(DType.Float32, given["added"]), (double)given["scale"]);
        Same(Elements(x), given.Doubles("expected_added"));
    }

    static double[] All(View<double> view) {
        return Enumerable.Range(0, (int)view.Length).Select(i => view[i]).ToArray();
    }

    static void ReadCopies(Given given) {
        Tensor x = Made(DType.Float64, given["before"]), snapshot = x.Snapshot();
        double[] copied = Elements(x);
        using (View<double> view = x.View<double>()) {
            x.Write(given.Doubles("written"));
            Same(All(view), given.Doubles("before"));
        }
        Same(copied, given.Doubles("before"));
        Same(Elements(snapshot), given.Doubles("before"));
        Same(Elements(x), given.Doubles("written"));
    }

    static void ViewOutlives(Given given) {
        Tensor x = Made(DType.Float64, given["data"]);
        View<double> view = x.View<double>();
        x.Write(new double[] { 0, 0, 0 });
        x.Dispose();
        GC.Collect();
        Same(All(view), given.Doubles("data"));
        view.Dispose();
        Throws<ObjectDisposedException>(() => { double gone = view[0]; });
    }

    static void WrongShape(Given given) {
        DistagException failure = given.Fails(() => Tensor.Zeros(Longs(given["left"])).Matmul(Tensor.Zeros(Longs(given["right"]))));
        Check(failure is UsageException && failure.Code.Name() == "INVALID_ARGUMENT", failure.ToString());
    }

    static void TwoLayers(Given given) {
        var named = new[] { "x", "w1", "b1", "w2" }.ToDictionary(each => each, each => Made(DType.Float64, given[each]));
        var expected = (Dictionary<string, object>)given["gradients"];
        foreach (string name in expected.Keys) named[name].RequiresGradient(true);
        Tensor loss = named["x"].Linear(named["w1"], named["b1"]).Tanh().Linear(named["w2"]).CrossEntropy(Made(DType.Int64, given["targets"]));
        var tolerance = (double)given["tolerance"];
        Near(new[] { loss.GetItem() }, given.Doubles("loss"), tolerance, 0);
        using (var context = new Context()) {
            context.Backward(loss);
            using (Gradients gradients = context.GetGradients()) {
                Same(gradients.Count, expected.Count);
                foreach (var each in expected) Near(Elements(gradients.Find(named[each.Key])), Doubles(each.Value), tolerance, 0);
            }
        }
    }

    sealed class Scale : CustomOp {
        public double By;

        public override Tensor[] Forward(Tensor[] inputs) {
            return new[] { inputs[0] * By };
        }

        public override Tensor[] Backward(Tensor[] gradients) {
            return new[] { gradients[0] * By };
        }
    }

    static void ACustomOp(Given given) {
        Tensor x = Leaf(given["x"]);
        Tensor y = Tensor.ApplyCustom("Scale", new Scale { By = given.Int("scale") }, new[] { x })[0];
        Same(Elements(y), given.Doubles("y"));
        GC.Collect(); // the op lives as long as the graph
        using (var context = new Context()) {
            context.Backward(y.Sum());
            Same(Elements(context.Gradient(x)), given.Doubles("gradient"));
        }
    }

    static void Hook(Given given) {
        Tensor x = Leaf(given["x"]);
        var seen = new List<double[]>();
        ulong id = x.AddHook(gradient => {
            seen.Add(Elements(gradient));
            return gradient * given.Int("given_scale");
        });
        Tensor loss = (x * 2).Sum();
        using (var context = new Context()) {
            context.Backward(loss);
            Same(Elements(context.Gradient(x)), given.Doubles("gradient"));
        }
        Same(seen.ToArray(), new[] { given.Doubles("seen") });
        x.RemoveHook(id);
    }

    static void Optimizers(Given given) {
        var seen = new HashSet<string>();
        foreach (Given line in given.Lines()) {
            Tensor parameter = Reference(line["initial"], true);
            var settings = new Dictionary<string, double>();
            foreach (var each in (Dictionary<string, object>)line["settings"]) {
                double[] numbers = Doubles(each.Value);
                settings[numbers.Length == 2 ? "beta1" : each.Key] = numbers[0]; // betas: a pair in Python
                if (numbers.Length == 2) settings["beta2"] = numbers[1];
            }
            var step = (Dictionary<string, object>)line.List("steps")[0];
            var kind = (string)line["optimizer"];
            using (var optimizer = new Optimizer(null, kind, new object[] { parameter }, settings))
            using (var context = new Context()) {
                context.Backward(new BackwardOptions { Seeds = new[] { Reference(step["gradient"], false) } }, parameter * 1);
                optimizer.Step(context);
            }
            Near(Elements(parameter), Doubles(((Dictionary<string, object>)step["parameter"])["data"]), (double)given["absolute"], (double)given["relative"]);
            seen.Add(kind);
        }
        Same(seen.Count, 8);
    }
}
