package unit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"distag"
)

// ---- closing ----

// A tensor that is closed while others use it is whole or closed for each of them.
func TestCloseWhileOthersUse(t *testing.T) {
	rounds := 100000
	if testing.Short() {
		rounds = 10000
	}
	var wait sync.WaitGroup
	for worker := 0; worker < 4; worker++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := 0; i < rounds/4; i++ {
				x := must(distag.From([]float32{1, 2}))
				done := make(chan struct{})
				go func() {
					x.Close()
					close(done)
				}()
				if y, err := x.Add(x); err == nil {
					y.Close()
				} else if !errors.Is(err, distag.ErrInvalidArgument) || strings.Contains(err.Error(), "released") {
					panic(err) // a closed tensor is NULL for C, and none that was released
				}
				if data, err := distag.Data[float32](x); err == nil && data[1] != 2 {
					panic(data)
				}
				<-done
				x.Close()
			}
		}()
	}
	wait.Wait()
	nothingIsLeft(t)
	same(t, distag.MisuseCount(), uint64(0))
}

func TestNothingIsAwaitedAfterAFailure(t *testing.T) {
	nothingIsLeft(t)
	x, failed := must(distag.Ones([]int64{2})), &testing.T{}
	failed.Fail()
	nothingIsLeft(failed) // else until x is closed
	same(t, distag.HandleCount(), 1)
	x.Close()
}

func TestScope(t *testing.T) {
	nothingIsLeft(t)
	s := distag.NewScope()
	x := must(distag.From([]float32{1, 2}))
	s.Add(x)
	outside := must(distag.From([]float32{3, 4}))
	y := must(outside.Mul(x))
	kept := must(y.Add(y))
	s.Keep(kept)
	if before := distag.HandleCount(); before != 4 {
		t.Fatalf("%d handles", before)
	}
	ok(t, s.Close())
	same(t, distag.HandleCount(), 2)
	same(t, sum(kept), 22)
	_, err := y.Sum()
	is(t, err, distag.ErrInvalidArgument)
	late := must(distag.From([]float32{1}))
	s.Add(late)
	_, err = late.Sum()
	is(t, err, distag.ErrInvalidArgument)
	ok(t, kept.Close())
	ok(t, outside.Close())
	nothingIsLeft(t)
}

// The collector does not see what tensors hold in C; distag counts it, and begins a collection in time.
func TestDroppedTensorsAreFreed(t *testing.T) {
	before := status("VmRSS")
	for i := 0; i < 2000; i++ {
		must(distag.Ones([]int64{1 << 18}))
	}
	if grown := (status("VmHWM") - before) >> 10; grown > 300 {
		t.Fatalf("%d MiB", grown)
	}
	nothingIsLeft(t)
}

// A Close that was deferred before the error was looked at closes nothing.
func TestCloseOfNothing(t *testing.T) {
	scope := distag.NewScope()
	for _, each := range []distag.Closer{(*distag.Tensor)(nil), (*distag.RRef)(nil), (*distag.Reply)(nil), (*distag.Context)(nil),
		(*distag.Gradients)(nil), (*distag.Optimizer)(nil), (*distag.Future)(nil), (*distag.Mesh)(nil), (*distag.Worker)(nil),
		(*distag.Scope)(nil)} {
		ok(t, each.Close())
		scope.Add(each)
		scope.Keep(each)
		scope.Add(each)
	}
	ok(t, scope.Close())
}

// A nil Context, optimizer or future is an error, and the zero Scope is an empty one.
func TestUseOfNothing(t *testing.T) {
	var none *distag.Context
	x := must(distag.Ones([]int64{1}))
	is(t, none.Backward(x), distag.ErrInvalidArgument, "the Context is nil")
	_, err := none.Gradient(x)
	is(t, err, distag.ErrInvalidArgument, "the Context is nil")
	sgd := must(distag.NewOptimizer(nil, "sgd", []any{x}, nil))
	is(t, sgd.Step(none), distag.ErrInvalidArgument, "the Context is nil")
	ok(t, sgd.Close())
	sgd = nil
	is(t, sgd.Step(none), distag.ErrInvalidArgument, "the optimizer is nil")
	_, err = distag.WaitAll(background, []*distag.Future{nil}...)
	is(t, err, distag.ErrInvalidArgument, "the future is nil")
	_, err = (*distag.Worker)(nil).NewContext(background)
	is(t, err, distag.ErrInvalidArgument, "the worker is nil: make it by NewWorker")
	is(t, (*distag.Worker)(nil).Unregister("f", 0), distag.ErrInvalidArgument, "the worker is nil")
	_, err = (*distag.RRef)(nil).Fetch(background)
	is(t, err, distag.ErrInvalidArgument, "the rref is nil")
	is(t, (*distag.Reply)(nil).Finish(1, nil), distag.ErrInvalidArgument, "the reply is nil")
	_, err = distag.NewContext(nil)
	is(t, err, distag.ErrInvalidArgument, "the parent is nil: give context.Background()")
	var scope distag.Scope
	scope.Add(x)
	ok(t, scope.Close())
	nothingIsLeft(t)
}

