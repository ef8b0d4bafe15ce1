package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"distag"
)

var _ = register(map[string]func(given){
	"workers: two in one process call each other":                 callEachOther,
	"workers: an async call":                                      asyncCall,
	"workers: a value that stays is made and fetched":             stays,
	"workers: a nested call back to the caller":                   nested,
	"workers: 100 calls at once from 8 threads or tasks":          atOnce,
	"workers: a function that raises":                             raises,
	"workers: status 1042 is kept with its rank":                  ownStatus,
	"workers: an unknown function":                                unknown,
	"workers: a deadline":                                         deadline,
	"workers: a cancellation reaches the callee":                  cancellation,
	"workers: a deferred reply from another thread":               deferred,
	"workers: a second worker of another job":                     anotherJob,
	"values: every kind there and back":                           everyKind,
	"values: 16 deep travels, 17 deep is refused":                 depth,
	"values: 2^53 + 1 keeps its value":                            bigInteger,
	"values: not a number stays one":                              notANumber,
	"values: a text with NUL is refused":                          nul,
	"values: 1 MiB of bytes":                                      manyBytes,
	"values: an error names the path":                             path,
	"backward: through two workers":                               twoWorkers,
	"backward: through A, B and A again":                          thereAndBack,
	"backward: gradients are read on both sides":                  bothSides,
	"backward: a failure in a remote custom op names it":          failingOp,
	"objects: behind a reference, used by a function, freed once": objects,
})

func callEachOther(g given) {
	group(functions{"double": double}, func(a, b *distag.Worker) {
		same(must(a.Call(background, "b", "double", integer(g["argument"]))), int64(integer(g["answer"])))
		same(must(distag.Invoke[int](background, b, "a", "double", integer(g["argument"]))), integer(g["answer"]))
	})
}

func asyncCall(g given) {
	group(functions{"double": double}, func(a, _ *distag.Worker) {
		var futures []*distag.Future
		for _, each := range int64s(g["arguments"]) {
			futures = append(futures, must(a.CallAsync(background, "b", "double", each)))
		}
		for i, answer := range int64s(g["answers"]) {
			select {
			case <-futures[i].Done():
			case <-time.After(120 * time.Second):
				panic("no answer")
			}
			same(must(distag.Await[int64](background, futures[i])), answer)
		}
	})
}

func stays(g given) {
	group(functions{"echo": echo}, func(a, _ *distag.Worker) {
		made := must(a.Remote(background, "b", "echo", int64s(g["made"])))
		same(made.Owner(), "b")
		same(made.IsOwner(), false)
		same(must(distag.As[[]int64](must(made.Fetch(background)))), int64s(g["fetched"]))
	})
}

func nested(g given) {
	askBack := func(call *distag.Call, x int64) (int64, error) {
		answer, err := distag.Invoke[int64](call.Context(), call.Worker(), call.Caller(), "double", x)
		return answer + 1, err
	}
	group(functions{"double": double, "ask_back": askBack}, func(a, _ *distag.Worker) {
		same(must(a.Call(background, "b", "ask_back", integer(g["argument"]))), int64(integer(g["answer"])))
	})
}

func atOnce(g given) {
	group(functions{"double": double}, func(a, _ *distag.Worker) {
		var sum atomic.Int64
		var wait sync.WaitGroup
		calls, callers := integer(g["calls"]), integer(g["callers"])
		for caller := 0; caller < callers; caller++ {
			wait.Add(1)
			go func(caller int) {
				defer wait.Done()
				for each := caller; each < calls; each += callers {
					sum.Add(must(distag.Invoke[int64](background, a, "b", "double", each)))
				}
			}(caller)
		}
		wait.Wait()
		same(sum.Load(), int64(integer(g["sum"])))
	})
}

