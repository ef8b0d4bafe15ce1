package distag

/*
#include "callbacks.h"
*/
import "C"

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"runtime/cgo"
	"sync"
	"time"
	"unsafe"
)

// ---- calling ----

// Call calls a function of the worker named to, or a built-in op, and waits for the answer, whose type is that of As. The
// deadline of ctx is the call's, its end cancels the call, and a Context that it is or has records it.
func (w *Worker) Call(ctx context.Context, to, function string, args ...any) (any, error) {
	if ctx.Done() == nil && !isHosted() {
		select {
		case waiting <- struct{}{}: // the shortest way: one call of C, which waits
			defer func() { <-waiting }()
			return w.callBlocking(ctx, to, function, args)
		default:
		}
	}
	future, err := w.CallAsync(ctx, to, function, args...)
	if err != nil {
		return nil, err
	}
	defer future.Close()
	return future.Wait(ctx)
}

// Invoke calls a function as Worker.Call does, and gives the answer as a type.
func Invoke[T any](ctx context.Context, w *Worker, to, function string, args ...any) (T, error) {
	value, err := w.Call(ctx, to, function, args...)
	if err != nil {
		return *new(T), err
	}
	return answerAs[T](value)
}

// prepared is a call with all its arguments in C.
type prepared struct {
	builder
	settings
	to, function *C.char
	args         []*C.distag_value
	context      *C.distag_context
	worker       *Worker
}

func (p *prepared) prepare(ctx context.Context, w *Worker, to, function string, args []any) (err error) {
	p.worker = w
	if p.settings, err = settingsOf(ctx); err != nil {
		return err
	}
	if p.to, err = cText("name of a worker", to); err != nil {
		return err
	}
	if p.function, err = cText("name of a function", function); err != nil {
		return err
	}
	if p.args, err = p.arguments(args); err != nil {
		return err
	}
	if p.context = p.record.hold(nil); p.record != nil {
		p.held = append(p.held, p.record)
	}
	if p.record != nil {
		return p.record.refusal("the context", "context")
	}
	return nil
}

// first gives the array of arguments, which has room behind its end.
func (p *prepared) first() **C.distag_value { return &p.args[:1][0] }

func (w *Worker) callBlocking(ctx context.Context, to, function string, args []any) (any, error) {
	var p prepared
	defer p.close()
	if err := p.prepare(ctx, w, to, function, args); err != nil {
		return nil, err
	}
	causes.expect(to)
	defer causes.forget(to)
	f := newFrame()
	f.status = C.distag_go_call_blocking(w.hold(f), p.context, p.to, p.function, p.first(), C.size_t(len(args)), p.timeout,
		p.label, &f.value, &f.err)
	drop(w)
	value := f.value
	if err := f.finish(); err != nil {
		return nil, causes.find(to, err)
	}
	defer C.distag_value_release(value)
	return fromValue(value)
}

// CallAsync is Call without waiting; the end of ctx cancels it only while somebody waits for it with that ctx.
func (w *Worker) CallAsync(ctx context.Context, to, function string, args ...any) (*Future, error) {
	var p prepared
	defer p.close()
	if err := p.prepare(ctx, w, to, function, args); err != nil {
		return nil, err
	}
	return beginAt(to, func(f *frame) {
		f.status = C.distag_go_call_async(w.hold(f), p.context, p.to, p.function, p.first(), C.size_t(len(args)), p.timeout,
			p.label, &f.future, &f.err)
		drop(w)
	})
}

// Remote calls a function and leaves its answer at its worker; it returns before the function ran.
func (w *Worker) Remote(ctx context.Context, to, function string, args ...any) (*RRef, error) {
	var p prepared
	defer p.close()
	if err := p.prepare(ctx, w, to, function, args); err != nil {
		return nil, err
	}
	causes.expect(to)
	f := newFrame()
	var made *C.distag_rref
	f.status = C.distag_go_remote(w.hold(f), p.context, p.to, p.function, p.first(), C.size_t(len(args)), p.timeout, p.label,
		&made, &f.err)
	drop(w)
	if err := f.finish(); err != nil {
		causes.forget(to)
		return nil, err
	}
	x := newRRef(made)
	x.to, x.release = to, func(pointer unsafe.Pointer) {
		releaseRRef(pointer)
		causes.forget(to)
	}
	return x, nil
}