// The zero value of each type is an error that says how to get one, and its Close does nothing.
func TestUseOfZeroValues(t *testing.T) {
	zero := func(maker string, errs ...error) {
		t.Helper()
		for _, err := range errs {
			is(t, err, distag.ErrInvalidArgument, "zero value: "+maker)
		}
	}
	first := func(_ any, err error) error { return err }
	ctx, cancel := context.WithTimeout(background, 60*time.Second)
	defer cancel()
	x, local := must(distag.Parameter(distag.Ones([]int64{2}))), must(distag.NewContext(background))
	var w distag.Worker
	zero("NewWorker makes one", w.Start(ctx), first(w.Call(background, "w", "f")), first(w.Call(ctx, "w", "f")),
		first(w.Remote(ctx, "w", "f")), first(w.NewRRef(1)), first(w.Shutdown(ctx)), w.Register("f", func() {}),
		w.Unregister("f", 0), first(w.Poll(0, 0)), w.WaitForWork(0), first(w.Ranks("")), first(w.Stats()), first(w.Report()),
		first(w.NewContext(ctx)), first(w.NewMesh(ctx)), first(w.Trace("x")),
		first(distag.NewOptimizer(&w, "sgd", []any{x}, nil)))
	var future distag.Future
	zero("methods whose names end in Async make one", first(future.Wait(ctx)), first(distag.WaitAll(ctx, &future)))
	<-future.Done()
	same(t, future.IsDone(), false)
	var record distag.Context
	zero("NewContext makes one", record.Backward(must(x.Sum())), first(record.Gradients()), first(record.Gradient(x)),
		first(record.Info()), first(record.Report()), record.Err(),
		first(must(distag.NewOptimizer(nil, "sgd", []any{x}, nil)).Clip(&record, 1)),
		first((&distag.Worker{}).Call(&record, "w", "f")))
	<-record.Done()
	derived, end := context.WithCancel(&record)
	zero("NewContext makes one", derived.Err(), first(w.Call(derived, "w", "f")))
	end()
	_, limited := record.Deadline()
	same(t, limited, false)
	var tensor distag.Tensor
	zero("From and all ops make one", first(tensor.Item()), distag.Write(&tensor, []float32{1}), first(distag.Data[float32](&tensor)),
		x.Assign(&tensor), first(x.Mul(&tensor)), first(tensor.Sum()), first(x.Linear(x, &tensor)), local.Backward(&tensor),
		local.BackwardWith(distag.BackwardOptions{Seeds: []*distag.Tensor{&tensor}}, must(x.Sum())), first(local.Gradient(&tensor)),
		first(distag.Apply("sum", []*distag.Tensor{&tensor}, nil, 1)))
	var reference distag.RRef
	zero("Remote and NewRRef make one", first(reference.Local()), first(reference.Fetch(ctx)),
		local.BackwardWith(distag.BackwardOptions{RemoteRoots: []*distag.RRef{&reference}}))
	var sgd distag.Optimizer
	zero("NewOptimizer makes one", sgd.Set("lr", 1), sgd.Step(local), first(sgd.Save(ctx)), sgd.Load(ctx, nil))
	var mesh distag.Mesh
	zero("NewMesh makes one", first(mesh.Collective(ctx, distag.AllReduce, x, distag.CollectiveOptions{})), first(mesh.Stats()),
		first(mesh.NewJointContext(ctx)), first(mesh.Visualize("(None)", nil, distag.PictureOptions{})))
	var gradients distag.Gradients
	same(t, gradients.Find(x), nil)
	var call distag.Call
	same(t, call.IsCancelled(), true)
	same(t, call.Context() == background, true)
	reply := call.Defer()
	zero("Call.Defer gives one", reply.Finish(1, nil), reply.Finish(nil, errors.New("no")))
	same(t, reply.IsCancelled(), false)
	for _, each := range []distag.Closer{&w, &future, &record, &tensor, &reference, &sgd, &mesh, &gradients, reply, local, x} {
		ok(t, each.Close())
	}
	nothingIsLeft(t)
}

