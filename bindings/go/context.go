package distag

/*
#include "callbacks.h"
*/
import "C"

import (
	"context"
	"runtime"
	"runtime/cgo"
	"time"
	"unsafe"
)

// Context is one forward and its backward passes. It is a context.Context too: calls that get it, or a context derived from
// it, are recorded in it.
type Context struct {
	context.Context
	handle
	worker *Worker
	scope  *Scope
}

func newContext(parent context.Context, w *Worker, pointer *C.distag_context) *Context {
	c := &Context{Context: parent, handle: handle{pointer: unsafe.Pointer(pointer), release: releaseContext}, worker: w}
	runtime.SetFinalizer(c, func(c *Context) { c.handle.close() })
	return c
}

// Value makes what is derived from c know it.
func (x *Context) Value(key any) any {
	if key == recordKey {
		return x
	}
	if x.isMade() {
		return x.Context.Value(key)
	}
	return nil
}

func (x *Context) isMade() bool { return x != nil && x.Context != nil }

// Err is that of the parent. A zero Context has ended with the error that says how to make one.
func (x *Context) Err() error {
	if x.isMade() {
		return x.Context.Err()
	}
	return usage("the Context is nil or a zero value: NewContext makes one")
}

// Done is that of the parent.
func (x *Context) Done() <-chan struct{} {
	if x.isMade() {
		return x.Context.Done()
	}
	return ended
}

// Deadline is that of the parent.
func (x *Context) Deadline() (deadline time.Time, ok bool) {
	if x.isMade() {
		return x.Context.Deadline()
	}
	return time.Time{}, false
}

// NewContext makes a context for calls and backward passes; close it to end it everywhere it reached. Passes end when
// parent does.
func (w *Worker) NewContext(parent context.Context) (*Context, error) {
	if w == nil {
		return nil, usage("NewContext: the worker is nil: make it by NewWorker, or use distag.NewContext")
	}
	return makeContext(parent, w)
}

// NewContext makes a context for training within this process, without a worker.
func NewContext(parent context.Context) (*Context, error) { return makeContext(parent, nil) }

func makeContext(parent context.Context, w *Worker) (*Context, error) {
	if parent == nil {
		return nil, usage("NewContext: the parent is nil: give context.Background()")
	}
	f := newFrame()
	var made *C.distag_context
	f.status = C.distag_context_create(w.hold(f), &made, &f.err)
	drop(w)
	if err := f.finish(); err != nil {
		C.distag_context_release(made)
		return nil, err
	}
	return newContext(parent, w, made), nil
}

// Close ends the context: records and gradients are dropped, here and on every worker it reached.
func (x *Context) Close() error {
	if x == nil {
		return nil
	}
	runtime.SetFinalizer(x, nil)
	x.handle.close()
	return nil
}

// BackwardOptions of a pass.
type BackwardOptions struct {
	Seeds       []*Tensor // a gradient for each root; nil for one that is a scalar
	RemoteRoots []*RRef   // scalar roots that live on other workers
	RetainGraph bool      // keep the graph for another pass
	CreateGraph bool      // gradients have a history, for a pass through them; retains the graph
	Fast        bool      // expect that the roots depend on every recorded call
}

// Backward runs a pass from roots of one element through every worker they depend on.
func (x *Context) Backward(roots ...*Tensor) error {
	return x.BackwardWith(BackwardOptions{}, roots...)
}

// BackwardWith is Backward with options.
func (x *Context) BackwardWith(options BackwardOptions, roots ...*Tensor) error {
	if x == nil {
		return usage("Backward: the Context is nil: make it by NewContext")
	}
	if err := x.checkRoots(options, roots); err != nil {
		return err
	}
	timeout, err := timeoutOf(x, 0)
	if err != nil {
		return err
	}
	mode := C.distag_backward_mode_type(0)
	if options.Fast {
		mode = C.DISTAG_BACKWARD_FAST
	}
	start := func(f *frame, future **C.distag_future) {
		remote := make([]*C.distag_rref, len(options.RemoteRoots)+1)
		for i, each := range options.RemoteRoots {
			remote[i] = each.hold(f)
		}
		f.status = C.distag_go_backward(x.hold(f), holdAll(f, roots).pointer(), C.size_t(len(roots)), mode,
			C.uint32_t(truth(options.RetainGraph)), C.uint32_t(truth(options.CreateGraph)), timeout,
			holdAll(f, options.Seeds).pointer(), &remote[0], C.size_t(len(options.RemoteRoots)), future, &f.err)
		drop(x)
		dropAll(roots)
		dropAll(options.Seeds)
		for _, each := range options.RemoteRoots {
			drop(each)
		}
	}
	causes.expect(codeOfOps)
	defer causes.forget(codeOfOps)
	if x.worker == nil {
		f := newFrame()
		hostWait(func() { start(f, nil) }) // a joint one waits for the other members
		return causes.find(codeOfOps, f.finish())
	}
	_, err = run(x, func(f *frame) { start(f, &f.future) })
	return causes.find(codeOfOps, err)
}

