package unit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"distag"
)

// ---- functions that wait for distag ----

// A function, a hook and an op under the host executor call functions of their own worker, whose thread is in their Poll.
func TestHostCodeCallsItsOwnWorker(t *testing.T) {
	var b *distag.Worker
	own := func(ctx context.Context, x int) (int, error) { return distag.Invoke[int](ctx, b, "b", "double", x) }
	offered := map[string]any{
		"double":    func(x int) int { return 2 * x },
		"own":       func(call *distag.Call, x int) (int, error) { return own(call.Context(), x) },
		"own plain": func(x int) (int, error) { return own(background, x) },
		"own later": func(x int) (int, error) {
			future := must(b.CallAsync(background, "b", "own", x))
			defer future.Close()
			return distag.Await[int](background, future)
		},
		"own far":  func(x int) (int, error) { return distag.Invoke[int](background, b, "a", "back", x) },
		"own kept": func(x int) (any, error) { return must(b.Remote(background, "b", "own", x)).Fetch(background) },
		"own hook": func() (float64, error) {
			x := must(distag.Parameter(distag.From([]float32{3})))
			must(x.AddHook(func(gradient *distag.Tensor) (*distag.Tensor, error) {
				by, err := own(background, 5)
				if err != nil {
					return nil, err
				}
				return gradient.Mul(must(distag.Scalar(float32(by))))
			}))
			record := must(distag.NewContext(background))
			defer record.Close()
			if err := record.Backward(must(must(x.Mul(x)).Sum())); err != nil {
				return 0, err
			}
			return must(record.Gradient(x)).Item()
		},
		"back": func(call *distag.Call, x int) (int, error) {
			return distag.Invoke[int](background, call.Worker(), "b", "double", x)
		},
	}
	a, b := pair(t, offered, func(o *distag.Options) {
		if o.Name == "b" {
			o.Executor = distag.ExecutorHost
		}
	})
	stop := polled(b, distag.ExecutorHost)
	defer stop()
	for round := 0; round < 20; round++ {
		for _, name := range []string{"own", "own plain", "own later", "own far", "own kept"} {
			if found := must(distag.Invoke[int](background, a, "b", name, round)); found != 2*round {
				t.Fatal(name, round, found)
			}
		}
		same(t, must(distag.Invoke[float64](background, a, "b", "own hook")), 60)
	}
	var futures []*distag.Future
	for i := 0; i < 50; i++ {
		futures = append(futures, must(a.CallAsync(background, "b", "own plain", i)))
	}
	for i, value := range must(distag.WaitAll(background, futures...)) {
		same(t, value.(int64), int64(2*i))
	}
}

// A limit of 0 is over at once, and one of Forever never; C cuts no number of items.
func TestLimitsOfPoll(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w := must(distag.NewWorker(distag.Options{Name: "polls", WorldSize: 1, Rendezvous: "inproc://polls",
		Executor: distag.ExecutorHost}))
	ok(t, w.Register("echo", func(x int) int { return x }))
	ok(t, w.Start(background))
	future := must(w.CallAsync(background, "polls", "echo", 5))
	ok(t, w.WaitForWork(distag.Forever))
	same(t, must(w.Poll(0, 0)), 0)
	same(t, must(w.Poll(0, distag.Forever)), 1)
	same(t, must(distag.Await[int](background, future)), 5)
	_, err := w.Poll(-1, distag.Forever)
	is(t, err, distag.ErrInvalidArgument, "maxItems is -1: give 0 for any number")
	ok(t, future.Close())
	ok(t, w.Close())
	nothingIsLeft(t)
}

// The thread that polled last is gone, and the one that leaves runs what is open.
func TestShutdownAfterAnotherPolled(t *testing.T) {
	w := must(distag.NewWorker(distag.Options{Name: "w", WorldSize: 1, Rendezvous: "inproc://another polled",
		Executor: distag.ExecutorHost}))
	ok(t, w.Register("double", func(x int) int { return 2 * x }))
	ok(t, w.Start(background))
	stop := polled(w, distag.ExecutorHost)
	same(t, must(distag.Invoke[int](background, w, "w", "double", 4)), 8)
	stop()
	open := must(w.CallAsync(background, "w", "double", 5))
	ctx, cancel := context.WithTimeout(background, 20*time.Second)
	defer cancel()
	same(t, must(w.Shutdown(ctx)).Clean, true)
	same(t, must(distag.Await[int](background, open)), 10)
	ok(t, open.Close())
	ok(t, w.Close())
	nothingIsLeft(t)
}

