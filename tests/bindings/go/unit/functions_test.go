package unit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"distag"
)

type rude struct{}

func (rude) Error() string  { panic("no manners") }
func (rude) String() string { panic("no manners") }

// pointed looks into itself, where nothing is.
type pointed struct{ inner error }

func (p *pointed) Error() string { return "pointed" }
func (p *pointed) Unwrap() error { return p.inner }

// leaving ends the goroutine that asks what it is.
type leaving struct{}

func (leaving) Error() string { return "leaving" }
func (leaving) As(any) bool   { runtime.Goexit(); return false }

// silent ends the goroutine that asks what it says.
type silent struct{}

func (silent) Error() string { runtime.Goexit(); return "" }

// stubborn panics when it is shown, and so does what it throws.
type stubborn struct{}

func (stubborn) String() string { panic(stubborn{}) }

var bad = map[string]any{
	"gives a nil pointer":   func() error { var none *pointed; return none },
	"gives a leaving error": func() error { return leaving{} },
	"gives a silent error":  func() error { return silent{} },
	"throws a nil pointer":  func() { var none *pointed; panic(none) },
	"throws a stubborn":     func() { panic(stubborn{}) },
	"gives a silent value":  func() any { return silent{} },
	"panics with text":      func() { panic("text") },
	"panics with a number":  func() { panic(42) },
	"panics with nothing":   func() { panic(nil) },
	"panics with a rude":    func() { panic(rude{}) },
	"panics with an error":  func() { panic(distag.Errorf(1042, "kept")) },
	"panics while it falls": func() { defer func() { panic("second") }(); panic("first") },
	"ends its goroutine":    func() { runtime.Goexit() },
	"gives a rude error":    func() error { return rude{} },
	"gives a nil error":     func() error { var none *distag.Error; return none },
	"gives a channel":       func() any { return make(chan int) },
	"gives text with NUL":   func() string { return "a\x00b" },
	"gives bad UTF-8":       func() error { return errors.New("\xff" + strings.Repeat("ü", 600)) },
	"gives itself":          func() any { list := []any{nil}; list[0] = list; return list },
	"wraps":                 func() error { return fmt.Errorf("outside: %w", distag.Errorf(1043, "inside")) },
	"gives a bare code":     func() error { return distag.ErrDenied },
}

var expected = map[string]struct {
	code distag.Code
	text string
}{
	"panics with text": {1000, "panic: text"}, "panics with a number": {1000, "panic: 42"},
	"panics with nothing": {1000, "panic(nil)"}, "panics with a rude": {1000, "panic"},
	"panics with an error": {1042, "kept"}, "panics while it falls": {1000, "second"},
	"ends its goroutine": {1000, "runtime.Goexit"}, "gives a rude error": {1000, "unit.rude: its method Error panics: no manners"},
	"gives a nil error": {1000, "*distag.Error"}, "gives a channel": {10, "object"}, "gives text with NUL": {10, "answer: a text with a NUL"},
	"gives bad UTF-8": {1000, "üüü"}, "gives itself": {10, "answer[0][0]"}, "wraps": {1043, "outside: "},
	"gives a bare code": {13, "DENIED"}, "gives a nil pointer": {1000, "*unit.pointed: its method Unwrap, Is or As fails: panic: "},
	"gives a leaving error": {1000, "unit.leaving: its method Unwrap, Is or As fails: runtime.Goexit"},
	"gives a silent error":  {1000, "unit.silent: its method Error panics: runtime.Goexit"},
	"throws a nil pointer":  {1000, "panic: pointed"}, "throws a stubborn": {1000, "panic: (what was thrown cannot be shown)"},
	"gives a silent value": {10, "an error as a value"},
}

// Whatever a function does, its caller gets a status and a text, and the next call works.
func TestBadFunctions(t *testing.T) {
	offered := map[string]any{"double": func(x int) int { return 2 * x }}
	for name, function := range bad {
		offered[name] = function
	}
	for name, executor := range map[string]distag.Executor{"pool": distag.ExecutorPool, "host": distag.ExecutorHost} {
		executor := executor
		t.Run(name, func(t *testing.T) { tryBadFunctions(t, offered, executor) })
	}
}

