package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"distag"
)

var _ = register(map[string]func(given){
	"life: everything released leaves no handle": noHandles,
	"life: a collector between all steps":        collector,
	"life: a worker shut down twice":             shutDownTwice,
	"life: use after close is an error":          useAfterClose,
	"life: leaving main with calls open":         leaving,
	"life: a fork":                               fork,
	"report: stats and reports parse":            reports,
})

func noHandles(given) {
	nothingIsLeft()
	x := parameter([]any{json.Number("1"), json.Number("2")})
	must(x.AddHook(func(gradient *distag.Tensor) (*distag.Tensor, error) { return nil, nil }))
	group(functions{"square": square}, func(a, _ *distag.Worker) {
		context := must(a.NewContext(background))
		ok(context.Backward(must(must(distag.Invoke[*distag.Tensor](context, a, "b", "square", x)).Sum())))
		ok(must(distag.NewOptimizer(a, "sgd", []any{x}, map[string]float64{"lr": 0.1})).Step(context))
		ok(context.Close())
		reference := must(a.Remote(background, "b", "square", x))
		same(elements(must(distag.As[*distag.Tensor](must(reference.Fetch(background)))))[1] < 4, true)
	})
	x = nil
	nothingIsLeft()
}

func collector(g given) {
	defer debug.SetGCPercent(debug.SetGCPercent(1)) // and at each step of its own
	group(functions{"square": square}, func(a, _ *distag.Worker) {
		x := parameter(g["x"])
		runtime.GC()
		context := must(a.NewContext(background))
		defer context.Close()
		runtime.GC()
		loss := must(must(distag.Invoke[*distag.Tensor](context, a, "b", "square", x)).Sum())
		runtime.GC()
		ok(context.Backward(loss))
		runtime.GC()
		same(elements(must(context.Gradient(x))), g.floats("gradient"))
	})
}

func shutDownTwice(g given) {
	group(nil, func(a, b *distag.Worker) {
		other := must(b.ShutdownAsync(background))
		same(must(a.Shutdown(background)).Clean, g["clean"])
		same(must(a.Shutdown(background)).Clean, g["clean"])
		same(distag.ReportOf(must(other.Wait(background))).Clean, true)
	})
	w := create(nil, "alone")[0]
	ok(w.Close())
	ok(w.Close())
}

func useAfterClose(g given) {
	x := must(distag.From([]float32{1}))
	ok(x.Close())
	ok(x.Close())
	_, err := x.AddScalar(1)
	g.fails(err)
	_, err = distag.Data[float32](x)
	g.fails(err)
	weight := must(distag.From([]float32{1}, 1, 1))
	_, err = weight.Linear(weight, x) // an optional input is not left out because it is closed
	g.fails(err)
	workers := create(nil, "a", "b")
	start(workers)
	context := must(workers[0].NewContext(background))
	ok(context.Close())
	_, err = workers[0].Call(context, "b", "mul", weight, weight)
	g.fails(err)
	for _, each := range workers {
		ok(each.Close())
	}
	_, err = workers[0].Call(background, "b", "square", 1)
	g.fails(err)
}

// leaveMain ends its process while calls are open.
func leaveMain(calls string) {
	answering := make(chan struct{}, 1)
	wait := func() (*distag.Tensor, error) {
		select {
		case answering <- struct{}{}:
		default:
		}
		time.Sleep(10 * time.Millisecond)
		return distag.Zeros([]int64{4})
	}
	workers := create(functions{"wait_a_little": wait}, "a", "b")
	start(workers)
	for i := 0; i < must(strconv.Atoi(calls)); i++ {
		future := must(workers[0].CallAsync(background, "b", "wait_a_little"))
		if i%2 == 0 {
			future.Done()
		}
	}
	<-answering
}

func leaving(g given) {
	var wait sync.WaitGroup
	complaints := make(chan string, integer(g["runs"]))
	for half := 0; half < 2; half++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := 0; i < integer(g["runs"])/2; i++ {
				began := time.Now()
				output, err := exec.Command(os.Args[0], "leave", fmt.Sprint(g["calls"])).CombinedOutput()
				if err != nil || len(output) > 0 || time.Since(began).Seconds() > float(g["seconds"]) {
					complaints <- fmt.Sprint(err, string(output), time.Since(began))
				}
			}
		}()
	}
	wait.Wait()
	close(complaints)
	for each := range complaints {
		panic(each)
	}
}

// child is a process that was made while its parent has workers.
func child() {
	group(functions{"double": double}, func(a, _ *distag.Worker) {
		same(must(a.Call(background, "b", "double", 3)), int64(6))
	})
	fmt.Println("child")
}

// Go forks to execute another program only: that one is new, and its parent goes on.
func fork(given) {
	group(functions{"double": double}, func(a, _ *distag.Worker) {
		output := must(exec.Command(os.Args[0], "child").CombinedOutput())
		same(string(output), "child\n")
		same(must(a.Call(background, "b", "double", 4)), int64(8))
	})
}

func reports(g given) {
	group(functions{"double": double}, func(a, _ *distag.Worker) {
		context := must(a.NewContext(background))
		defer context.Close()
		must(a.Call(context, "b", "double", 3))
		stats := must(a.Stats())
		check(stats.CallsMade >= 1, "%v", stats)
		var report, ofContext, handles map[string]any
		named := map[string]any{}
		readJSON(must(json.Marshal(stats)), &named)
		for _, name := range g.list("stats") {
			check(named[name.(string)] != nil, "no %v", name)
		}
		readJSON([]byte(must(a.Report())), &report)
		for _, name := range g.list("report") {
			check(report[name.(string)] != nil, "no %v in %v", name, report)
		}
		readJSON([]byte(must(context.Report())), &ofContext)
		readJSON([]byte(must(distag.HandleReport())), &handles)
		same(must(context.Info()).KnownCount, uint64(1))
		ok(context.Close())
		_, err := context.Info()
		check(errors.Is(err, distag.ErrInvalidArgument) && strings.Contains(err.Error(), "the context is closed"), "%v", err)
	})
}