// With Threads that many functions run at once; those that wait for distag are not counted.
func TestThreadsBoundFunctions(t *testing.T) {
	var running, most, inside atomic.Int64
	count := func(call *distag.Call) (any, error) {
		now := running.Add(1)
		defer running.Add(-1)
		for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
		}
		time.Sleep(time.Millisecond)
		return nil, nil
	}
	nest := func(call *distag.Call) (any, error) {
		defer inside.Add(1)
		return call.Worker().Call(background, call.Caller(), "count")
	}
	a, _ := pair(t, map[string]any{"count": count, "nest": nest}, func(o *distag.Options) { o.Threads = 2 })
	var futures []*distag.Future
	for i := 0; i < 100; i++ {
		futures = append(futures, must(a.CallAsync(background, "b", "count")))
	}
	must(distag.WaitAll(background, futures...))
	if most.Load() > 2 {
		t.Fatalf("%d functions of 2 threads at once", most.Load())
	}
	futures = nil
	for i := 0; i < 20; i++ {
		futures = append(futures, must(a.CallAsync(background, "a", "nest")))
	}
	must(distag.WaitAll(background, futures...))
	same(t, inside.Load(), 20)
}

// ---- ends that wait for functions ----

var kinds = map[string]func(*distag.Options){
	"any number": nil, "one thread": func(o *distag.Options) { o.Threads = 1 },
}

func TestUnregisterWaitsForCalls(t *testing.T) {
	for name, change := range kinds {
		change := change
		t.Run(name, func(t *testing.T) { tryUnregister(t, change) })
	}
}

func tryUnregister(t *testing.T, change func(*distag.Options)) {
	begun, release := make(chan struct{}, 1), make(chan struct{})
	var over atomic.Bool
	hold := func() { begun <- struct{}{}; <-release; time.Sleep(20 * time.Millisecond); over.Store(true) }
	a, b := pair(t, map[string]any{"hold": hold}, change)
	future := must(a.CallAsync(background, "b", "hold"))
	<-begun
	is(t, b.Unregister("hold", 10*time.Millisecond), distag.ErrDeadline, "hold")
	is(t, b.Unregister("hold", time.Second), distag.ErrNotFound)
	same(t, over.Load(), false)
	release <- struct{}{}
	must(future.Wait(background))
	over.Store(false)

	ok(t, b.Register("hold", hold))
	again := must(a.CallAsync(background, "b", "hold"))
	<-begun
	close(release)
	ok(t, b.Unregister("hold", 120*time.Second))
	same(t, over.Load(), true)
	must(again.Wait(background))
}

// A function that would wait for itself is refused, also by the methods of its error, and others are not.
func TestEndsFromWithinAFunction(t *testing.T) {
	var workers [2]*distag.Worker
	offered := map[string]any{
		"unregister": func(call *distag.Call) (any, error) { return nil, call.Worker().Unregister("unregister", time.Hour) },
		"close":      func(call *distag.Call) (any, error) { return nil, call.Worker().Close() },
		"shutdown": func(call *distag.Call) (any, error) {
			_, err := call.Worker().Shutdown(background)
			return nil, err
		},
		"other": func(call *distag.Call) (any, error) { return nil, call.Worker().Unregister("idle", time.Hour) },
		"idle":  func() {},
	}
	for name, change := range kinds {
		change := change
		t.Run(name, func(t *testing.T) {
			workers[0], workers[1] = pair(t, offered, change)
			for _, name := range []string{"unregister", "close", "shutdown"} {
				_, err := workers[0].Call(background, "b", name)
				is(t, err, distag.ErrInvalidState, "a function of this worker calls it")
			}
			must(workers[0].Call(background, "b", "other"))
			_, err := workers[0].Call(background, "b", "idle")
			is(t, err, distag.ErrNotFound)
		})
	}
}

// Close returns when no function runs: it ends their Contexts, and names one that runs on.
func TestCloseWaitsForFunctions(t *testing.T) {
	for name, change := range kinds {
		change := change
		t.Run(name, func(t *testing.T) { tryClose(t, change) })
	}
}