// ---- references ----

// RRef names a value that lives at its owner. It travels in calls and answers.
type RRef struct {
	handle
	to string // the worker whose function makes the value
}

func newRRef(pointer *C.distag_rref) *RRef {
	x := &RRef{handle: handle{pointer: unsafe.Pointer(pointer), release: releaseRRef}}
	runtime.SetFinalizer(x, func(x *RRef) { x.handle.close() })
	return x
}

// Close releases the reference.
func (x *RRef) Close() error {
	if x == nil {
		return nil
	}
	runtime.SetFinalizer(x, nil)
	x.handle.close()
	return nil
}

// NewRRef shares a value of this worker, or any object of Go, which stays here.
func (w *Worker) NewRRef(value any) (*RRef, error) {
	var b builder
	defer b.close()
	converted, err := b.value(value, true)
	if err != nil {
		return nil, located(at(err, "value"))
	}
	f := newFrame()
	var made *C.distag_rref
	f.status = C.distag_rref_create(w.hold(f), converted, &made, &f.err)
	drop(w)
	if err := f.finish(); err != nil {
		return nil, err
	}
	return newRRef(made), nil
}

// Fetch waits for the value and gives it, a copy if it is elsewhere.
func (x *RRef) Fetch(ctx context.Context) (any, error) {
	if x == nil {
		return nil, usage("the rref is nil: Remote and NewRRef make one")
	}
	s, err := settingsOf(ctx)
	if err != nil {
		return nil, err
	}
	value, err := run(ctx, func(f *frame) {
		f.status = C.distag_go_fetch(x.hold(f), s.record.hold(f), s.timeout, s.label, &f.future, &f.err)
		drop(x, s.record)
	})
	return value, causes.find(x.to, err)
}

// Local gives the value, or the object, at its owner.
func (x *RRef) Local() (any, error) {
	defer x.drop()
	f := newFrame()
	f.status = C.distag_rref_get_local(x.hold(f), &f.value, &f.err)
	value := f.value
	if err := f.finish(); err != nil {
		return nil, err
	}
	return fromValue(value)
}

// ---- being called ----

// Call is one call that a function answers. It may be kept.
type Call struct {
	worker *Worker
	caller string
	args   []any
	reply  *Reply
	ctx    context.Context
	later  bool
}

// Worker gives the worker whose function is called.
func (c *Call) Worker() *Worker { return c.worker }

// Caller gives the name of the worker that calls.
func (c *Call) Caller() string { return c.caller }

// Args gives the arguments as they came.
func (c *Call) Args() []any { return c.args }

// IsCancelled reports whether no caller waits any more, also because the call is answered.
func (c *Call) IsCancelled() bool { return c.reply == nil || c.reply.IsCancelled() || c.reply.closed() }

// Context ends when the call does: at its deadline, when its caller cancels, when it is answered. Calls that get it are
// recorded in the Context of this one. That of a zero Call, as in a test of a function, is context.Background().
func (c *Call) Context() context.Context {
	if c.ctx == nil {
		return context.Background()
	}
	return c.ctx
}

// Defer keeps the call open after the function has returned, until Finish of the reply; what the function gives is not used.
func (c *Call) Defer() *Reply {
	if c.reply == nil {
		return &Reply{}
	}
	if !c.later { // else the end of the function answers it
		c.later = true
		runtime.SetFinalizer(c.reply, (*Reply).end)
	}
	return c.reply
}

// Reply is the answer that a function still owes. The collector fails the call of one that is forgotten.
type Reply struct {
	*handle // the context of the call looks at it too, and keeps no Reply from the collector
	cancel  context.CancelFunc
	worker  *Worker
}

// Finish answers with a value, or an error if there is one.
func (x *Reply) Finish(value any, failure error) error {
	if x == nil {
		return usage("the reply is nil: Call.Defer gives one")
	}
	if err := x.refusal("the reply", "reply"); err != nil {
		return err
	}
	defer x.Close()
	if failure == nil {
		var b builder
		defer b.close()
		var converted *C.distag_value
		if converted, failure = b.value(value, true); failure == nil {
			f := newFrame()
			f.status = C.distag_reply_finish(x.hold(f), converted, nil, &f.err)
			drop(x)
			failure = f.finish()
			if failure == nil {
				return nil
			}
		} else {
			failure = located(at(failure, "answer"))
		}
	}
	f, answer := newFrame(), newFrame()
	defer answer.free()
	setError(&answer.err, failure)
	causes.keep(x.worker.Name(), &answer.err, failure)
	f.status = C.distag_reply_finish(x.hold(f), nil, &answer.err, &f.err)
	drop(x)
	return f.finish()
}