func (x *Context) checkRoots(options BackwardOptions, roots []*Tensor) error {
	if options.Seeds != nil && len(options.Seeds) != len(roots) {
		return usage("Backward: %d seeds for %d roots: give one, or nil, for each", len(options.Seeds), len(roots))
	}
	for i, each := range options.Seeds {
		if err := each.refusal("Backward: seed %d", i); err != nil {
			return err
		}
	}
	return nil
}

// Gradients is a snapshot of the gradients that leaves of this worker have in a context.
type Gradients struct{ handle }

// Gradients gives those of this worker, summed over the passes.
func (x *Context) Gradients() (*Gradients, error) {
	if x == nil {
		return nil, usage("Gradients: the Context is nil: make it by NewContext")
	}
	if x.worker != nil && x.Done() != nil {
		if _, err := run(x, func(f *frame) {
			f.status = C.distag_context_settle_async(x.hold(f), &f.future, &f.err)
			drop(x)
		}); err != nil {
			return nil, err
		}
	}
	f := newFrame()
	var made *C.distag_gradients
	f.status = C.distag_get_gradients(x.hold(f), &made, &f.err)
	drop(x)
	if err := f.finish(); err != nil {
		return nil, err
	}
	g := &Gradients{handle{pointer: unsafe.Pointer(made), release: releaseGradients}}
	runtime.SetFinalizer(g, func(g *Gradients) { g.handle.close() })
	return g, nil
}

// Gradient gives the gradient of one leaf.
func (x *Context) Gradient(leaf *Tensor) (*Tensor, error) {
	if leaf == nil {
		return nil, usage("Gradient: the leaf is nil: give a tensor that requires a gradient")
	}
	if err := leaf.refusal("Gradient: the leaf"); err != nil {
		return nil, err
	}
	g, err := x.Gradients()
	if err != nil {
		return nil, err
	}
	defer g.Close()
	if found := g.Find(leaf); found != nil {
		inherit(found, []*Tensor{leaf})
		return found, nil
	}
	return nil, &Error{Code: ErrNotFound, OriginRank: -1,
		Message: "no pass of this context has reached the tensor on this worker, or a custom op gave nil for it: " +
			"ask for a leaf that requires a gradient"}
}

// Find gives the gradient of a leaf; nil when no pass has reached it.
func (x *Gradients) Find(leaf *Tensor) *Tensor {
	defer x.drop()
	found := retainTensor(C.distag_gradients_find(x.hold(nil), leaf.hold(nil)))
	leaf.drop()
	if found == nil {
		return nil
	}
	return newTensor(found)
}

// Each gives every leaf and its gradient to a function, in the order of their ids.
func (x *Gradients) Each(use func(leaf, gradient *Tensor)) {
	for i := 0; i < x.Count(); i++ {
		pointer := x.hold(nil)
		leaf := retainTensor(C.distag_gradients_get_tensor(pointer, C.size_t(i)))
		gradient := retainTensor(C.distag_gradients_get_gradient(pointer, C.size_t(i)))
		x.drop()
		if leaf != nil && gradient != nil {
			use(newTensor(leaf), newTensor(gradient))
		}
	}
}

// Close releases the snapshot.
func (x *Gradients) Close() error {
	if x == nil {
		return nil
	}
	runtime.SetFinalizer(x, nil)
	x.handle.close()
	return nil
}

// Info gives the counts of the context on this worker.
func (x *Context) Info() (ContextInfo, error) {
	var found C.distag_context_info
	found.struct_size = C.sizeof_distag_context_info
	f := newFrame()
	f.status = C.distag_context_get_info(x.hold(f), &found, &f.err)
	drop(x)
	return contextInfoOf(&found), f.finish()
}

// Report gives passes and graph of the context on this worker in JSON.
func (x *Context) Report() (string, error) {
	return copyText(func(f *frame, buffer *C.char, capacity C.size_t, size *C.size_t) C.distag_status {
		return C.distag_context_copy_report(x.hold(f), buffer, capacity, size, &f.err)
	}, x)
}

// ---- optimizers ----

// Optimizer is an update rule and its state, kept where each parameter is.
type Optimizer struct {
	handle
	worker *Worker
}