func tryBadFunctions(t *testing.T, offered map[string]any, executor distag.Executor) {
	var logged atomic.Int64
	a, b := pair(t, offered, func(o *distag.Options) {
		if o.Name == "b" {
			o.Executor = executor
			o.OnLog = func(_ distag.LogLevel, message string) {
				if strings.Contains(message, "functions_test.go") {
					logged.Add(1)
				}
			}
		}
	})
	stop := polled(b, executor)
	for round := 0; round < 3; round++ {
		for name, wanted := range expected {
			_, err := a.Call(background, "b", name)
			is(t, err, wanted.code, wanted.text)
			var own *distag.Error
			errors.As(err, &own)
			if !own.MayHaveRun || own.OriginRank != 1 || !utf8.ValidString(own.Message) || len(own.Message) > 495 {
				t.Fatalf("%s: %+v", name, own)
			}
			same(t, must(a.Call(background, "b", "double", 4)).(int64), 8)
		}
	}
	stop()
	if logged.Load() == 0 {
		t.Fatal("no stack of a panic is in the log")
	}
}

// polled polls a worker with the host executor until the function that it gives is called.
func polled(w *distag.Worker, executor distag.Executor) func() {
	if executor == distag.ExecutorPool {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			w.WaitForWork(time.Millisecond)
			must(w.Poll(0, time.Second))
		}
	}()
	return func() { close(stop); <-stopped }
}

// The Context of a call lives until the call is answered, also after its function has returned.
func TestContextOfADeferredCall(t *testing.T) {
	kept := make(chan *distag.Call, 1)
	later := func(call *distag.Call) (any, error) { call.Defer(); kept <- call; return nil, nil }
	a, b := pair(t, map[string]any{"later": later, "double": func(x int) int { return 2 * x }}, func(o *distag.Options) {
		if o.Name == "b" {
			o.Executor = distag.ExecutorHost
		}
	})
	serve := func() *distag.Call { // and the function has returned when Poll has
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for {
			b.WaitForWork(time.Second)
			must(b.Poll(0, time.Second))
			select {
			case call := <-kept:
				return call
			default:
			}
		}
	}
	answered := must(a.CallAsync(background, "b", "later"))
	call := serve()
	ok(t, call.Context().Err())
	same(t, call.IsCancelled(), false)
	value := must(distag.Invoke[int](call.Context(), a, "a", "double", 4))
	ok(t, call.Defer().Finish(value, nil))
	same(t, must(distag.Await[int](background, answered)), 8)
	is(t, call.Context().Err(), context.Canceled)
	same(t, call.IsCancelled(), true)

	cancelled := must(a.CallAsync(background, "b", "later"))
	call = serve()
	cancelled.Cancel()
	stop := polled(b, distag.ExecutorHost)
	<-call.Context().Done()
	stop()
	ok(t, call.Defer().Close())
}

type labelOfTest struct{}

// The Context of a call has its deadline, and ends then, for who waits, who looks, and what is derived from it.
func TestContextOfACallEndsAtTheDeadline(t *testing.T) {
	type seen struct{ own, derived error }
	found := make(chan seen, 1)
	told := make(chan struct{}, 2) // that the caller has heard of the deadline: no answer comes before
	wait := func(ctx context.Context) {
		derived, cancel := context.WithCancel(context.WithValue(ctx, labelOfTest{}, 1))
		defer cancel()
		<-derived.Done()
		found <- seen{ctx.Err(), derived.Err()}
		<-told
	}
	look := func(ctx context.Context) {
		for ctx.Err() == nil {
			runtime.Gosched()
		}
		<-ctx.Done() // made now, and ended
		derived, cancel := context.WithCancel(ctx)
		defer cancel()
		found <- seen{ctx.Err(), derived.Err()}
		<-told
	}
	a, b := pair(t, map[string]any{"wait": wait, "look": look, "bounded": func(ctx context.Context) bool {
		_, isBounded := ctx.Deadline()
		return isBounded || ctx.Err() != nil
	}}, nil)
	for _, name := range []string{"wait", "look"} {
		ctx, cancel := context.WithTimeout(background, 200*time.Millisecond)
		_, err := a.Call(ctx, "b", name)
		cancel()
		is(t, err, distag.ErrDeadline)
		told <- struct{}{}
		ok(t, b.Unregister(name, 120*time.Second)) // has run, unless the deadline was before its begin
		select {
		case s := <-found:
			same(t, s.own != nil, true)
			same(t, s.derived == s.own, true)
		default:
		}
	}
	same(t, must(distag.Invoke[bool](distag.WithoutTimeout(background), a, "b", "bounded")), false)
}