// After a Close each method says what is closed.
func TestWhatIsClosedIsTold(t *testing.T) {
	w := must(distag.NewWorker(distag.Options{Name: "w", WorldSize: 1, Rendezvous: "inproc://told"}))
	ok(t, w.Register("echo", func(x int) int { return x }))
	ok(t, w.Start(background))
	x, other := must(distag.Parameter(distag.Ones([]int64{2}))), must(distag.Ones([]int64{2}))
	record := must(w.NewContext(background))
	local := must(distag.NewContext(background))
	future := must(w.CallAsync(background, "w", "echo", 1))
	reference := must(w.Remote(background, "w", "echo", 1))
	must(reference.Fetch(background))
	mesh := must(w.NewMesh(background, distag.MeshAxis{Name: "x", Size: 1}))
	sgd := must(distag.NewOptimizer(w, "sgd", []any{x}, nil))
	loss := must(x.Sum())
	for _, each := range []distag.Closer{future, reference, sgd, record, mesh, w} {
		ok(t, each.Close())
	}
	closed := func(kind string, errs ...error) {
		t.Helper()
		for _, err := range errs {
			is(t, err, distag.ErrInvalidArgument, "is closed: use it before its Close", kind)
		}
	}
	first := func(_ any, err error) error { return err }
	ctx, cancel := context.WithTimeout(background, 60*time.Second)
	defer cancel()
	closed("the worker", first(w.Call(background, "w", "echo", 1)), first(w.Call(ctx, "w", "echo", 1)), w.Start(ctx),
		first(w.CallAsync(ctx, "w", "echo", 1)), first(w.Remote(ctx, "w", "echo", 1)), first(w.NewRRef(1)),
		first(w.Shutdown(ctx)), first(w.ShutdownAsync(ctx)), w.Register("f", func() {}), w.Unregister("echo", 0),
		first(w.Poll(0, 0)), w.WaitForWork(0), first(w.MemberByName("w")), first(w.Ranks("")), first(w.AllGather(ctx, 1, nil)),
		first(w.Stats()), first(w.Report()), first(w.GroupReport(ctx)), first(w.Metrics()), first(w.NewContext(ctx)),
		first(w.NewMesh(ctx)), w.StartTrace(distag.TraceOptions{Folder: "/"}), w.StopTrace(), w.SetPeers(nil))
	closed("the context", record.Backward(loss), first(record.Gradients()), first(record.Gradient(x)), first(record.Info()),
		first(record.Report()))
	closed("the future", first(future.Wait(ctx)), first(distag.WaitAll(ctx, future)))
	closed("the rref", first(reference.Local()), first(reference.Fetch(ctx)))
	closed("args[0]: the rref", first(w.Call(ctx, "w", "echo", reference)))
	closed("the optimizer", sgd.Set("lr", 1), sgd.Step(local), first(sgd.Clip(local, 1)), first(sgd.Save(ctx)), sgd.Load(ctx, nil))
	closed("the mesh", first(mesh.Collective(ctx, distag.AllReduce, other, distag.CollectiveOptions{})), first(mesh.Stats()),
		first(mesh.NewJointContext(ctx)), other.MarkSharding(mesh, "(None)", 0), first(mesh.FromLocal(other, "(None)", 2)),
		first(mesh.Visualize("(None)", nil, distag.PictureOptions{})))
	ok(t, loss.Close())
	ok(t, x.Close())
	closed("the leaf", first(local.Gradient(x)))
	closed("the tensor", first(x.Item()), distag.Write(x, []float32{1}), first(distag.Data[float32](x)), x.Assign(other),
		other.Assign(x), x.AddScaled(other, 1), first(x.Snapshot()), x.SetRequiresGrad(true), first(x.Mul(other)),
		first(other.Mul(x)), first(x.Sum()), first(x.Relu()), first(distag.Concat([]*distag.Tensor{other, x})),
		first(x.ToLocal()), first(x.Redistribute("()")), first(x.Whole(ctx, 0)), x.RemoveHook(1), local.Backward(x))
	for _, each := range []distag.Closer{local, other} {
		ok(t, each.Close())
	}
	nothingIsLeft(t)
}

// closer closes its input, which the call holds, and fails.
type closer struct{ input *distag.Tensor }