func raises(g given) {
	find := func() error { return errors.New("no such user") }
	fall := func() { panic("no such user") }
	end := func() { runtime.Goexit() }
	group(functions{"find": find, "fall": fall, "end": end}, func(a, _ *distag.Worker) {
		_, err := a.Call(background, "b", "find")
		check(strings.Contains(g.fails(err).Message, ": *errors.errorString: no such user"), "%v", err)
		check(errors.Is(err, distag.ErrUser), "the class of %v", err)
		_, err = a.Call(background, "b", "fall")
		check(strings.Contains(g.fails(err).Message, ": panic: no such user"), "%v", err)
		_, err = a.Call(background, "b", "end")
		check(strings.Contains(given{"status": json.Number("1000")}.fails(err).Message, ": runtime.Goexit"), "%v", err)
		_, err = a.Call(background, "b", "find")
		g.fails(err)
	})
}

func ownStatus(g given) {
	refuse := func() error { return distag.Errorf(1042, "not today") }
	passOn := func(call *distag.Call) (any, error) { return call.Worker().Call(call.Context(), "b", "refuse") }
	group(functions{"refuse": refuse, "pass_on": passOn}, func(a, _ *distag.Worker) {
		_, err := a.Call(background, "b", "refuse")
		g.fails(err)
		_, err = a.Call(background, "a", "pass_on")
		g.fails(err)
	})
}

func unknown(g given) {
	group(nil, func(a, _ *distag.Worker) {
		_, err := a.Call(background, "b", g["function"].(string))
		g.fails(err)
		check(errors.Is(err, distag.ErrUsage) && errors.Is(err, distag.ErrNotFound), "%v", err)
	})
}

func deadline(g given) {
	release := make(chan struct{})
	wait := func() { <-release }
	group(functions{"wait": wait}, func(a, _ *distag.Worker) {
		ctx, cancel := context.WithTimeout(background, time.Duration(integer(g["timeout_ms"]))*time.Millisecond)
		defer cancel()
		_, err := a.Call(ctx, "b", "wait")
		g.fails(err)
		check(errors.Is(err, context.DeadlineExceeded) && errors.Is(err, distag.ErrGaveUp), "%v", err)
		close(release)
	})
}

func cancellation(g given) {
	began, heard := make(chan struct{}), make(chan error, 1)
	wait := func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		heard <- ctx.Err()
		return ctx.Err()
	}
	group(functions{"wait": wait}, func(a, _ *distag.Worker) {
		ctx, cancel := context.WithCancel(background)
		go func() {
			<-began
			cancel()
		}()
		_, err := a.Call(ctx, "b", "wait")
		g.fails(err)
		check(errors.Is(err, context.Canceled) && errors.Is(err, distag.ErrCancelled), "%v", err)
		select {
		case err := <-heard:
			same(err, context.Canceled)
		case <-time.After(120 * time.Second):
			panic("the function did not hear of it")
		}
	})
}

func deferred(g given) {
	later := func(call *distag.Call) (any, error) {
		reply := call.Defer()
		go func() { ok(reply.Finish(g["answer"], nil)) }()
		return nil, nil
	}
	group(functions{"later": later}, func(a, _ *distag.Worker) {
		same(must(a.Call(background, "b", "later")), g["answer"])
	})
}

func anotherJob(g given) {
	group(functions{"double": double}, func(a, _ *distag.Worker) {
		group(functions{"double": double}, func(c, _ *distag.Worker) {
			same(must(c.Call(background, "d", "double", 2)), int64(4))
			_, err := a.Call(background, "c", "double", 1)
			g.fails(err)
		}, "c", "d")
	})
}

// exact gives a value of the file with the types that arrive.
func exact(value any) any {
	switch v := value.(type) {
	case json.Number:
		if whole, err := v.Int64(); err == nil && v != "-0" {
			return whole
		}
		return float(v)
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = exact(v[i])
		}
		return all
	case map[string]any:
		all := map[string]any{}
		for key, each := range v {
			all[key] = exact(each)
		}
		return all
	}
	return value
}

func everyKind(g given) {
	group(functions{"echo": echo}, func(a, _ *distag.Worker) {
		for _, value := range g.list("values") {
			same(must(a.Call(background, "b", "echo", exact(value))), exact(value))
		}
		same(math.Signbit(must(a.Call(background, "b", "echo", math.Copysign(0, -1))).(float64)), true)
		for _, digits := range g.list("bytes_hex") {
			data := must(hex.DecodeString(digits.(string)))
			same(must(a.Call(background, "b", "echo", data)), data)
		}
		sent := made(distag.Float32, g["tensor"])
		same(elements(must(distag.Invoke[*distag.Tensor](background, a, "b", "echo", sent))), g.floats("tensor"))
		reference := must(a.NewRRef(map[string]int{"kept": 1}))
		back := must(distag.Invoke[[]*distag.RRef](background, a, "b", "echo", []any{reference}))[0]
		same(back.ID(), reference.ID())
		same(must(reference.Local()), map[string]any{"kept": int64(1)})
	})
}

