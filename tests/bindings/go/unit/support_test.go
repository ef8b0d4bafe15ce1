// Package unit has what the cases of conformance do not: code of users that fails, closing while others use, ends of
// processes, memory and threads.
package unit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"distag"
)

var background = context.Background()

var jobs atomic.Int64

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func same[T comparable](t *testing.T, found, expected T) {
	t.Helper()
	if found != expected {
		t.Fatalf("found %v, expected %v", found, expected)
	}
}

// is asserts that an error has a code, or a class, and says something.
func is(t *testing.T, err, wanted error, parts ...string) {
	t.Helper()
	if !errors.Is(err, wanted) {
		t.Fatalf("%v is not %v", err, wanted)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Fatalf("%q is not in: %v", part, err)
		}
	}
}

// pair gives two workers, a and b, that are started, and shuts them down when the test ends; then no handle is left.
func pair(t *testing.T, offered map[string]any, change func(*distag.Options)) (a, b *distag.Worker) {
	t.Helper()
	job := fmt.Sprintf("unit%d", jobs.Add(1))
	workers := make([]*distag.Worker, 2)
	starts := make([]*distag.Future, 2)
	for rank, name := range []string{"a", "b"} {
		options := distag.Options{Name: name, Rank: rank, WorldSize: 2, Rendezvous: "inproc://" + job, Job: job}
		if change != nil {
			change(&options)
		}
		workers[rank] = must(distag.NewWorker(options))
		for name, function := range offered {
			ok(t, workers[rank].Register(name, function))
		}
		starts[rank] = must(workers[rank].StartAsync(background))
	}
	must(distag.WaitAll(background, starts...))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(background, 120*time.Second)
		defer cancel()
		down := []*distag.Future{must(workers[0].ShutdownAsync(ctx)), must(workers[1].ShutdownAsync(ctx))}
		must(distag.WaitAll(ctx, down...))
		for _, each := range workers {
			ok(t, each.Close())
		}
		nothingIsLeft(t)
	})
	return workers[0], workers[1]
}

// nothingIsLeft waits until all handles are released; not in a test that has failed, which may hold some for ever.
func nothingIsLeft(t *testing.T) {
	t.Helper()
	if t.Failed() {
		return
	}
	until := time.Now().Add(120 * time.Second)
	for distag.HandleCount() > 0 {
		if time.Now().After(until) {
			t.Fatal(must(distag.HandleReport()))
		}
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
}

// status gives a number of /proc/self/status, such as "Threads" or "VmHWM" (KiB).
func status(name string) int {
	for _, line := range strings.Split(string(must(os.ReadFile("/proc/self/status"))), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name+":" {
			return must(strconv.Atoi(fields[1]))
		}
	}
	panic(name)
}

func sum(x *distag.Tensor) float64 { return must(must(x.Sum()).Item()) }