func (c closer) Forward([]*distag.Tensor) ([]*distag.Tensor, error) {
	c.input.Close()
	return nil, distag.Errorf(distag.ErrInvalidArgument, "of the op")
}

func (closer) Backward([]*distag.Tensor) ([]*distag.Tensor, error) { return nil, nil }

// A call that could use its input fails with its own failure, also if the input is closed before it ends.
func TestAnotherFailureIsNotBlamedOnAClose(t *testing.T) {
	x := must(distag.Ones([]int64{2}))
	_, err := distag.ApplyCustom("closer", closer{x}, []*distag.Tensor{x}, 1)
	is(t, err, distag.ErrInvalidArgument, "of the op")
	_, err = x.Sum()
	is(t, err, distag.ErrInvalidArgument, "the tensor is closed")
	nothingIsLeft(t)
}

// keeper keeps its input for Backward, and the gradient that it gets.
type keeper struct{ kept []*distag.Tensor }

func (k *keeper) Forward(inputs []*distag.Tensor) ([]*distag.Tensor, error) {
	k.kept = inputs
	return []*distag.Tensor{must(inputs[0].Mul(inputs[0]))}, nil
}

func (k *keeper) Backward(gradients []*distag.Tensor) ([]*distag.Tensor, error) {
	k.kept = append(k.kept, gradients...)
	return []*distag.Tensor{must(must(k.kept[0].MulScalar(2)).Mul(gradients[0]))}, nil
}

func TestOpsAndHooksKeepTheirTensors(t *testing.T) {
	func() {
		var seen *distag.Tensor
		op := &keeper{}
		x := must(distag.Parameter(distag.From([]float64{1, 2, 3})))
		must(x.AddHook(func(gradient *distag.Tensor) (*distag.Tensor, error) {
			seen = gradient
			return nil, nil
		}))
		record := must(distag.NewContext(background))
		defer record.Close()
		y := must(distag.ApplyCustom("square", op, []*distag.Tensor{x}, 1))
		ok(t, record.Backward(must(y[0].Sum())))
		same(t, sum(op.kept[0]), 6)
		same(t, sum(op.kept[1]), 3)
		same(t, sum(seen), 12)
	}()
	nothingIsLeft(t)
}

// A wrong number of outputs, a nil op and a nil hook are errors.
func TestOpsThatAreRefused(t *testing.T) {
	x := must(distag.Parameter(distag.Ones([]int64{2})))
	for _, outputs := range []int{-1, -2, math.MinInt, math.MaxInt} {
		_, err := distag.Apply("relu", []*distag.Tensor{x}, nil, outputs)
		is(t, err, distag.ErrInvalidArgument, fmt.Sprintf("relu: %d outputs: give a number from 0 to", outputs))
		_, err = distag.ApplyCustom("own", &keeper{}, []*distag.Tensor{x}, outputs)
		is(t, err, distag.ErrInvalidArgument, fmt.Sprintf("own: %d outputs: give a number from 0 to", outputs))
	}
	_, err := distag.ApplyCustom("own", nil, []*distag.Tensor{x}, 1)
	is(t, err, distag.ErrInvalidArgument, "own: the op is nil: give a CustomOp")
	_, err = x.AddHook(nil)
	is(t, err, distag.ErrInvalidArgument, "the hook is nil")
	x.Close()
	nothingIsLeft(t)
}

func TestBorrow(t *testing.T) {
	memory := must(syscall.Mmap(-1, 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE))
	*(*float64)(unsafe.Pointer(&memory[8])) = 2.5
	given := make(chan struct{})
	x := must(distag.Borrow(unsafe.Pointer(&memory[0]), 16, distag.Float64, func() { close(given) }, 2))
	same(t, must(distag.Data[float64](x))[1], 2.5)
	is(t, distag.Write(x, []float64{1, 2}), distag.ErrInvalidState)
	ok(t, x.Close())
	<-given
	panics := make(chan struct{})
	release := func() { close(panics); panic("in a release") }
	ok(t, must(distag.Borrow(unsafe.Pointer(&memory[0]), 16, distag.Float64, release, 2)).Close())
	<-panics
	same(t, must(must(must(distag.Ones([]int64{2})).Sum()).Item()), 2.0)
	ok(t, syscall.Munmap(memory))
	gone := make(chan struct{})
	_, err := distag.Borrow(nil, 16, distag.Float64, func() { close(gone) }, -1)
	is(t, err, distag.ErrInvalidArgument)
	<-gone
	gone = make(chan struct{})
	_, err = distag.Borrow(unsafe.Pointer(&memory), -1, distag.Float64, func() { close(gone) }, 1)
	is(t, err, distag.ErrInvalidArgument, "the size is -1")
	<-gone
}