// One goroutine looks at all calls of a worker that wait for the end of their Context.
func TestCallsThatWaitShareOneLook(t *testing.T) {
	const count = 200
	asked := make(chan struct{}, count)
	wait := func(ctx context.Context) { done := ctx.Done(); asked <- struct{}{}; <-done }
	a, _ := pair(t, map[string]any{"wait": wait}, nil)
	futures := make([]*distag.Future, count)
	for i := range futures {
		futures[i] = must(a.CallAsync(background, "b", "wait"))
	}
	for range futures {
		<-asked
	}
	stacks := make([]byte, 16<<20)
	watching := 0
	for _, each := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(each, ").watch(") || strings.Contains(each, "(*watch).run(") {
			watching++
		}
	}
	same(t, watching, 1)
	for _, each := range futures {
		each.Cancel()
		_, err := each.Wait(background)
		is(t, err, distag.ErrCancelled)
		ok(t, each.Close())
	}
}

func TestWrongArguments(t *testing.T) {
	a, _ := pair(t, map[string]any{
		"add":  func(x *distag.Tensor, by []int8, how map[string]float64) float64 { return 0 },
		"echo": func(x any) any { return x },
		"give": func() any { return map[string]any{"layers": []any{1, "x"}} },
	}, nil)
	x := must(distag.Ones([]int64{2}))
	for _, each := range []struct {
		args []any
		text string
	}{
		{[]any{}, "0 arguments came, it takes 3"},
		{[]any{1, []int{1}, nil}, "add: args[0]: an int64, where a *distag.Tensor is wanted"},
		{[]any{x, []int{1, 300}, nil}, "add: args[1][1]: 300 does not fit into int8"},
		{[]any{x, []int{1}, map[string]any{"k": "v"}}, "add: args[2].k: a string, where a float64 is wanted"},
	} {
		_, err := a.Call(background, "b", "add", each.args...)
		is(t, err, distag.ErrInvalidArgument, each.text)
	}
	_, err := a.Call(background, "b", "add", x, []int{1}, map[string]int{"k": 1})
	ok(t, err)
	var deep any = 1
	for i := 0; i < 17; i++ {
		deep = []any{deep}
	}
	closed := must(distag.Ones([]int64{1}))
	ok(t, closed.Close())
	for text, value := range map[string]any{
		"args[1].layers[0]: a text with a NUL":                  map[string]any{"layers": []string{"a\x00b"}},
		"args[1].layers: the key \"a\\x00b\" has a NUL":         map[string]any{"layers": map[string]int{"a\x00b": 1}},
		"args[1].layers[0]: 9223372036854775808 is above":       map[string]any{"layers": []uint64{1 << 63}},
		"args[1].layers: a map[float64]int, whose keys are no":  map[string]any{"layers": map[float64]int{math.NaN(): 1}},
		"args[1].layers[0]: chan int is no value":               map[string]any{"layers": []any{make(chan int)}},
		"args[1].layers[0]: *distag.Worker is no value":         map[string]any{"layers": []any{a}},
		"args[1].layers[0]: the tensor is closed":               map[string]any{"layers": []any{closed}},
		"args[1].layers[0]: a nil *distag.Tensor: give nil":     map[string]any{"layers": []any{(*distag.Tensor)(nil)}},
		"args[1].layers[0]: a nil *distag.RRef: give nil":       map[string]any{"layers": []*distag.RRef{nil}},
		"args[1].layers[0]: a text that is no UTF-8":            map[string]any{"layers": []string{"\xff"}},
		"args[1]" + strings.Repeat("[0]", 16) + ": nested more": deep,
	} {
		_, err := a.Call(background, "b", "add", 1, value)
		is(t, err, distag.ErrInvalidArgument, text)
	}
	_, err = must(distag.Ones([]int64{2, 3})).Matmul(must(distag.Ones([]int64{4, 5})))
	is(t, err, distag.ErrInvalidArgument, "[2, 3] x [4, 5]")
	_, err = distag.Data[float64](x)
	is(t, err, distag.ErrInvalidArgument, "the tensor is float32, not float64")
	for said, options := range map[string]distag.Options{
		"Rank: 1099511627776 does not fit: from -1 to 2147483647":   {Rank: 1 << 40, WorldSize: 1 << 40},
		"Rank: -2 does not fit: from -1 to 2147483647":              {Rank: -2},
		"WorldSize: 4294967296 does not fit: from -1 to 2147483647": {WorldSize: 1 << 32, Threads: -1},
		"Threads: -1 does not fit: from 0 to 2147483647":            {Threads: -1},
	} {
		_, err = distag.NewWorker(options)
		is(t, err, distag.ErrInvalidArgument, said)
	}
	_, err = distag.As[[]float32]([]any{1e300})
	is(t, err, distag.ErrInvalidArgument, "INVALID_ARGUMENT: [0]: 1e+300 does not fit into float32")
	_, err = distag.As[float32](int64(1<<24 + 1))
	is(t, err, distag.ErrInvalidArgument, "16777217 does not fit into float32")
	_, err = distag.As[float64](int64(1<<53 + 1))
	is(t, err, distag.ErrInvalidArgument, "9007199254740993 does not fit into float64")
	same(t, must(distag.As[float32](int64(-1<<24))), -1<<24)
	for _, fits := range []float64{math.Inf(1), math.Inf(-1), math.MaxFloat32, math.Nextafter(math.MaxFloat32, 1e300), -1e-300} {
		same(t, must(distag.As[float32](fits)), float32(fits))
	}
	_, err = distag.As[map[string][]int8](map[string]any{"layers": []any{int64(1), "x"}})
	is(t, err, distag.ErrInvalidArgument, "INVALID_ARGUMENT: .layers[1]: a string, where an int8 is wanted")
	_, err = distag.As[int]("x")
	is(t, err, distag.ErrInvalidArgument, "INVALID_ARGUMENT: a string, where an int is wanted")
	_, err = distag.Invoke[map[string][]int8](background, a, "b", "give")
	is(t, err, distag.ErrInvalidArgument, "answer.layers[1]: a string, where an int8 is wanted")
	_, err = distag.Await[int](background, must(a.CallAsync(background, "b", "give")))
	is(t, err, distag.ErrInvalidArgument, "answer: a map[string]interface {}, where an int is wanted")
	_, err = a.NewRRef(map[string]any{"layers": []string{"\xff"}})
	is(t, err, distag.ErrInvalidArgument, "value.layers[0]: a text that is no UTF-8")
	same(t, string(must(distag.Invoke[[]byte](background, a, "b", "echo", json.RawMessage("{}")))), "{}")
	same(t, must(distag.Invoke[[]colour](background, a, "b", "echo", []colour{7}))[0], 7)
	_, err = a.AllGather(background, 1, []int{0, 1 << 32})
	is(t, err, distag.ErrInvalidArgument, "ranks[1]: 4294967296 does not fit")
	_, err = x.Whole(background, 1<<32)
	is(t, err, distag.ErrInvalidArgument, "rank: 4294967296 does not fit")
	is(t, x.MarkSharding(nil, "()", -1<<32), distag.ErrInvalidArgument, "sourceRank: -4294967296 does not fit")
	_, err = a.Ranks("a\x00b")
	is(t, err, distag.ErrInvalidArgument, "prefix: \"a\\x00b\" has a NUL")
	for _, strange := range []any{nil, 3, func(...int) {}, func() (int, int) { return 1, 2 }, (func())(nil)} {
		is(t, a.Register("strange", strange), distag.ErrInvalidArgument, "strange")
	}
	is(t, a.Register("add", func() {}), distag.ErrInvalidState)
	is(t, a.Register("distag.own", func() {}), distag.ErrInvalidArgument)
}