func tryClose(t *testing.T, change func(*distag.Options)) {
	job := fmt.Sprintf("close%d", jobs.Add(1))
	options := distag.Options{Name: "w", WorldSize: 1, Rendezvous: "inproc://" + job}
	if change != nil {
		change(&options)
	}
	w := must(distag.NewWorker(options))
	begun := make(chan struct{}, 1)
	var over atomic.Bool
	ok(t, w.Register("polite", func(ctx context.Context) {
		begun <- struct{}{}
		<-ctx.Done()
		time.Sleep(20 * time.Millisecond)
		over.Store(true)
	}))
	ok(t, w.Start(background))
	future := must(w.CallAsync(background, "w", "polite"))
	<-begun
	ok(t, w.Close())
	same(t, over.Load(), true)
	_, err := future.Wait(background)
	is(t, err, distag.ErrCancelled)
	ok(t, future.Close())

	w = must(distag.NewWorker(options))
	release := make(chan struct{})
	ended := make(chan struct{})
	ok(t, w.Register("stubborn", func() { begun <- struct{}{}; <-release; close(ended) }))
	ok(t, w.Start(background))
	future = must(w.CallAsync(background, "w", "stubborn"))
	<-begun
	ctx, cancel := context.WithTimeout(background, 10*time.Millisecond)
	defer cancel()
	_, err = w.Shutdown(ctx)
	is(t, err, distag.ErrDeadline, "stubborn")
	close(release)
	ok(t, w.Close())
	<-ended
	ok(t, future.Close())
	nothingIsLeft(t)
}

// ---- errors of functions that ran here ----

var errSentinel = errors.New("of this program")

type failingOp struct{}

func (failingOp) Forward([]*distag.Tensor) ([]*distag.Tensor, error) {
	return nil, fmt.Errorf("forward: %w", errSentinel)
}
func (failingOp) Backward([]*distag.Tensor) ([]*distag.Tensor, error) { return nil, nil }

func TestErrorsOfFunctionsThatRanHere(t *testing.T) {
	offered := map[string]any{
		"fail": func(i int) error { return fmt.Errorf("item %d: %w", i, errSentinel) },
		"path": func() error { return &fs.PathError{Op: "open", Path: "nowhere", Err: fs.ErrNotExist} },
		"pass": func(call *distag.Call) (any, error) { return call.Worker().Call(background, call.Caller(), "fail", 7) },
		"long": func(i int) error { return fmt.Errorf("item %d: %0600d: %w", i, 1, errSentinel) },
		"rude": func() { panic(errSentinel) },
	}
	a, _ := pair(t, offered, nil)
	for _, to := range []string{"a", "b"} {
		_, err := a.Call(background, to, "fail", 1)
		is(t, err, errSentinel, "item 1")
		is(t, err, distag.ErrUser)
		_, err = a.Call(background, to, "path")
		is(t, err, fs.ErrNotExist)
		var path *fs.PathError
		same(t, errors.As(err, &path) && path.Path == "nowhere", true)
		for _, name := range []string{"pass", "rude"} {
			_, err = a.Call(background, to, name)
			is(t, err, errSentinel)
		}
		_, err = must(a.Remote(background, to, "fail", 3)).Fetch(background)
		is(t, err, errSentinel, "item 3")
	}
	for _, name := range []string{"fail", "long"} {
		futures := make([]*distag.Future, 1000)
		for i := range futures {
			futures[i] = must(a.CallAsync(background, "b", name, i))
		}
		for i, each := range futures {
			_, err := each.Wait(background)
			is(t, err, errSentinel)
			var wrapper interface{ Unwrap() error } = errors.Unwrap(err).(interface{ Unwrap() error })
			is(t, wrapper.(error), errSentinel, fmt.Sprintf("item %d:", i))
			ok(t, each.Close())
		}
	}
	x := must(distag.Parameter(distag.From([]float32{3})))
	_, err := distag.ApplyCustom("failing", failingOp{}, []*distag.Tensor{x}, 1)
	is(t, err, errSentinel)
	must(x.AddHook(func(*distag.Tensor) (*distag.Tensor, error) { return nil, errSentinel }))
	record := must(distag.NewContext(background))
	defer record.Close()
	is(t, record.Backward(must(must(x.Mul(x)).Sum())), errSentinel)
}

// Errors of functions are looked for while others call and close.
func TestErrorsOfFunctionsSideBySide(t *testing.T) {
	a, _ := pair(t, map[string]any{"fail": func(i int) error { return fmt.Errorf("item %d: %w", i, errSentinel) }}, nil)
	var all sync.WaitGroup
	var missed atomic.Int64
	for i := 0; i < 8; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			for round := 0; round < 50; round++ {
				if _, err := a.Call(background, "b", "fail", i); !errors.Is(err, errSentinel) {
					missed.Add(1)
				}
			}
		}(i)
	}
	all.Wait()
	same(t, missed.Load(), 0)
}