// ---- a view copies nothing ----

func TestViewCopiesNothing(t *testing.T) {
	x := must(distag.Ones([]int64{16 << 20})) // 64 MiB
	before := status("VmRSS")
	ok(t, distag.View(x, func(data []float32) error {
		same(t, data[len(data)-1], 1)
		if grown := status("VmRSS") - before; grown > 1024 {
			t.Fatalf("%d KiB", grown)
		}
		return nil
	}))
	wanted := errors.New("of the user")
	is(t, distag.View(x, func([]float32) error { return wanted }), wanted)
	is(t, distag.View(x, func([]float64) error { return nil }), distag.ErrInvalidArgument, "float32, not float64")
	ok(t, x.Close())
	is(t, distag.View(x, func([]float32) error { return nil }), distag.ErrInvalidArgument)
}

// ---- errors ----

func TestCodes(t *testing.T) {
	for _, each := range []struct {
		code  distag.Code
		name  string
		class distag.Class
	}{
		{10, "INVALID_ARGUMENT", distag.ErrUsage}, {20, "UNSUPPORTED", distag.ErrAnotherWay},
		{31, "OUT_OF_MEMORY", distag.ErrRetry}, {41, "PEER_RESTARTED", distag.ErrReconnect},
		{51, "CANCELLED", distag.ErrGaveUp}, {65, "DIVERGED", distag.ErrOther}, {99, "UNKNOWN", distag.ErrOther},
		{1042, "USER", distag.ErrUser},
	} {
		same(t, each.code.String(), each.name)
		same(t, each.code.Class(), each.class)
		err := fmt.Errorf("wrapped: %w", distag.Errorf(each.code, "text"))
		is(t, err, each.code, "text")
		is(t, err, each.class)
	}
	a, _ := pair(t, map[string]any{"fail": func(code int) error { return distag.Errorf(distag.Code(code), "as it is") }}, nil)
	for code, arrives := range map[int]distag.Code{1042: 1042, 50: distag.ErrDeadline, 99: distag.ErrRemote} {
		_, err := a.Call(background, "b", "fail", code) // a status that the library does not know is REMOTE
		is(t, err, arrives, "as it is")
	}
}

func TestOptionsAreRefused(t *testing.T) {
	x := must(distag.Ones([]int64{2, 2}))
	_, err := x.Sum(distag.WithStride(2))
	is(t, err, distag.ErrNotFound, "stride")
	_, err = x.Softmax(distag.WithWeight(x))
	is(t, err, distag.ErrNotFound, "weight")
	_, err = must(x.Reshape([]int64{1, 1, 2, 2})).MaxPool2d([]int64{1, 2, 3})
	is(t, err, distag.ErrInvalidArgument, "kernel has 3 numbers")
	_, err = distag.Apply("relu", []*distag.Tensor{x}, map[string]any{"a": []any{make(chan int)}}, 1)
	var own *distag.Error
	same(t, errors.As(err, &own), true)
	is(t, err, distag.ErrInvalidArgument, "attributes.a[0]: ")
	_, err = x.Add(nil)
	is(t, err, distag.ErrInvalidArgument)
	_, err = distag.Concat(nil)
	is(t, err, distag.ErrInvalidArgument)
	is(t, distag.Write(x, []float64{1}), distag.ErrInvalidArgument)
	same(t, must(x.Sum(distag.WithDims(0), distag.WithKeepdim(true))).Shape()[0], 1)
	same(t, math.IsInf(must(must(must(distag.Scalar(1.0)).Div(must(distag.Scalar(0.0)))).Item()), 1), true)
}

type several struct{ outputs, gradients int }

func (s several) Forward(inputs []*distag.Tensor) (made []*distag.Tensor, err error) {
	for i := 0; i < s.outputs; i++ {
		made = append(made, must(inputs[0].MulScalar(1)))
	}
	return made, nil
}

func (s several) Backward(gradients []*distag.Tensor) ([]*distag.Tensor, error) {
	return make([]*distag.Tensor, s.gradients), nil
}

