package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"distag"
)

var background = context.Background()

func check(condition bool, format string, arguments ...any) {
	if !condition {
		panic(fmt.Sprintf(format, arguments...))
	}
}

func ok(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](value T, err error) T {
	ok(err)
	return value
}

// same asserts equality, types included.
func same(found, expected any) {
	check(reflect.DeepEqual(found, expected), "found %T %v, expected %T %v", found, found, expected, expected)
}

// fails asserts that an error is what the case says.
func (g given) fails(err error) *distag.Error {
	var own *distag.Error
	check(errors.As(err, &own), "%v is no error of distag", err)
	if status, ok := g["status"]; ok {
		check(int(own.Code) == integer(status), "status %d, not %v: %v", own.Code, status, own)
		check(errors.Is(err, distag.Code(integer(status))), "errors.Is does not see the code of %v", err)
	}
	for _, part := range g.list("message_has") {
		check(strings.Contains(own.Message, part.(string)), "%q is not in: %v", part, own)
	}
	if rank, ok := g["origin_rank"]; ok {
		check(own.OriginRank == integer(rank), "rank %d, not %v: %v", own.OriginRank, rank, own)
	}
	if ran, ok := g["may_have_run"]; ok {
		check(own.MayHaveRun == ran.(bool), "may have run %v: %v", own.MayHaveRun, own)
	}
	return own
}

func (g given) list(name string) []any {
	found, _ := g[name].([]any)
	return found
}

func (g given) floats(name string) []float64 { return floats(g[name]) }

func integer(number any) int { return int(must(number.(json.Number).Int64())) }

func float(number any) float64 {
	switch v := number.(type) {
	case json.Number:
		return must(v.Float64())
	case bool:
		return map[bool]float64{true: 1}[v]
	}
	return number.(float64)
}

// floats gives nested lists of numbers row-major.
func floats(numbers any) []float64 {
	if list, ok := numbers.([]any); ok {
		all := []float64{}
		for _, each := range list {
			all = append(all, floats(each)...)
		}
		return all
	}
	return []float64{float(numbers)}
}

func shapeOf(numbers any) []int64 {
	list, ok := numbers.([]any)
	if !ok {
		return []int64{}
	}
	if len(list) == 0 {
		return []int64{0}
	}
	return append([]int64{int64(len(list))}, shapeOf(list[0])...)
}

func int64s(numbers any) []int64 {
	all := []int64{}
	for _, each := range numbers.([]any) {
		all = append(all, int64(integer(each)))
	}
	return all
}

// make64 makes a tensor of nested lists.
func made(dtype distag.DType, numbers any) *distag.Tensor {
	return makeTensor(dtype, shapeOf(numbers), flatList(numbers))
}

func flatList(numbers any) []any {
	list, ok := numbers.([]any)
	if !ok {
		return []any{numbers}
	}
	all := []any{}
	for _, each := range list {
		all = append(all, flatList(each)...)
	}
	return all
}

func makeTensor(dtype distag.DType, shape []int64, data []any) *distag.Tensor {
	switch dtype {
	case distag.Float32:
		return from(data, shape, func(n any) float32 { return float32(float(n)) })
	case distag.Float64:
		return from(data, shape, float)
	case distag.Int64:
		return from(data, shape, func(n any) int64 { return int64(integer(n)) })
	}
	return from(data, shape, func(n any) bool { return n.(bool) })
}

func from[T distag.Element](data []any, shape []int64, convert func(any) T) *distag.Tensor {
	numbers := make([]T, len(data))
	for i, each := range data {
		numbers[i] = convert(each)
	}
	return must(distag.From(numbers, shape...))
}

var dtypes = map[string]distag.DType{"float32": distag.Float32, "float64": distag.Float64, "int64": distag.Int64,
	"bool": distag.Bool}

// reference makes a tensor of reference numbers: {"dtype", "shape", "data"}, or nil.
func reference(numbers any, requiresGrad bool) *distag.Tensor {
	if numbers == nil {
		return nil
	}
	n := numbers.(map[string]any)
	dtype := dtypes[n["dtype"].(string)]
	x := makeTensor(dtype, int64s(n["shape"]), n["data"].([]any))
	if requiresGrad && dtype == distag.Float64 {
		ok(x.SetRequiresGrad(true))
	}
	return x
}