// NewOptimizer makes an optimizer, "sgd", "adagrad", "adam", "adamw", "adadelta", "rmsprop", "adamax" or "rprop", with the
// rules and defaults of PyTorch. Parameters are *Tensor, or *RRef to a tensor or a list of tensors anywhere. The worker may
// be nil when all are tensors of this process.
func NewOptimizer(w *Worker, kind string, parameters []any, settings map[string]float64) (*Optimizer, error) {
	var b builder
	defer b.close()
	given, err := b.arguments(parameters)
	if err != nil {
		return nil, err
	}
	name, err := cText("kind", kind)
	if err != nil {
		return nil, err
	}
	f := newFrame()
	var made *C.distag_optimizer
	f.status = C.distag_optimizer_create(w.hold(f), name, &given[:1][0], C.size_t(len(given)), &made, &f.err)
	drop(w)
	if err := f.finish(); err != nil {
		C.distag_optimizer_release(made)
		return nil, err
	}
	o := &Optimizer{handle{pointer: unsafe.Pointer(made), release: releaseOptimizer}, w}
	runtime.SetFinalizer(o, func(o *Optimizer) { o.handle.close() })
	for setting, value := range settings {
		if err := o.Set(setting, value); err != nil {
			o.Close()
			return nil, err
		}
	}
	return o, nil
}

// Close releases the optimizer.
func (x *Optimizer) Close() error {
	if x == nil {
		return nil
	}
	runtime.SetFinalizer(x, nil)
	x.handle.close()
	return nil
}

// Set changes a setting ("lr", "momentum" ...) from the next step on.
func (x *Optimizer) Set(setting string, value float64) error {
	name, err := cText("setting", setting)
	if err != nil {
		return err
	}
	f := newFrame()
	f.status = C.distag_optimizer_set(x.hold(f), name, C.double(value), &f.err)
	drop(x)
	return f.finish()
}

// Step updates each parameter with its gradient in the context, at all owners side by side.
func (x *Optimizer) Step(c *Context) error {
	_, err := x.operate(c, func(s *settings, future **C.distag_future, f *frame) {
		f.status = C.distag_go_step(x.hold(f), c.hold(f), s.timeout, future, &f.err)
		drop(x, c)
	})
	return err
}

// Clip scales the gradients so that their joint norm is at most maxNorm, and gives the norm that it found.
func (x *Optimizer) Clip(c *Context, maxNorm float64) (float64, error) {
	var norm C.double
	value, err := x.operate(c, func(s *settings, future **C.distag_future, f *frame) {
		f.status = C.distag_go_clip(x.hold(f), c.hold(f), C.double(maxNorm), s.timeout, future, &norm, &f.err)
		drop(x, c)
	})
	if err != nil || x.worker == nil {
		return float64(norm), err
	}
	return As[float64](value)
}

// Save gives the state at all owners and the settings as one value.
func (x *Optimizer) Save(ctx context.Context) (any, error) {
	var state *C.distag_value
	value, err := x.operate(ctx, func(s *settings, future **C.distag_future, f *frame) {
		f.status = C.distag_go_save(x.hold(f), s.timeout, future, &state, &f.err)
		drop(x)
	})
	if err != nil || x.worker != nil {
		return value, err
	}
	defer C.distag_value_release(state)
	return fromValue(state)
}

// Load puts a saved state back.
func (x *Optimizer) Load(ctx context.Context, state any) error {
	var b builder
	defer b.close()
	given, err := b.arguments([]any{state})
	if err != nil {
		return err
	}
	_, err = x.operate(ctx, func(s *settings, future **C.distag_future, f *frame) {
		f.status = C.distag_go_load(x.hold(f), given[0], s.timeout, future, &f.err)
		drop(x)
	})
	return err
}

// operate runs by a future where there is a worker, else at once.
func (x *Optimizer) operate(ctx context.Context, start func(*settings, **C.distag_future, *frame)) (any, error) {
	if x == nil {
		return nil, usage("the optimizer is nil: make it by NewOptimizer")
	}
	if record, ok := ctx.(*Context); ok && record == nil {
		return nil, usage("the Context is nil: give the one of the backward pass")
	}
	s, err := settingsOf(ctx)
	if err != nil {
		return nil, err
	}
	if x.worker == nil {
		f := newFrame()
		start(&s, nil, f)
		return nil, f.finish()
	}
	return run(ctx, func(f *frame) { start(&s, &f.future, f) })
}

// ---- custom ops and hooks ----

// CustomOp is an op of the user, for one application; it keeps what Backward needs. Inputs come without history, and are left
// to the collector, as is the gradient of a Hook.
type CustomOp interface {
	Forward(inputs []*Tensor) ([]*Tensor, error)
	// Backward gives the gradient of each input from that of each output. nil stands for zeros: a leaf that no pass gives
	// more has no gradient.
	Backward(gradients []*Tensor) ([]*Tensor, error)
}

