// Command conformance runs the cases of bindings/conformance/cases.json through the Go binding.
// usage: conformance REPOSITORY [WORD...]; with words, only the cases whose names have one of them.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
)

// given is what the file says of a case.
type given map[string]any

var cases = map[string]func(given){}

// register adds the cases of a file; a name twice is a mistake.
func register(more map[string]func(given)) bool {
	for name, run := range more {
		if cases[name] != nil {
			panic("two cases are named " + name)
		}
		cases[name] = run
	}
	return true
}

func readJSON(text []byte, into any) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	ok(decoder.Decode(into))
}

func run(number int, case_ given) (passed bool) {
	name := case_["name"].(string)
	defer func() {
		if reason := recover(); reason != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n%s", name, reason, debug.Stack())
			passed = false
		}
		verdict := map[bool]string{true: "ok", false: "not ok"}[passed]
		fmt.Printf("%s %d - %s\n", verdict, number, name)
		runtime.GC()
	}()
	function := cases[name]
	check(function != nil, "there is no such case in Go")
	function(case_)
	return true
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "leave" {
		leaveMain(os.Args[2])
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "child" {
		child()
		return
	}
	repository := os.Args[1]
	text, err := os.ReadFile(filepath.Join(repository, "bindings", "conformance", "cases.json"))
	ok(err)
	var file struct{ Cases []given }
	readJSON(text, &file)
	number, failed := 0, 0
	for _, each := range file.Cases {
		if wanted(each["name"].(string), os.Args[2:]) {
			number++
			each["repository"] = repository
			if !run(number, each) {
				failed++
			}
		}
	}
	fmt.Printf("1..%d\n", number)
	if failed > 0 {
		os.Exit(1)
	}
}

func wanted(name string, words []string) bool {
	for _, word := range words {
		if strings.Contains(name, word) {
			return true
		}
	}
	return len(words) == 0
}