// Close gives the reply back, and ends the Context of its call; a call that is not answered fails.
func (x *Reply) Close() error {
	if x == nil || x.handle == nil {
		return nil
	}
	runtime.SetFinalizer(x, nil)
	x.end()
	return nil
}

func (x *Reply) end() {
	x.handle.close()
	x.cancel()
}

// offered is a function of a worker.
type offered struct {
	worker *Worker
	name   string
	run    func(*Call) (any, error)
	calls  tally // of it, which run
}

var (
	contextType = reflect.TypeOf((*context.Context)(nil)).Elem()
	errorType   = reflect.TypeOf((*error)(nil)).Elem()
	callType    = reflect.TypeOf((*Call)(nil))
)

// Register offers a function under a name. It is func(*distag.Call) (any, error), or any function whose arguments and result
// have types of As; a context.Context or *distag.Call may come first, an error last. It runs on a goroutine of its own. An
// error, a panic and runtime.Goexit in it fail the call. With callers, only those workers may call it. With the host executor
// and with Options.Threads its waits for distag let others run, as those of C do; what else it waits for takes its place.
func (w *Worker) Register(name string, function any, callers ...string) error {
	adapted, err := adapt(name, function)
	if err != nil {
		return err
	}
	var t texts
	defer t.free()
	text := t.copy("name of a function", name)
	var list **C.char
	var count C.size_t
	if len(callers) > 0 {
		list, count = t.array("callers", callers)
	}
	if t.err != nil {
		return t.err
	}
	own := &offered{worker: w, name: name, run: adapted}
	f := newFrame()
	f.status = C.distag_go_register(w.hold(f), text, C.uintptr_t(cgo.NewHandle(own)), list, count, &f.err)
	drop(w)
	if err := f.finish(); err != nil {
		return err
	}
	w.functions.put(own)
	return nil
}

// adapt looks at the types of a function once.
func adapt(name string, function any) (func(*Call) (any, error), error) {
	if plain, ok := function.(func(*Call) (any, error)); ok && plain != nil {
		return plain, nil
	}
	v := reflect.ValueOf(function)
	if v.Kind() != reflect.Func || v.IsNil() || v.Type().IsVariadic() {
		return nil, usage("%s: %T is no function to offer: give one with a fixed number of arguments", name, function)
	}
	type_ := v.Type()
	fails := type_.NumOut() > 0 && type_.Out(type_.NumOut()-1) == errorType
	gives := type_.NumOut()
	if fails {
		gives--
	}
	if gives > 1 {
		return nil, usage("%s: the function has %d results: give one, a list or a map", name, gives)
	}
	first := 0
	if type_.NumIn() > 0 && (type_.In(0) == contextType || type_.In(0) == callType) {
		first = 1
	}
	return func(call *Call) (any, error) {
		in, err := argumentsOf(name, type_, first, call)
		if err != nil {
			return nil, err
		}
		out := v.Call(in)
		if fails && !out[gives].IsNil() {
			return nil, out[gives].Interface().(error)
		}
		if gives == 0 {
			return nil, nil
		}
		return out[0].Interface(), nil
	}, nil
}

func argumentsOf(name string, type_ reflect.Type, first int, call *Call) ([]reflect.Value, error) {
	if wanted := type_.NumIn() - first; len(call.args) != wanted {
		return nil, usage("%s: %d arguments came, it takes %d: call it with these", name, len(call.args), wanted)
	}
	in := make([]reflect.Value, type_.NumIn())
	if first == 1 {
		in[0] = reflect.ValueOf(call)
		if type_.In(0) == contextType {
			in[0] = reflect.ValueOf(&call.ctx).Elem()
		}
	}
	for i, arg := range call.args {
		target := reflect.New(type_.In(i + first)).Elem()
		if err := convert(arg, target); err != nil {
			return nil, located(at(err, fmt.Sprintf("%s: args[%d]", name, i)))
		}
		in[i+first] = target
	}
	return in, nil
}

