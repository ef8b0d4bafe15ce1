package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"distag"
)

var _ = register(map[string]func(given){
	"tensor: every dtype, made and read":                        everyDType,
	"tensor: without elements, without dims, with strides":      shapes,
	"tensor: every op once with reference numbers":              everyOp,
	"tensor: write and assign in place":                         write,
	"tensor: a read copy or snapshot is not changed by a write": readCopies,
	"tensor: a view of its memory outlives it":                  viewOutlives,
	"tensor: a wrong shape is an error that names it":           wrongShape,
	"local: backward through two layers":                        twoLayers,
	"local: a custom op":                                        customOp,
	"local: a hook sees the gradient and gives another":         hook,
	"local: an optimizer of each kind, one step":                optimizers,
})

func everyDType(g given) {
	for _, each := range g.list("tensors") {
		numbers := each.(map[string]any)
		x := reference(numbers, false)
		same(x.DType(), dtypes[numbers["dtype"].(string)])
		same(x.Shape(), int64s(numbers["shape"]))
		if x.DType() == distag.Int64 {
			same(must(distag.Data[int64](x)), int64s(numbers["data"]))
		} else if x.DType() == distag.Float32 {
			same(elements(x), floats(numbers["data"]))
		} else {
			same(elements(x), floats(numbers["data"]))
		}
	}
}

func shapes(g given) {
	empty := must(distag.Zeros(int64s(g["empty_shape"])))
	same(empty.Shape(), int64s(g["empty_shape"]))
	same(empty.Count(), 0)
	same(must(distag.Data[float32](empty)), []float32{})
	scalar := must(distag.Scalar(float(g["scalar"])))
	same(must(scalar.Item()), float(g["scalar"]))
	same(scalar.Shape(), []int64{})
	matrix := made(distag.Float32, g["matrix"])
	transposed := must(matrix.Transpose(0, 1))
	same(elements(transposed), g.floats("transposed"))
	ok(distag.View(transposed, func(v []float32) error { same(float64(v[1]), g.floats("transposed")[1]); return nil }))
	same(elements(must(matrix.Slice(distag.WithDim(1), distag.WithStep(2)))), g.floats("every_second_column"))
}

func tensors(list any, requiresGrad []any) []*distag.Tensor {
	var all []*distag.Tensor
	for i, each := range list.([]any) {
		all = append(all, reference(each, i < len(requiresGrad) && requiresGrad[i] != nil))
	}
	return all
}

func attributesOf(line given) map[string]any {
	found := map[string]any{}
	for name, value := range line["attributes"].(map[string]any) {
		if value != nil {
			found[name] = plain(value)
		}
	}
	return found
}

func plain(value any) any {
	switch v := value.(type) {
	case json.Number:
		if whole, err := v.Int64(); err == nil {
			return whole
		}
		return float(v)
	case []any:
		return int64s(v)
	}
	return value
}

// checkOp compares one line of the reference numbers, forward and backward.
func checkOp(g, line given) {
	absolute, relative := float(g["absolute"]), float(g["relative"])
	wanted := line.list("grad_inputs")
	inputs := tensors(line["inputs"], wanted)
	outputs := must(distag.Apply(line["op"].(string), inputs, attributesOf(line), len(line.list("outputs"))))
	for i, output := range outputs {
		expected := line.list("outputs")[i].(map[string]any)
		same(output.Shape(), int64s(expected["shape"]))
		near(elements(output), floats(expected["data"]), absolute, relative)
	}
	requires := false
	for _, input := range inputs {
		requires = requires || input.RequiresGrad()
	}
	if !requires {
		return
	}
	context := must(distag.NewContext(background))
	defer context.Close()
	seeds := tensors(line["grad_outputs"], nil)
	ok(context.BackwardWith(distag.BackwardOptions{Seeds: seeds}, outputs...))
	for i, input := range inputs {
		if input.RequiresGrad() && wanted[i] != nil {
			near(elements(must(context.Gradient(input))), floats(wanted[i].(map[string]any)["data"]), absolute, relative)
		}
	}
}

