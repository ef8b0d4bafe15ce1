// Command speed is compared with the program in C: see tests/bindings/speed/README.md. usage: speed ROLE FOLDER
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"distag"
)

const flight = 1000

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

var served atomic.Int64

func echo(call *distag.Call) (any, error) {
	served.Add(1)
	return call.Args()[0], nil
}

// counts tells what each served call takes, which no load of the machine changes.
func counts() func() {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	calls := runtime.NumCgoCall()
	return func() {
		runtime.ReadMemStats(&after)
		if count := float64(served.Load()); count > 0 {
			fmt.Fprintf(os.Stderr, "a served call in Go: %.1f allocations of %.0f bytes, %.1f calls of C\n",
				float64(after.Mallocs-before.Mallocs)/count, float64(after.TotalAlloc-before.TotalAlloc)/count,
				float64(runtime.NumCgoCall()-calls)/count)
		}
	}
}

func call(ctx context.Context, w *distag.Worker, x *distag.Tensor) {
	must(distag.Invoke[*distag.Tensor](ctx, w, "b", "echo", x)).Close()
}

func fly(ctx context.Context, w *distag.Worker, x *distag.Tensor) {
	futures := make([]*distag.Future, flight)
	for i := range futures {
		futures[i] = must(w.CallAsync(ctx, "b", "echo", x))
	}
	for _, each := range futures {
		must(distag.Await[*distag.Tensor](ctx, each)).Close()
		each.Close()
	}
}

func measure(name string, rounds int, w *distag.Worker) float64 {
	ctx := context.Background()
	small, x := must(distag.From([]float32{1})), must(distag.From([]float32{1, 2, 3, 4}))
	begin := time.Now()
	for i := 0; i < rounds; i++ {
		switch {
		case name == "call":
			call(ctx, w, small)
		case name == "op":
			must(x.Add(x)).Close()
		case name == "flight" && i%flight == 0:
			fly(ctx, w, small)
		}
	}
	return time.Since(begin).Seconds() / float64(rounds)
}

func main() {
	ctx := context.Background()
	options := distag.Options{Name: "a", WorldSize: 2, Rendezvous: "file://" + os.Args[2]}
	if os.Args[1] == "serve" {
		options.Name, options.Rank = "b", 1
	}
	w := must(distag.NewWorker(options))
	defer w.Close()
	if err := w.Register("echo", echo); err != nil {
		panic(err)
	}
	if err := w.Start(ctx); err != nil {
		panic(err)
	}
	defer counts()()
	for options.Rank == 0 {
		var name string
		var rounds int
		if count, _ := fmt.Scan(&name, &rounds); count < 2 {
			break
		}
		fmt.Printf("%.9f\n", measure(name, rounds, w))
	}
	must(w.Shutdown(ctx))
}