// A function that is registered a second time, or withdrawn, is let go.
func TestFunctionsAreLetGo(t *testing.T) {
	a, _ := pair(t, nil, nil)
	var gone atomic.Int64
	offer := func() error {
		kept := make([]byte, 1<<16)
		runtime.SetFinalizer(&kept[0], func(*byte) { gone.Add(1) })
		return a.Register("f", func() int { return len(kept) })
	}
	ok(t, offer())
	is(t, offer(), distag.ErrInvalidState)
	same(t, must(distag.Invoke[int](background, a, "a", "f")), 1<<16)
	ok(t, a.Unregister("f", 120*time.Second))
	for until := time.Now().Add(120 * time.Second); gone.Load() < 2 && time.Now().Before(until); runtime.GC() {
		time.Sleep(time.Millisecond)
	}
	same(t, gone.Load(), 2)
}

// Functions that wait hold no thread of the pool: one thread serves calls that go to and fro.
func TestRecursionWithOneThread(t *testing.T) {
	descend := func(call *distag.Call, depth int) (any, error) {
		if depth == 0 {
			return "bottom", nil
		}
		return call.Worker().Call(call.Context(), call.Caller(), "descend", depth-1)
	}
	a, _ := pair(t, map[string]any{"descend": descend}, func(o *distag.Options) { o.Threads = 1 })
	var wait sync.WaitGroup
	for i := 0; i < 50; i++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			if found := must(a.Call(background, "b", "descend", 8)); found != "bottom" {
				panic(found)
			}
		}()
	}
	wait.Wait()
}