// The functions of ops that are no methods, and the options by name.
var free = map[string]any{"zeros": distag.Zeros, "ones": distag.Ones, "full": distag.Full, "arange": distag.Arange,
	"rand": distag.Rand, "randn": distag.Randn, "concat": distag.Concat, "stack": distag.Stack}

var options = map[string]any{"after": distag.WithAfter, "align_corners": distag.WithAlignCorners,
	"alpha": distag.WithAlpha, "before": distag.WithBefore, "bias": distag.WithBias,
	"correction": distag.WithCorrection, "count_include_pad": distag.WithCountIncludePad, "delta": distag.WithDelta,
	"descending": distag.WithDescending, "diagonal": distag.WithDiagonal, "dilation": distag.WithDilation,
	"dim": distag.WithDim, "dims": distag.WithDims, "dtype": distag.WithDType, "eps": distag.WithEps,
	"groups": distag.WithGroups, "ignore_index": distag.WithIgnoreIndex, "is_causal": distag.WithIsCausal,
	"keepdim": distag.WithKeepdim, "largest": distag.WithLargest, "log_target": distag.WithLogTarget,
	"mask": distag.WithMask, "max": distag.WithMax, "min": distag.WithMin, "mode": distag.WithMode,
	"negative_slope": distag.WithNegativeSlope, "normalized_dims": distag.WithNormalizedDims,
	"num_groups": distag.WithNumGroups, "output_padding": distag.WithOutputPadding, "p": distag.WithP,
	"padding": distag.WithPadding, "reduction": distag.WithReduction, "running_mean": distag.WithRunningMean,
	"running_var": distag.WithRunningVar, "scale": distag.WithScale, "start": distag.WithStart,
	"step": distag.WithStep, "stop": distag.WithStop, "stride": distag.WithStride, "training": distag.WithTraining,
	"value": distag.WithValue, "weight": distag.WithWeight}

func camel(name string) string {
	text := ""
	for _, part := range strings.Split(name, "_") {
		text += strings.ToUpper(part[:1]) + part[1:]
	}
	return text
}

func fit(value any, type_ reflect.Type) reflect.Value {
	if type_ == reflect.TypeOf(distag.Float32) && reflect.TypeOf(value).Kind() == reflect.String {
		return reflect.ValueOf(dtypes[value.(string)])
	}
	return reflect.ValueOf(value).Convert(type_)
}

// method calls the function of the binding's own: inputs, then what is positional, then options.
func method(op map[string]any, inputs []*distag.Tensor, attributes map[string]any) []*distag.Tensor {
	name := op["name"].(string)
	function := reflect.ValueOf(free[name])
	var in []reflect.Value
	before := 0 // inputs that are none of the function's arguments
	if !function.IsValid() {
		function = reflect.ValueOf(inputs[0]).MethodByName(camel(name))
		check(function.IsValid(), "there is no method for %s", name)
		inputs, before = inputs[1:], 1
	}
	type_ := function.Type()
	fixed := type_.NumIn()
	if type_.IsVariadic() {
		fixed--
	}
	var more []reflect.Value
	if fixed > 0 && type_.In(0) == reflect.TypeOf(inputs) {
		in, inputs = append(in, reflect.ValueOf(inputs)), nil
	}
	described := op["inputs"].([]any)
	for i, input := range inputs {
		if len(in) < fixed && type_.In(len(in)) == reflect.TypeOf(input) {
			in = append(in, reflect.ValueOf(input))
		} else if input != nil {
			which := described[before+i].(map[string]any)["name"].(string)
			more = append(more, reflect.ValueOf(options[which]).Call([]reflect.Value{reflect.ValueOf(input)})[0])
		}
	}
	for len(in) < fixed && type_.In(len(in)) == reflect.TypeOf((*distag.Tensor)(nil)) {
		in = append(in, reflect.Zero(type_.In(len(in)))) // an optional input that the line leaves out
	}
	for _, each := range op["attributes"].([]any) {
		attribute := each.(map[string]any)["name"].(string)
		value, there := attributes[attribute]
		if len(in) < fixed {
			if !there {
				value = must(json.Number(each.(map[string]any)["default"].(string)).Float64())
			}
			in = append(in, fit(value, type_.In(len(in))))
		} else if there {
			option := reflect.ValueOf(options[attribute])
			if option.Type().IsVariadic() {
				more = append(more, option.CallSlice([]reflect.Value{reflect.ValueOf(value)})[0])
			} else {
				more = append(more, option.Call([]reflect.Value{fit(value, option.Type().In(0))})[0])
			}
		}
	}
	out := function.Call(append(in, more...))
	if err, failed := out[1].Interface().(error); failed {
		panic(err)
	}
	if list, many := out[0].Interface().([]*distag.Tensor); many {
		return list
	}
	return []*distag.Tensor{out[0].Interface().(*distag.Tensor)}
}