//export distagGoInvoke
func distagGoInvoke(function C.uintptr_t, invocation *C.distag_invocation, err *C.distag_error) C.distag_status {
	own := cgo.Handle(function).Value().(*offered)
	call, failure := newCall(own, invocation)
	if failure != nil {
		return setError(err, failure)
	}
	own.calls.begin()
	own.worker.functions.calls.begin()
	g := &guest{call: call, function: own}
	var value any
	run := func() (err error) {
		value, err = own.run(call)
		return err
	}
	answer := func(failure error) {
		own.logPanic(failure)
		if !call.later || failure != nil {
			call.reply.Finish(value, failure)
		}
		own.worker.functions.calls.end()
		own.calls.end()
	}
	if own.worker.options.Executor == ExecutorHost || own.worker.options.Threads > 0 {
		answer(g.host(run)) // the thread that C gives it waits, and counts
		return 0
	}
	// A goroutine that waits takes no thread of the pool, and Goexit ends no thread of C.
	go g.run(run, answer)
	return 0
}

func newCall(own *offered, invocation *C.distag_invocation) (*Call, error) {
	call := &Call{worker: own.worker, caller: C.GoString(C.distag_invocation_get_caller(invocation))}
	count := int(C.distag_invocation_get_arg_count(invocation))
	for i := 0; i < count; i++ {
		arg, err := fromValue(C.distag_invocation_get_arg(invocation, C.size_t(i)))
		if err != nil {
			return nil, err
		}
		call.args = append(call.args, arg)
	}
	f := newFrame()
	var reply *C.distag_reply
	f.status = C.distag_invocation_defer(invocation, &reply, &f.err)
	if err := f.finish(); err != nil {
		return nil, err
	}
	owed := &handle{pointer: unsafe.Pointer(reply), release: releaseReply}
	parent := context.Background()
	if record := C.distag_invocation_get_context(invocation); record != nil {
		parent = newContext(parent, own.worker, retainContext(record))
	}
	var ctx context.Context
	var cancel context.CancelFunc
	if left := C.distag_invocation_get_time_left(invocation); left != forever {
		ctx, cancel = context.WithTimeout(parent, time.Duration(left))
	} else {
		ctx, cancel = context.WithCancel(parent)
	}
	call.ctx = &callContext{Context: ctx, worker: own.worker, reply: owed, cancel: cancel}
	call.reply = &Reply{owed, cancel, own.worker}
	return call, nil
}

// callContext is the context of a call. C has no word for a cancellation that arrives, so from the first use of Done on its
// worker looks each few milliseconds.
type callContext struct {
	context.Context
	worker *Worker
	reply  *handle
	cancel context.CancelFunc
	once   sync.Once
}

func (c *callContext) Done() <-chan struct{} {
	c.once.Do(func() { c.worker.watch.add(c) })
	return c.Context.Done()
}

func (c *callContext) Err() error {
	c.look()
	return c.Context.Err()
}

// look ends the context of a call that was cancelled, and tells whether it has ended.
func (c *callContext) look() bool {
	if c.Context.Err() != nil {
		return true
	}
	cancelled := C.distag_reply_is_cancelled((*C.distag_reply)(c.reply.acquire(nil, ""))) != 0
	c.reply.drop()
	if cancelled {
		c.cancel()
	}
	return cancelled
}

// watch looks at the calls of one worker whose contexts are waited for, on one goroutine, which ends with the last of them.
type watch struct {
	mutex sync.Mutex
	calls map[*callContext]struct{}
}

func (w *watch) add(c *callContext) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if len(w.calls) == 0 {
		w.calls = map[*callContext]struct{}{}
		go w.run()
	}
	w.calls[c] = struct{}{}
}

func (w *watch) run() {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for range look.C {
		for _, c := range w.all() {
			if c.look() && w.remove(c) {
				return
			}
		}
	}
}

func (w *watch) all() []*callContext {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	calls := make([]*callContext, 0, len(w.calls))
	for c := range w.calls {
		calls = append(calls, c)
	}
	return calls
}

// remove tells whether none is left: the next one begins anew.
func (w *watch) remove(c *callContext) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.calls, c)
	return len(w.calls) == 0
}
