// Command loaded shows what a program with the tag distag_load does with a library that does not fit, or that is newer.
// usage: loaded refused PART... | loaded taken
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"distag"
)

func check(holds bool, said ...any) {
	if !holds {
		panic(fmt.Sprint(said...))
	}
}

// asked gives the answers of whatever may be first.
func asked() (failures []error) {
	take := func(_ any, err error) { failures = append(failures, err) }
	take(distag.NewWorker(distag.Options{WorldSize: 1, Rendezvous: "inproc://x"}))
	take(distag.From([]float32{1}))
	take(distag.Zeros([]int64{2}))
	take(distag.NewContext(context.Background()))
	take(distag.HandleReport())
	take(nil, distag.CheckLibrary())
	return failures
}

func main() {
	if os.Args[1] == "taken" {
		check(distag.CheckLibrary() == nil, distag.CheckLibrary())
		return
	}
	said := distag.CheckLibrary().Error()
	for _, part := range os.Args[2:] {
		check(strings.Contains(said, part), said)
	}
	check(!strings.Contains(said, "\n") && utf8.ValidString(said) && len(said) < 480, said)
	var running sync.WaitGroup
	for routine := 0; routine < 4; routine++ {
		running.Add(1)
		go func() {
			defer running.Done()
			for round := 0; round < 1000; round++ {
				for _, each := range asked() {
					check(errors.Is(each, distag.ErrUnsupported) && each.Error() == said, each, said)
				}
			}
		}()
	}
	running.Wait()
	check(distag.HandleCount() == 0)
	fmt.Println(said)
}