func everyOp(g given) {
	var api struct{ Ops []map[string]any }
	readJSON(must(os.ReadFile(filepath.Join(g["repository"].(string), "bindings", "api.json"))), &api)
	byName := map[string]map[string]any{}
	for _, op := range api.Ops {
		byName[op["name"].(string)] = op
	}
	seen := map[string]bool{}
	for _, each := range g.list("not_in_the_library") {
		seen[each.(string)] = true
	}
	for _, line := range g.lines() {
		name := line["op"].(string)
		if byName[name] == nil {
			check(seen[name], "%s is in no library", name)
			continue
		}
		checkOp(g, line)
		for i, output := range method(byName[name], tensors(line["inputs"], nil), attributesOf(line)) {
			expected := floats(line.list("outputs")[i].(map[string]any)["data"])
			near(elements(output), expected, float(g["absolute"]), float(g["relative"]))
		}
		seen[name] = true
	}
	for _, each := range g.list("others") {
		line := given(each.(map[string]any))
		var inputs []*distag.Tensor
		for _, numbers := range line.list("inputs") {
			inputs = append(inputs, made(distag.Float32, numbers))
		}
		for i, output := range method(byName[line["op"].(string)], inputs, attributesOf(line)) {
			near(elements(output), floats(line.list("outputs")[i]), 0, 0)
		}
		seen[line["op"].(string)] = true
	}
	for name := range byName {
		check(seen[name], "%s was not tried", name)
	}
}

func write(g given) {
	x := made(distag.Float32, g["before"])
	view := must(x.Slice(distag.WithStart(1)))
	ok(distag.Write(x, []float32{4, 5, 6}))
	same(g.floats("written"), []float64{4, 5, 6})
	same(elements(view), g.floats("written")[1:])
	ok(x.Assign(must(distag.Scalar(float(g["assigned"])))))
	same(elements(x), g.floats("expected_assigned"))
	ok(x.AddScaled(made(distag.Float32, g["added"]), float(g["scale"])))
	same(elements(x), g.floats("expected_added"))
}

func readCopies(g given) {
	x := made(distag.Float64, g["before"])
	copied, snapshot := elements(x), must(x.Snapshot())
	ok(distag.View(x, func(view []float64) error {
		ok(distag.Write(x, g.floats("written")))
		same(append([]float64{}, view...), g.floats("before"))
		return nil
	}))
	same(copied, g.floats("before"))
	same(elements(snapshot), g.floats("before"))
	same(elements(x), g.floats("written"))
}

func viewOutlives(g given) {
	x := made(distag.Float64, g["data"])
	ok(distag.View(x, func(view []float64) error {
		ok(distag.Write(x, []float64{0, 0, 0}))
		ok(x.Close())
		same(append([]float64{}, view...), g.floats("data"))
		return nil
	}))
}