// Lists of the wrong length, where C reads as many as something else says: tests/bindings/lists/lists.txt.
func TestListsBesideCounts(t *testing.T) {
	image, weight := must(distag.Zeros([]int64{1, 1, 4, 4})), must(distag.Ones([]int64{1, 1, 2, 2}))
	for _, given := range [][]int64{{}, {1, 1, 1}} {
		options := map[string]distag.Option{"stride": distag.WithStride(given...), "padding": distag.WithPadding(given...)}
		for name, option := range options {
			_, err := image.Conv2d(weight, nil, option)
			is(t, err, distag.ErrInvalidArgument, name)
			if name == "padding" || len(given) > 0 { // no stride is that of the kernel
				_, err = image.MaxPool2d([]int64{2, 2}, option)
				is(t, err, distag.ErrInvalidArgument, name)
			}
		}
		_, err := image.MaxPool2d(given)
		is(t, err, distag.ErrInvalidArgument, "kernel")
	}
	x, seed := must(distag.Parameter(distag.From([]float32{3}))), must(distag.From([]float32{5}))
	record := must(distag.NewContext(background))
	defer record.Close()
	for _, seeds := range [][]*distag.Tensor{{seed}, {seed, seed, seed}} {
		err := record.BackwardWith(distag.BackwardOptions{Seeds: seeds}, must(x.MulScalar(1)), must(x.MulScalar(2)))
		is(t, err, distag.ErrInvalidArgument, "seeds for 2 roots")
	}
	for _, count := range []int{0, 2} {
		wanted := fmt.Sprintf("a custom op gives %d tensors, 1 are wanted", count)
		_, err := distag.ApplyCustom("several", several{count, 1}, []*distag.Tensor{x}, 1)
		is(t, err, distag.ErrInvalidArgument, wanted)
		y := must(distag.ApplyCustom("several", several{1, count}, []*distag.Tensor{x}, 1))[0]
		is(t, record.Backward(must(y.Sum())), distag.ErrInvalidArgument, wanted)
	}
}

// ---- meshes and keys ----

func TestMesh(t *testing.T) {
	a, b := pair(t, nil, nil)
	var wait sync.WaitGroup
	for rank, w := range []*distag.Worker{a, b} {
		wait.Add(1)
		go func(rank int, w *distag.Worker) {
			defer wait.Done()
			m := must(w.NewMesh(background, distag.MeshAxis{Name: "x", Size: 2}))
			defer m.Close()
			sum := must(m.Collective(background, distag.AllReduce, must(distag.From([]float32{float32(rank), 1})),
				distag.CollectiveOptions{}))
			if data := must(distag.Data[float32](sum)); data[0] != 1 || data[1] != 2 {
				panic(data)
			}
			weight := must(distag.From([]float32{1, 2, 3, 4}, 2, 2))
			if err := weight.SetRequiresGrad(true); err != nil {
				panic(err)
			}
			if err := weight.MarkSharding(m, "('x', None)", -1); err != nil {
				panic(err)
			}
			x := must(distag.From([]float32{10, 20}, 1, 2))
			y := must(x.Linear(weight, nil))
			whole := must(distag.Data[float32](must(y.Whole(background, -1))))
			if whole[0] != 50 || whole[1] != 110 {
				panic(whole)
			}
			joint := must(m.NewJointContext(background))
			defer joint.Close()
			if err := joint.Backward(must(y.Sum())); err != nil {
				panic(err)
			}
			own := must(distag.Data[float32](must(must(joint.Gradient(weight)).ToLocal())))
			if len(own) != 2 || own[0] != 10 || own[1] != 20 {
				panic(own)
			}
			if must(m.Stats()).Calls == 0 {
				panic("no calls are counted")
			}
		}(rank, w)
	}
	wait.Wait()
}

// Rows of a cut batch are counted unread, unless the target to ignore is given; what is refused ends the mesh.
func TestIgnoredTargetsAreGiven(t *testing.T) {
	losses := map[string]func(*distag.Tensor, *distag.Tensor, ...distag.Option) (*distag.Tensor, error){
		"cross_entropy": (*distag.Tensor).CrossEntropy, "nll_loss": (*distag.Tensor).NllLoss}
	a, b := pair(t, nil, nil)
	for name, loss := range losses {
		var gathered, wait sync.WaitGroup
		gathered.Add(2)
		wait.Add(2)
		for _, w := range []*distag.Worker{a, b} {
			go func(w *distag.Worker) {
				defer wait.Done()
				m := must(w.NewMesh(background, distag.MeshAxis{Name: "x", Size: 2}))
				defer m.Close()
				part := must(must(distag.From([]float64{1, 2, 3, 4}, 2, 2)).LogSoftmax())
				logs := must(m.FromLocal(part, "('x', None)"))
				targets := must(m.FromLocal(must(distag.From([]int64{-100, 1})), "('x',)"))
				given := must(loss(logs, targets, distag.WithIgnoreIndex(-100)))
				found := must(must(given.Whole(background, -1)).Item())
				if math.Abs(found-math.Log(1+math.Exp(-1))) > 1e-12 {
					panic(fmt.Sprint(name, found))
				}
				gathered.Done()
				gathered.Wait()
				if _, err := loss(logs, targets); err == nil || !strings.Contains(err.Error(), name+": target -100") {
					panic(fmt.Sprint(name, err))
				}
			}(w)
		}
		wait.Wait()
	}
}