func TestCancellationEndsTheWait(t *testing.T) {
	var heard atomic.Int64
	begun := make(chan struct{}, 1)
	wait := func(ctx context.Context) error { begun <- struct{}{}; <-ctx.Done(); heard.Add(1); return ctx.Err() }
	a, _ := pair(t, map[string]any{"wait": wait}, nil)
	quickest := time.Hour
	for i := 0; i < 5; i++ {
		ctx, cancel := context.WithCancel(background)
		var cancelled atomic.Int64
		go func() { <-begun; cancelled.Store(time.Now().UnixNano()); cancel() }() // a call that has not begun never runs
		_, err := a.Call(ctx, "b", "wait")
		is(t, err, context.Canceled)
		is(t, err, distag.ErrCancelled, "cancelled by the caller: context canceled")
		if took := time.Since(time.Unix(0, cancelled.Load())); took < quickest {
			quickest = took
		}
	}
	fmt.Printf("figure: bindings_go.end_after_cancellation_ms %.3f ms\n", float64(quickest)/1e6)
	for until := time.Now().Add(120 * time.Second); heard.Load() < 5 && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	same(t, heard.Load(), 5)
	ended, cancel := context.WithTimeout(background, time.Nanosecond)
	defer cancel()
	<-ended.Done()
	_, err := a.Call(ended, "b", "wait")
	is(t, err, context.DeadlineExceeded)
	is(t, err, distag.ErrDeadline)
}

// A function that never returns ends neither its caller nor the shutdown.
func TestFunctionThatNeverReturns(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	a, _ := pair(t, map[string]any{"never": func() { <-release }}, nil)
	ctx, cancel := context.WithTimeout(background, 30*time.Millisecond)
	defer cancel()
	_, err := a.Call(ctx, "b", "never")
	is(t, err, distag.ErrDeadline)
}

