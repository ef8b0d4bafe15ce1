// Command service answers calls until it is asked to stop, by Ctrl-C, a SIGTERM or a call of "stop".
//
//	service file:///tmp/group       serves as "service"
//	service file:///tmp/group ask   joins the group, calls it, and asks it to stop
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"distag"
)

func mean(x *distag.Tensor) (*distag.Tensor, error) { return x.Mean() }

func serve(rendezvous string) error {
	interrupted, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
	ctx, stop := context.WithCancel(interrupted)
	defer stop()

	worker, err := distag.NewWorker(distag.Options{Name: "service", WorldSize: -1, Rendezvous: rendezvous})
	if err != nil {
		return err
	}
	defer worker.Close()
	if err := worker.Register("mean", mean); err != nil {
		return err
	}
	if err := worker.Register("stop", func() string { stop(); return "stopping" }); err != nil {
		return err
	}
	if err := worker.Start(ctx); err != nil {
		return err
	}
	fmt.Println(worker.Name(), "serves")
	<-ctx.Done()

	limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := worker.Shutdown(limit); err != nil { // the answer to "stop" goes out first
		return err
	}
	stats, err := worker.Stats()
	fmt.Println("served", stats.CallsServed, "calls")
	return err
}

func ask(rendezvous string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	worker, err := distag.NewWorker(distag.Options{Name: "client", Rank: -1, WorldSize: -1, Rendezvous: rendezvous})
	if err != nil {
		return err
	}
	defer worker.Close()
	if err := worker.Start(ctx); err != nil {
		return err
	}
	x, err := distag.From([]float32{1, 2, 6})
	if err != nil {
		return err
	}
	y, err := distag.Invoke[*distag.Tensor](ctx, worker, "service", "mean", x)
	if err != nil {
		return err
	}
	answer, err := y.Item()
	if err != nil {
		return err
	}
	fmt.Println("mean", answer)
	said, err := worker.Call(ctx, "service", "stop")
	if err == nil {
		fmt.Println(said)
	}
	return err
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("usage: service RENDEZVOUS [ask]")
	}
	run := serve
	if len(os.Args) > 2 {
		run = ask
	}
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}