func TestKeysOfEachWorker(t *testing.T) {
	rendezvous := fmt.Sprintf("tcp://127.0.0.1:%d", freePort())
	keys := []distag.Keys{must(distag.CreateKeys()), must(distag.CreateKeys()), must(distag.CreateKeys())}
	peers := map[string]string{"worker0": keys[0].Public, "worker1": keys[1].Public}
	worker := func(rank, key int) *distag.Worker {
		return must(distag.NewWorker(distag.Options{Rank: rank, WorldSize: 2, Rendezvous: rendezvous,
			SecretKey: keys[key].Secret, Peers: peers}))
	}
	a, b, stranger := worker(0, 0), worker(1, 1), worker(1, 2)
	ctx, cancel := context.WithTimeout(background, 120*time.Second)
	defer cancel()
	first := must(a.StartAsync(ctx))
	is(t, stranger.Start(ctx), distag.ErrDenied)
	ok(t, b.Start(ctx))
	must(first.Wait(ctx))
	for _, each := range []*distag.Worker{a, b, stranger} {
		ok(t, each.Close())
	}
	nothingIsLeft(t)
}

// ---- processes ----

func TestMain(m *testing.M) {
	switch os.Getenv("DISTAG_UNIT") {
	case "serve":
		serve()
	case "memory":
		exhaust()
	case "ends":
		leave()
	case "misuse":
		before, isMade := distag.MisuseCount(), releaseTwice()
		fmt.Println(before, isMade, distag.MisuseCount())
	default:
		os.Exit(m.Run())
	}
}

func again(what string, more ...string) *exec.Cmd {
	command := exec.Command(must(os.Executable()))
	command.Env = append(append(os.Environ(), "DISTAG_UNIT="+what), more...)
	return command
}

func member(rank int) *distag.Worker {
	return must(distag.NewWorker(distag.Options{Name: []string{"a", "b"}[rank], Rank: rank, WorldSize: 2,
		Rendezvous: "file://" + os.Getenv("DISTAG_FOLDER")}))
}

// serve is a worker that says where it is and waits to be killed.
func serve() {
	w := member(1)
	if err := w.Register("stay", func() { fmt.Println("called"); select {} }); err != nil {
		panic(err)
	}
	if err := w.Start(background); err != nil {
		panic(err)
	}
	w.Shutdown(background)
}

func TestPeerThatIsKilled(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("DISTAG_FOLDER", folder)
	peer := again("serve")
	said := must(peer.StdoutPipe())
	ok(t, peer.Start())
	a := member(0)
	ok(t, a.Start(background))
	future := must(a.CallAsync(background, "b", "stay"))
	must(said.Read(make([]byte, 7)))
	ok(t, peer.Process.Kill())
	peer.Wait()
	began := time.Now()
	_, err := future.Wait(background)
	is(t, err, distag.ErrDisconnected, `"b"`)
	is(t, err, distag.ErrReconnect)
	if time.Since(began) > 120*time.Second {
		t.Fatal(time.Since(began))
	}
	ok(t, future.Close())
	ok(t, a.Close())
	nothingIsLeft(t)
}

// exhaust asks for memory that is not there.
func exhaust() {
	must(distag.Zeros([]int64{1}))
	limit := syscall.Rlimit{Cur: uint64(status("VmSize"))<<10 + 256<<20, Max: ^uint64(0)}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &limit); err != nil {
		panic(err)
	}
	for i := 0; i < 100; i++ {
		if _, err := distag.Zeros([]int64{1 << 30}); !errors.Is(err, distag.ErrOutOfMemory) || !errors.Is(err, distag.ErrRetry) {
			panic(err)
		}
	}
	fmt.Println(sum(must(distag.Ones([]int64{4}))))
}

func TestNoMemory(t *testing.T) {
	output, err := again("memory").CombinedOutput()
	ok(t, err)
	same(t, string(output), "4\n")
}