// ApplyCustom runs an op of the user and records it; its name shows in errors and graphs.
func ApplyCustom(name string, op CustomOp, inputs []*Tensor, outputs int) ([]*Tensor, error) {
	if missing != nil {
		return nil, missing
	}
	if op == nil {
		return nil, usage("%s: the op is nil: give a CustomOp", name)
	}
	if err := checkOutputs(name, outputs); err != nil {
		return nil, err
	}
	text, err := cText("op", name)
	if err != nil {
		return nil, err
	}
	causes.expect(codeOfOps)
	defer causes.forget(codeOfOps)
	made := make([]*C.distag_tensor, outputs+1)
	f := newFrame()
	f.status = C.distag_go_apply_custom(text, C.uintptr_t(cgo.NewHandle(op)), holdAll(f, inputs).pointer(),
		C.size_t(len(inputs)), &made[0], C.size_t(outputs), &f.err)
	dropAll(inputs)
	if err := f.finish(); err != nil {
		return nil, causes.find(codeOfOps, err)
	}
	tensors := make([]*Tensor, outputs)
	for i := range tensors {
		tensors[i] = newTensor(made[i])
		inherit(tensors[i], inputs)
	}
	return tensors, nil
}

// lentTensors makes objects of tensors that C lends; nil for NULL.
func lentTensors(first **C.distag_tensor, count C.size_t) []*Tensor {
	tensors := make([]*Tensor, int(count))
	for i, pointer := range unsafe.Slice(first, int(count)) {
		if pointer != nil {
			tensors[i] = newTensor(retainTensor(pointer))
		}
	}
	return tensors
}

// compute runs the code of an op, and hands over what it gives.
func compute(run func([]*Tensor) ([]*Tensor, error), in **C.distag_tensor, inCount C.size_t, out **C.distag_tensor,
	outCount C.size_t, err *C.distag_error) C.distag_status {
	given := lentTensors(in, inCount)
	var made []*Tensor
	failure := protect(func() (err error) {
		made, err = run(given)
		return err
	})
	if failure == nil && len(made) != int(outCount) {
		failure = usage("a custom op gives %d tensors, %d are wanted", len(made), int(outCount))
	}
	if failure == nil {
		for i, slot := range made {
			if refused := slot.refusal("a custom op gives %d tensors, and tensor %d", len(made), i); refused != nil {
				failure = refused
			} else if slot != nil {
				unsafe.Slice(out, int(outCount))[i] = retainTensor(slot.hold(nil))
				slot.drop()
			}
		}
	}
	if failure != nil {
		status := setError(err, failure)
		causes.keep(codeOfOps, err, failure)
		return status
	}
	return 0
}

//export distagGoForward
func distagGoForward(op C.uintptr_t, in **C.distag_tensor, inCount C.size_t, out **C.distag_tensor, outCount C.size_t,
	err *C.distag_error) C.distag_status {
	return compute(cgo.Handle(op).Value().(CustomOp).Forward, in, inCount, out, outCount, err)
}

//export distagGoBackward
func distagGoBackward(op C.uintptr_t, in **C.distag_tensor, inCount C.size_t, out **C.distag_tensor, outCount C.size_t,
	err *C.distag_error) C.distag_status {
	return compute(cgo.Handle(op).Value().(CustomOp).Backward, in, inCount, out, outCount, err)
}

// Hook sees the whole gradient of a tensor, and gives another one in its place, or nil.
type Hook func(gradient *Tensor) (*Tensor, error)

// AddHook adds a hook to a tensor that requires a gradient, before it is used, and gives its id.
func (x *Tensor) AddHook(hook Hook) (uint64, error) {
	if hook == nil {
		return 0, usage("AddHook: the hook is nil")
	}
	f := newFrame()
	var id C.uint64_t
	f.status = C.distag_go_add_hook(x.hold(f), C.uintptr_t(cgo.NewHandle(hook)), &id, &f.err)
	drop(x)
	return uint64(id), f.finish()
}

// RemoveHook removes a hook by its id.
func (x *Tensor) RemoveHook(id uint64) error {
	f := newFrame()
	f.status = C.distag_tensor_remove_hook(x.hold(f), C.uint64_t(id), &f.err)
	drop(x)
	return f.finish()
}

//export distagGoHook
func distagGoHook(hook C.uintptr_t, gradient *C.distag_tensor, out **C.distag_tensor, err *C.distag_error) C.distag_status {
	run := func(given []*Tensor) ([]*Tensor, error) {
		made, err := cgo.Handle(hook).Value().(Hook)(given[0])
		return []*Tensor{made}, err
	}
	return compute(run, &gradient, 1, out, 1, err)
}

//export distagGoGiveBack
func distagGoGiveBack(release C.uintptr_t) {
	own := cgo.Handle(release)
	run := own.Value().(func())
	own.Delete()
	giveBack(run)
}

// giveBack runs the release of borrowed memory.
func giveBack(run func()) {
	if run != nil {
		tellPanic("release of borrowed memory", nil, protect(func() error {
			run()
			return nil
		}))
	}
}