// elements gives those of any dtype as floats.
func elements(x *distag.Tensor) []float64 {
	switch x.DType() {
	case distag.Float64:
		return must(distag.Data[float64](x))
	case distag.Float32:
		return convertAll(must(distag.Data[float32](x)), func(n float32) float64 { return float64(n) })
	case distag.Int64:
		return convertAll(must(distag.Data[int64](x)), func(n int64) float64 { return float64(n) })
	}
	return convertAll(must(distag.Data[bool](x)), func(n bool) float64 { return float(n) })
}

func convertAll[T any](data []T, convert func(T) float64) []float64 {
	all := make([]float64, len(data))
	for i, each := range data {
		all[i] = convert(each)
	}
	return all
}

func near(found, expected []float64, absolute, relative float64) {
	check(len(found) == len(expected), "%d numbers, not %d: %v", len(found), len(expected), found)
	for i := range found {
		same := found[i] == expected[i] || math.IsNaN(found[i]) && math.IsNaN(expected[i]) ||
			math.Abs(found[i]-expected[i]) <= math.Max(absolute, relative*math.Max(math.Abs(found[i]), math.Abs(expected[i])))
		check(same, "element %d is %v, not %v", i, found[i], expected[i])
	}
}

// lines gives the reference numbers of a file.
func (g given) lines() []given {
	text := must(os.ReadFile(filepath.Join(g["repository"].(string), g["file"].(string))))
	var all []given
	if bytes.HasPrefix(text, []byte("[")) {
		readJSON(text, &all)
		return all
	}
	for _, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		var one given
		readJSON(line, &one)
		all = append(all, one)
	}
	return all
}

// ---- groups of workers in this process ----

type functions map[string]any

var jobs atomic.Int64

func square(x *distag.Tensor) (*distag.Tensor, error) { return x.Mul(x) }
func double(x int64) int64                            { return 2 * x }
func echo(x any) any                                  { return x }

func create(offered functions, names ...string) []*distag.Worker {
	job := fmt.Sprintf("job%d-%d", os.Getpid(), jobs.Add(1))
	workers := make([]*distag.Worker, len(names))
	for rank, name := range names {
		workers[rank] = must(distag.NewWorker(distag.Options{Name: name, Rank: rank, WorldSize: len(names),
			Rendezvous: "inproc://" + job, Job: job}))
		for name, function := range offered {
			ok(workers[rank].Register(name, function))
		}
	}
	return workers
}

func start(workers []*distag.Worker) {
	ctx, cancel := context.WithTimeout(background, 120*time.Second)
	defer cancel()
	together(workers, func(w *distag.Worker) (*distag.Future, error) { return w.StartAsync(ctx) })
}

func together(workers []*distag.Worker, begin func(*distag.Worker) (*distag.Future, error)) {
	futures := make([]*distag.Future, len(workers))
	for i, each := range workers {
		futures[i] = must(begin(each))
	}
	must(distag.WaitAll(background, futures...))
	for _, each := range futures {
		ok(each.Close())
	}
}

// group runs a case with workers that are started, and shuts them down side by side.
func group(offered functions, use func(a, b *distag.Worker), names ...string) {
	if names == nil {
		names = []string{"a", "b"}
	}
	workers := create(offered, names...)
	defer func() {
		for _, each := range workers {
			ok(each.Close())
		}
	}()
	start(workers)
	use(workers[0], workers[1])
	ctx, cancel := context.WithTimeout(background, 120*time.Second)
	defer cancel()
	together(workers, func(w *distag.Worker) (*distag.Future, error) { return w.ShutdownAsync(ctx) })
}

// nothingIsLeft waits until the collector has had its way.
func nothingIsLeft() {
	until := time.Now().Add(120 * time.Second)
	for distag.HandleCount() > 0 && time.Now().Before(until) {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	check(distag.HandleCount() == 0, "%s", must(distag.HandleReport()))
}