func TestMisuseIsCounted(t *testing.T) {
	output, err := again("misuse", "DISTAG_VALIDATE=1").CombinedOutput()
	ok(t, err)
	same(t, string(output), "0 true 1\n")
}

// leave ends this process while calls are open, in the way that its environment names.
func leave() {
	release := make(chan struct{})
	executor := map[string]distag.Executor{"pool": distag.ExecutorPool, "host": distag.ExecutorHost}[os.Getenv("DISTAG_EXECUTOR")]
	var workers []*distag.Worker
	var starts []*distag.Future
	for rank, name := range []string{"a", "b"} {
		w := must(distag.NewWorker(distag.Options{Name: name, Rank: rank, WorldSize: 2, Rendezvous: "inproc://leave",
			Executor: executor}))
		if err := w.Register("wait", func() { <-release }); err != nil {
			panic(err)
		}
		workers, starts = append(workers, w), append(starts, must(w.StartAsync(background)))
	}
	must(distag.WaitAll(background, starts...))
	for i := 0; i < 4000; i++ {
		must(workers[0].CallAsync(background, "b", "wait")).Done()
	}
	switch os.Getenv("DISTAG_END") {
	case "panic":
		panic("uncaught")
	case "exit":
		os.Exit(7)
	case "signal":
		syscall.Kill(os.Getpid(), syscall.SIGTERM)
		select {}
	case "interrupt":
		syscall.Kill(os.Getpid(), syscall.SIGINT)
		select {}
	}
}

func TestEndsOfProcesses(t *testing.T) {
	rounds := 25
	if testing.Short() {
		rounds = 3
	}
	for _, executor := range []string{"pool", "host"} {
		for end, code := range map[string]int{"return": 0, "panic": 2, "exit": 7, "signal": -1, "interrupt": -1} {
			for round := 0; round < rounds; round++ {
				began := time.Now()
				command := again("ends", "DISTAG_END="+end, "DISTAG_EXECUTOR="+executor)
				output, _ := command.CombinedOutput()
				text := string(output)
				if end == "panic" { // Go says so, and nothing else is said
					same(t, strings.HasPrefix(text, "panic: uncaught"), true)
					text = ""
				}
				if command.ProcessState.ExitCode() != code || text != "" || time.Since(began) > 120*time.Second {
					t.Fatalf("%s, %s: left with %v after %v: %s", end, executor, command.ProcessState, time.Since(began), text)
				}
			}
		}
	}
}

// freePort is one that the kernel has just given away, and that came back.
func freePort() int {
	fd := must(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0))
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		panic(err)
	}
	return must(syscall.Getsockname(fd)).(*syscall.SockaddrInet4).Port
}

// What waits for the end of a callback of its own worker is refused there, and works elsewhere.
func TestLeaveWithinCallbacks(t *testing.T) {
	for _, name := range []string{"OnLog", "OnMember"} {
		var w atomic.Pointer[distag.Worker]
		refused := make(chan [2]error, 1)
		leave := func() {
			own := w.Load()
			if own == nil {
				return
			}
			closed := own.Close()
			_, err := own.Shutdown(background)
			select {
			case refused <- [2]error{closed, err}:
			default:
			}
		}
		options := distag.Options{Name: "a", WorldSize: 1, Rendezvous: "inproc://leaves within " + name, LogLevel: distag.LogDebug}
		if name == "OnLog" {
			options.OnLog = func(distag.LogLevel, string) { leave() }
		} else {
			options.OnMember = func(distag.Member) { leave() }
		}
		own := must(distag.NewWorker(options))
		ok(t, own.Register("wait", func(c context.Context) { <-c.Done() }))
		w.Store(own)
		ok(t, own.Start(background))
		// The end of a call is logged, but not of one whose deadline was over before it began.
		var found [2]error
		for hung := time.After(60 * time.Second); found[0] == nil; {
			soon, cancel := context.WithTimeout(background, 10*time.Millisecond)
			_, err := own.Call(soon, "a", "wait")
			cancel()
			is(t, err, distag.ErrDeadline)
			select {
			case found = <-refused:
			case <-time.After(100 * time.Millisecond):
			case <-hung:
				t.Fatal(name + " was not called, or waits for itself")
			}
		}
		for _, err := range found {
			is(t, err, distag.ErrInvalidState, name+" of this worker")
		}
		must(own.Shutdown(background))
		ok(t, own.Close())
	}
}
