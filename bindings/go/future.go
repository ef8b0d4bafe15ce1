package distag

/*
#include "callbacks.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/cgo"
	"sync"
	"time"
	"unsafe"
)

// Goroutines that wait inside of C take a thread each, and Go ends a process with 10,000: the others wait on a channel.
var waiting = make(chan struct{}, 64)

// ended is the channel of what has ended from the start.
var ended = make(chan struct{})

func init() { close(ended) }

// Future is an operation under way. It completes once, with a value or a failure.
type Future struct {
	handle
	to   string // the worker that is called, if it is a call
	once sync.Once
	done chan struct{}
}

func newFuture(pointer *C.distag_future) *Future {
	f := &Future{handle: handle{pointer: unsafe.Pointer(pointer), release: releaseFuture}, done: make(chan struct{})}
	runtime.SetFinalizer(f, func(f *Future) { f.handle.close() })
	return f
}

// Close releases the future, and does not cancel its operation.
func (x *Future) Close() error {
	if x == nil {
		return nil
	}
	runtime.SetFinalizer(x, nil)
	x.handle.close()
	return nil
}

// IsDone tells whether it is complete.
func (x *Future) IsDone() bool {
	done := C.distag_future_poll(x.hold(nil)) != 0
	x.drop()
	return done
}

// Done is closed once the future is complete, and of a zero Future, whose Wait fails.
func (x *Future) Done() <-chan struct{} {
	if x == nil || x.done == nil {
		return ended
	}
	x.once.Do(func() {
		f := newFrame()
		f.status = C.distag_go_on_done(x.hold(f), C.uintptr_t(cgo.NewHandle(x.done)), &f.err)
		drop(x)
		if f.finish() != nil { // closed, or without memory: the waiting goroutine must not wait for ever
			close(x.done)
		}
	})
	return x.done
}

//export distagGoDone
func distagGoDone(done C.uintptr_t) { close(cgo.Handle(done).Value().(chan struct{})) }

//export distagGoDelete
func distagGoDelete(any C.uintptr_t) { cgo.Handle(any).Delete() }

// Cancel asks the operation to stop, at the callee too; the future completes with CANCELLED unless it is complete.
func (x *Future) Cancel() {
	C.distag_future_cancel(x.hold(nil))
	x.drop()
}

// Wait waits for the value, and cancels the operation when ctx ends.
func (x *Future) Wait(ctx context.Context) (any, error) {
	if err := x.wait(ctx); err != nil {
		return nil, err
	}
	f := newFrame()
	f.status = C.distag_future_get_value(x.hold(f), &f.value, &f.err)
	defer x.drop()
	value := f.value
	if err := f.finish(); err != nil {
		return nil, err
	}
	return fromValue(value)
}

func (x *Future) wait(ctx context.Context) error {
	if x == nil {
		return usage("the future is nil: methods whose names end in Async make one")
	}
	if over := ctx.Done(); over != nil {
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			select {
			case <-over:
				x.Cancel()
			case <-stop:
			}
		}()
	}
	f := newFrame()
	if isHosted() {
		hostWait(func() { x.waitInside(f, forever) })
	} else {
		select {
		case waiting <- struct{}{}:
			x.waitInside(f, forever)
			<-waiting
		default:
			<-x.Done()
			x.waitInside(f, 0)
		}
	}
	return withEnd(ctx, causes.find(x.to, f.finish()))
}

func (x *Future) waitInside(f *frame, timeout C.int64_t) {
	f.status = C.distag_future_wait(x.hold(f), timeout, &f.err)
	drop(x)
}

// withEnd gives a failure the end of its ctx as its cause.
func withEnd(ctx context.Context, err error) error {
	var own *Error
	if err == nil || ctx.Err() == nil || !errors.As(err, &own) || own.Code.Class() != ErrGaveUp {
		return err
	}
	own.cause = ctx.Err()
	own.Message += ": " + own.cause.Error()
	if own.cause == context.DeadlineExceeded {
		own.Code = ErrDeadline
	}
	return own
}

// Await waits for the value of a future as a type.
func Await[T any](ctx context.Context, x *Future) (T, error) {
	value, err := x.Wait(ctx)
	if err != nil {
		return *new(T), err
	}
	return answerAs[T](value)
}

// WaitAll waits for all values, in their order, or the first failure; ctx cancels those that are left.
func WaitAll(ctx context.Context, futures ...*Future) ([]any, error) {
	values := make([]any, len(futures))
	for i, each := range futures {
		value, err := each.Wait(ctx)
		if err != nil {
			if ctx.Err() != nil {
				for _, left := range futures[i+1:] {
					left.Cancel()
				}
			}
			return nil, err
		}
		values[i] = value
	}
	return values, nil
}

// run starts an operation and waits for it.
func run(ctx context.Context, start func(f *frame)) (any, error) {
	future, err := begin(start)
	if err != nil {
		return nil, err
	}
	defer future.Close()
	return future.Wait(ctx)
}

func begin(start func(f *frame)) (*Future, error) {
	f := newFrame()
	start(f)
	pointer := f.future
	if err := f.finish(); err != nil {
		C.distag_future_release(pointer)
		return nil, err
	}
	return newFuture(pointer), nil
}

// beginAt begins a call to a worker.
func beginAt(to string, start func(f *frame)) (*Future, error) {
	causes.expect(to)
	x, err := begin(start)
	if err != nil {
		causes.forget(to)
		return nil, err
	}
	x.to, x.release = to, func(pointer unsafe.Pointer) {
		releaseFuture(pointer)
		causes.forget(to)
	}
	return x, nil
}

// ---- what a context.Context says of calls ----

type contextKey int

const (
	recordKey contextKey = iota
	labelKey
	foreverKey
)

// WithLabel gives calls a label that shows in errors and reports.
func WithLabel(ctx context.Context, label string) context.Context {
	return context.WithValue(ctx, labelKey, label)
}

// WithoutTimeout lets calls wait for ever, where ctx has no deadline; else they have the timeout of their worker.
func WithoutTimeout(ctx context.Context) context.Context {
	return context.WithValue(ctx, foreverKey, true)
}

// WithoutRecording makes a ctx whose calls are not recorded, although they run within a Context.
func WithoutRecording(ctx context.Context) context.Context {
	return context.WithValue(ctx, recordKey, (*Context)(nil))
}

// ContextOf gives the Context that records the calls of ctx: within a function, that of its call; nil if there is none.
func ContextOf(ctx context.Context) *Context {
	record, _ := ctx.Value(recordKey).(*Context)
	return record
}

// settings are the options of one call.
type settings struct {
	timeout C.int64_t
	label   *C.char
	record  *Context
}

func settingsOf(ctx context.Context) (settings, error) {
	s := settings{record: ContextOf(ctx)}
	timeout, err := timeoutOf(ctx, 0)
	if err != nil {
		return s, err
	}
	if s.record != nil {
		if err := s.record.refusal("the context", "context"); err != nil {
			return s, err
		}
	}
	s.timeout = timeout
	if label, ok := ctx.Value(labelKey).(string); ok {
		s.label, err = cText("label", label)
	}
	return s, err
}

// timeoutOf gives the time until the deadline of ctx, or what is meant without one.
func timeoutOf(ctx context.Context, without C.int64_t) (C.int64_t, error) {
	if own, ok := ctx.Err().(*Error); ok { // of a zero Context
		return 0, own
	}
	if ctx.Err() != nil {
		code := ErrCancelled
		if ctx.Err() == context.DeadlineExceeded {
			code = ErrDeadline
		}
		return 0, &Error{Code: code, OriginRank: -1, Message: fmt.Sprintf("%v before it began", ctx.Err()), cause: ctx.Err()}
	}
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); left > 0 {
			return C.int64_t(left), nil
		}
		return 0, &Error{Code: ErrDeadline, OriginRank: -1, Message: "the deadline had passed before it began",
			cause: context.DeadlineExceeded}
	}
	if ctx.Value(foreverKey) != nil {
		return forever, nil
	}
	return without, nil
}