func depth(g given) {
	var value any = "leaf"
	for i := 0; i < integer(g["depth"]); i++ {
		value = []any{value}
	}
	group(functions{"echo": echo}, func(a, _ *distag.Worker) {
		same(must(a.Call(background, "b", "echo", value)), value)
		_, err := a.Call(background, "b", "echo", []any{value})
		g.fails(err)
		itself := []any{nil}
		itself[0] = itself
		_, err = a.Call(background, "b", "echo", itself)
		g.fails(err)
	})
}

func bigInteger(g given) {
	group(functions{"echo": echo}, func(a, _ *distag.Worker) {
		value := int64(integer(g["value"]))
		same(must(a.Call(background, "b", "echo", value)), value)
		same(must(a.Call(background, "b", "echo", []int64{value})), []any{value})
		_, err := a.Call(background, "b", "echo", uint64(1<<63))
		check(errors.Is(err, distag.ErrInvalidArgument) && strings.Contains(err.Error(), "args[0]"), "%v", err)
		_, err = distag.Invoke[int8](background, a, "b", "echo", 300)
		check(errors.Is(err, distag.ErrInvalidArgument) && strings.Contains(err.Error(), "int8"), "%v", err)
	})
}

func notANumber(given) {
	group(functions{"echo": echo}, func(a, _ *distag.Worker) {
		same(math.IsNaN(must(a.Call(background, "b", "echo", math.NaN())).(float64)), true)
		_, err := a.Call(background, "b", "echo", map[float64]int{math.NaN(): 1})
		check(errors.Is(err, distag.ErrInvalidArgument) && strings.Contains(err.Error(), "args[0]"), "%v", err)
	})
}

func nul(g given) {
	group(functions{"echo": echo}, func(a, _ *distag.Worker) {
		_, err := a.Call(background, "b", "echo", "a\x00b")
		g.fails(err)
		_, err = a.Call(background, "b", "echo", map[string]any{"a\x00b": 1})
		g.fails(err)
		_, err = a.Call(background, "b\x00", "echo", 1)
		g.fails(err)
		_, err = a.Call(background, "b", "echo\x00", 1)
		g.fails(err)
		_, err = a.Call(distag.WithLabel(background, "a\x00b"), "b", "echo", 1)
		g.fails(err)
		g.fails(a.Register("a\x00b", echo))
		_, err = distag.NewWorker(distag.Options{Name: "a\x00b"})
		g.fails(err)
		_, err = distag.NewOptimizer(nil, "s\x00gd", nil, nil)
		g.fails(err)
	})
}

func manyBytes(g given) {
	data := make([]byte, integer(g["size"]))
	for i := range data {
		data[i] = byte(i)
	}
	group(functions{"echo": echo}, func(a, _ *distag.Worker) {
		same(must(a.Call(background, "b", "echo", data)), data)
	})
}

func path(g given) {
	group(functions{"echo": echo}, func(a, _ *distag.Worker) {
		for _, strange := range []any{struct{}{}, make(chan int), &g, func() {}} {
			_, err := a.Call(background, "b", "echo", 1, map[string]any{"layers": []any{strange}})
			check(strings.Contains(g.fails(err).Message, g["path"].(string)), "%v", err)
		}
	})
}

func parameter(numbers any) *distag.Tensor {
	return must(distag.Parameter(made(distag.Float32, numbers), nil))
}

func twoWorkers(g given) {
	x := parameter(g["x"])
	group(functions{"square": square}, func(a, _ *distag.Worker) {
		context := must(a.NewContext(background))
		defer context.Close()
		loss := must(must(distag.Invoke[*distag.Tensor](context, a, "b", "square", x)).Sum())
		same(must(loss.Item()), float(g["loss"]))
		ok(context.Backward(loss))
		same(elements(must(context.Gradient(x))), g.floats("gradient"))
	})
}