func wrongShape(g given) {
	_, err := must(distag.Zeros(int64s(g["left"]))).Matmul(must(distag.Zeros(int64s(g["right"]))))
	g.fails(err)
	check(strings.Contains(err.Error(), "INVALID_ARGUMENT"), "%v", err)
}

func twoLayers(g given) {
	named := map[string]*distag.Tensor{}
	for _, name := range []string{"x", "w1", "b1", "w2"} {
		named[name] = made(distag.Float64, g[name])
	}
	expected := g["gradients"].(map[string]any)
	for name := range expected {
		ok(named[name].SetRequiresGrad(true))
	}
	hidden := must(must(named["x"].Linear(named["w1"], named["b1"])).Tanh())
	loss := must(must(hidden.Linear(named["w2"], nil)).CrossEntropy(made(distag.Int64, g["targets"])))
	tolerance := float(g["tolerance"])
	near([]float64{must(loss.Item())}, []float64{float(g["loss"])}, tolerance, 0)
	context := must(distag.NewContext(background))
	defer context.Close()
	ok(context.Backward(loss))
	gradients := must(context.Gradients())
	defer gradients.Close()
	same(gradients.Count(), len(expected))
	for name, numbers := range expected {
		near(elements(gradients.Find(named[name])), floats(numbers), tolerance, 0)
	}
}

type scale struct{ by float64 }

func (s scale) Forward(inputs []*distag.Tensor) ([]*distag.Tensor, error) { return s.apply(inputs) }

func (s scale) Backward(gradients []*distag.Tensor) ([]*distag.Tensor, error) {
	return s.apply(gradients)
}

func (s scale) apply(x []*distag.Tensor) ([]*distag.Tensor, error) {
	y, err := x[0].MulScalar(s.by)
	return []*distag.Tensor{y}, err
}

func customOp(g given) {
	x := must(distag.Parameter(made(distag.Float32, g["x"]), nil))
	y := must(distag.ApplyCustom("Scale", scale{float(g["scale"])}, []*distag.Tensor{x}, 1))[0]
	same(elements(y), g.floats("y"))
	context := must(distag.NewContext(background))
	defer context.Close()
	ok(context.Backward(must(y.Sum())))
	same(elements(must(context.Gradient(x))), g.floats("gradient"))
}

func hook(g given) {
	x := must(distag.Parameter(made(distag.Float32, g["x"]), nil))
	var seen [][]float64
	id := must(x.AddHook(func(gradient *distag.Tensor) (*distag.Tensor, error) {
		seen = append(seen, elements(gradient))
		return gradient.MulScalar(float(g["given_scale"]))
	}))
	loss := must(must(x.MulScalar(2)).Sum())
	context := must(distag.NewContext(background))
	defer context.Close()
	ok(context.Backward(loss))
	same(elements(must(context.Gradient(x))), g.floats("gradient"))
	same(seen, [][]float64{g.floats("seen")})
	ok(x.RemoveHook(id))
}

func optimizers(g given) {
	seen := map[string]bool{}
	for _, line := range g.lines() {
		parameter := reference(line["initial"], true)
		settings := map[string]float64{}
		for name, value := range line["settings"].(map[string]any) {
			if name == "betas" { // a pair in Python
				settings["beta1"], settings["beta2"] = floats(value)[0], floats(value)[1]
			} else {
				settings[name] = float(value)
			}
		}
		step := line.list("steps")[0].(map[string]any)
		kind := line["optimizer"].(string)
		optimizer := must(distag.NewOptimizer(nil, kind, []any{parameter}, settings))
		context := must(distag.NewContext(background))
		root := must(parameter.MulScalar(1))
		ok(context.BackwardWith(distag.BackwardOptions{Seeds: []*distag.Tensor{reference(step["gradient"], false)}}, root))
		ok(optimizer.Step(context))
		ok(context.Close())
		near(elements(parameter), floats(step["parameter"].(map[string]any)["data"]), float(g["absolute"]), float(g["relative"]))
		seen[kind] = true
	}
	same(len(seen), 8)
}
