// Command soak makes calls and training steps and closes no tensor by hand: memory, handles, threads and descriptors stay as
// they are after the first tenth. usage: soak [CALLS [STEPS]]
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"distag"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

const mostHandles = 64 // far more than the program holds

// usage is what the process holds.
type usage struct{ kib, threads, descriptors, handles int }

func measure() usage {
	// Finalizers run beside the program, some time after the collection that found them.
	for until := time.Now().Add(120 * time.Second); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		if distag.HandleCount() <= mostHandles || time.Now().After(until) {
			break
		}
	}
	var now usage
	for _, line := range strings.Split(string(must(os.ReadFile("/proc/self/status"))), "\n") {
		fields := strings.Fields(line)
		if len(fields) > 1 && fields[0] == "VmRSS:" {
			now.kib = must(strconv.Atoi(fields[1]))
		} else if len(fields) > 1 && fields[0] == "Threads:" {
			now.threads = must(strconv.Atoi(fields[1]))
		}
	}
	now.descriptors = len(must(os.ReadDir("/proc/self/fd")))
	now.handles = int(distag.HandleCount())
	return now
}

// watch runs a number of rounds and compares each tenth with the first.
func watch(name string, rounds int, round func()) bool {
	var first usage
	flat := true
	for tenth := 1; tenth <= 10; tenth++ {
		for i := 0; i < rounds/10; i++ {
			round()
		}
		now := measure()
		fmt.Printf("%s %3d %%: %+v\n", name, 10*tenth, now)
		if tenth == 1 {
			first = now
		}
		flat = flat && now.kib-first.kib <= 8<<10 && now.threads-first.threads <= 8 && now.descriptors <= first.descriptors+2 &&
			now.handles <= mostHandles
	}
	return flat
}

func main() {
	calls, steps := 1000000, 100000
	if len(os.Args) > 1 {
		calls = must(strconv.Atoi(os.Args[1]))
		steps = calls / 10
	}
	if len(os.Args) > 2 {
		steps = must(strconv.Atoi(os.Args[2]))
	}
	ctx := context.Background()
	var workers []*distag.Worker
	var starts []*distag.Future
	weight := must(distag.Parameter(must(distag.Randn(1, []int64{16, 16})).MulScalar(0.1)))
	for rank := 0; rank < 2; rank++ {
		w := must(distag.NewWorker(distag.Options{Rank: rank, WorldSize: 2, Rendezvous: "inproc://soak"}))
		for name, function := range map[string]any{"add": func(x int) int { return x + 1 },
			"layer": func(x *distag.Tensor) (*distag.Tensor, error) { return x.Linear(weight, nil) }} {
			if err := w.Register(name, function); err != nil {
				panic(err)
			}
		}
		workers, starts = append(workers, w), append(starts, must(w.StartAsync(ctx)))
	}
	must(distag.WaitAll(ctx, starts...))
	sgd := must(distag.NewOptimizer(workers[0], "sgd", []any{weight}, map[string]float64{"lr": 1e-3}))

	flat := watch("calls", calls, func() {
		if must(distag.Invoke[int](ctx, workers[0], "worker1", "add", 1)) != 2 {
			panic("a wrong answer")
		}
	})
	x := must(distag.Randn(2, []int64{8, 16}))
	flat = watch("steps", steps, func() {
		record := must(workers[0].NewContext(ctx))
		y := must(distag.Invoke[*distag.Tensor](record, workers[0], "worker1", "layer", x))
		if err := record.Backward(must(must(y.Mul(y)).Mean())); err != nil {
			panic(err)
		}
		if err := sgd.Step(record); err != nil {
			panic(err)
		}
		record.Close() // ends it everywhere; tensors are left to the collector
	}) && flat
	for _, w := range workers {
		w.Close()
	}
	if !flat {
		fmt.Println("grows")
		os.Exit(1)
	}
}