func TestManyCallsFromOneGoroutine(t *testing.T) {
	a, _ := pair(t, map[string]any{"double": func(x int) int { return 2 * x }}, nil)
	futures := make([]*distag.Future, 10000)
	for i := range futures {
		futures[i] = must(a.CallAsync(background, "b", "double", i))
	}
	for i, each := range futures {
		select {
		case <-each.Done():
		case <-time.After(120 * time.Second):
			t.Fatal("no answer to", i)
		}
		same(t, must(distag.Await[int](background, each)), 2*i)
		ok(t, each.Close())
	}
}

// Goroutines that wait take few threads.
func TestManyGoroutinesWait(t *testing.T) {
	release, asked := make(chan struct{}), make(chan struct{}, 2000)
	wait := func() { asked <- struct{}{}; <-release }
	a, _ := pair(t, map[string]any{"wait": wait}, nil)
	var all sync.WaitGroup
	for i := 0; i < 2000; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			must(a.Call(background, "b", "wait"))
		}()
	}
	for i := 0; i < 2000; i++ {
		<-asked
	}
	if threads := status("Threads"); threads > 200 {
		t.Fatalf("%d threads", threads)
	}
	close(release)
	all.Wait()
}

func TestMembersAreSeen(t *testing.T) {
	seen := make(chan distag.Member, 10)
	a, _ := pair(t, nil, func(o *distag.Options) {
		if o.Name == "a" {
			o.OnMember = func(member distag.Member) { seen <- member }
		}
	})
	names := map[string]bool{(<-seen).Name: true, (<-seen).Name: true}
	same(t, names["a"] && names["b"], true)
	same(t, must(a.MemberByName("b")).State, distag.MemberAlive)
	same(t, fmt.Sprint(must(a.Ranks(""))), "[0 1]")
	same(t, fmt.Sprint(must(a.Ranks("b"))), "[1]")
}

// A panic that no caller gets is logged, in OnLog itself told on stderr, and the worker lives.
func TestPanicsOfCallbacksAreTold(t *testing.T) {
	read, write, err := os.Pipe()
	ok(t, err)
	real := os.Stderr
	os.Stderr = write
	defer func() { os.Stderr = real }()
	told := make(chan string)
	go func() { told <- string(must(io.ReadAll(read))) }()
	logged := make(chan string, 100)
	start := func(name string, onLog func(distag.LogLevel, string)) {
		w := must(distag.NewWorker(distag.Options{Name: name, WorldSize: 1, Rendezvous: "inproc://" + name,
			OnMember: func(distag.Member) { panic("in OnMember of " + name) }, OnLog: onLog}))
		ok(t, w.Register("echo", func(x int) int { return x }))
		ok(t, w.Start(background))
		same(t, must(distag.Invoke[int](background, w, name, "echo", 5)), 5)
		ok(t, w.Close())
	}
	start("logs", func(level distag.LogLevel, message string) {
		if level == distag.LogError {
			logged <- message
		}
	})
	start("silent", nil)
	start("panics", func(distag.LogLevel, string) { panic("in OnLog") })
	_, err = distag.Borrow(nil, -1, distag.Float32, func() { panic("in release") })
	is(t, err, distag.ErrInvalidArgument, "the size is -1")
	os.Stderr = real
	ok(t, write.Close())
	said := <-told
	for _, part := range []string{"distag: OnMember: panic: in OnMember of silent", "distag: OnLog: panic: in OnLog",
		"distag: release of borrowed memory: panic: in release", "functions_test.go:"} {
		same(t, strings.Contains(said, part), true)
	}
	same(t, strings.Contains(said, "in OnMember of logs"), false)
	message := <-logged
	same(t, strings.HasPrefix(message, "OnMember: panic: in OnMember of logs\n"), true)
	same(t, strings.Contains(message, "functions_test.go:"), true)
}

// A slice of it is a list of numbers, as []byte alone is bytes.
type colour uint8