func thereAndBack(g given) {
	twice := func(call *distag.Call, x *distag.Tensor) (*distag.Tensor, error) {
		y, err := distag.Invoke[*distag.Tensor](call.Context(), call.Worker(), "a", "square", x)
		if err != nil {
			return nil, err
		}
		return y.MulScalar(2)
	}
	x := parameter(g["x"])
	group(functions{"square": square, "twice_square": twice}, func(a, _ *distag.Worker) {
		ctx := must(a.NewContext(background))
		defer ctx.Close()
		derived, cancel := context.WithTimeout(ctx, 120*time.Second)
		defer cancel()
		loss := must(must(distag.Invoke[*distag.Tensor](derived, a, "b", "twice_square", x)).Sum())
		same(must(loss.Item()), float(g["loss"]))
		ok(ctx.Backward(loss))
		same(elements(must(ctx.Gradient(x))), g.floats("gradient"))
	})
}

func bothSides(g given) {
	weight, x := parameter(g["weight"]), parameter(g["x"])
	kept := make(chan *distag.Context, 2)
	scale := func(ctx context.Context, x *distag.Tensor) (*distag.Tensor, error) {
		kept <- distag.ContextOf(ctx)
		return x.Mul(weight)
	}
	gradient := func() (*distag.Tensor, error) { return (<-kept).Gradient(weight) }
	group(functions{"scale": scale, "gradient": gradient}, func(a, _ *distag.Worker) {
		context := must(a.NewContext(background))
		defer context.Close()
		ok(context.Backward(must(must(distag.Invoke[*distag.Tensor](context, a, "b", "scale", x)).Sum())))
		same(elements(must(context.Gradient(x))), g.floats("gradient_of_x"))
		found := must(distag.Invoke[*distag.Tensor](distag.WithoutRecording(context), a, "b", "gradient"))
		same(elements(found), g.floats("gradient_of_weight"))
	})
}

type broken struct{}

func (broken) Forward(inputs []*distag.Tensor) ([]*distag.Tensor, error) {
	y, err := inputs[0].MulScalar(1)
	return []*distag.Tensor{y}, err
}

func (broken) Backward([]*distag.Tensor) ([]*distag.Tensor, error) { panic("out of luck") }

func failingOp(g given) {
	x := parameter([]any{json.Number("1")})
	run := func(x *distag.Tensor) (*distag.Tensor, error) {
		y, err := distag.ApplyCustom("Broken", broken{}, []*distag.Tensor{x}, 1)
		if err != nil {
			return nil, err
		}
		return y[0], nil
	}
	group(functions{"run": run}, func(a, _ *distag.Worker) {
		context := must(a.NewContext(background))
		defer context.Close()
		loss := must(must(distag.Invoke[*distag.Tensor](context, a, "b", "run", x)).Sum())
		g.fails(context.Backward(loss))
	})
}

// A small object without pointers shares its memory, and then its finalizer waits for its neighbours.
type counter struct {
	number int64
	self   *counter
}

func objects(g given) {
	var freed atomic.Int64
	create := func() *counter {
		c := &counter{}
		runtime.SetFinalizer(c, func(*counter) { freed.Add(1) })
		return c
	}
	count := func(reference *distag.RRef) (int64, error) {
		local, err := reference.Local()
		if err != nil {
			return 0, err
		}
		local.(*counter).number++
		return local.(*counter).number, reference.Close()
	}
	group(functions{"make": create, "count": count}, func(a, _ *distag.Worker) {
		reference := must(a.Remote(background, "b", "make"))
		for _, answer := range int64s(g["answers"]) {
			same(must(a.Call(background, "b", "count", reference)), answer)
		}
		runtime.GC()
		same(freed.Load(), int64(0))
		ok(reference.Close())
		_, err := a.Call(background, "b", "make")
		check(errors.Is(err, distag.ErrInvalidArgument), "an object as an answer: %v", err)
	})
	until := time.Now().Add(120 * time.Second)
	for freed.Load() < 2 && time.Now().Before(until) {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	same(freed.Load(), int64(integer(g["freed"]))+1) // that of the refused answer, too
}
