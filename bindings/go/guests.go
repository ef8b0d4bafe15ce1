//go:build cgo

package distag

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
)

// guest is code of the user on a goroutine of its own: a panic or Goexit that went through frames of C would end the process.
// If C waits for it, the thread of C makes its blocking calls, so that the pool can run others meanwhile.
type guest struct {
	asked    chan func() // waits for that thread; nil where C does not wait
	waited   chan struct{}
	call     *Call // what it answers, with the function; nil for other code
	function *offered
	callback string   // or "OnLog", "OnMember": what it is
	options  *Options // then, of its worker
}

// guests are those of this process by the numbers of their goroutines.
type guestList struct {
	mutex  sync.RWMutex
	all    map[uint64]*guest
	hosted atomic.Int64 // those for which C waits
}

var guests = guestList{all: map[uint64]*guest{}}

// goroutineNumber gives the number of this goroutine, which Go tells in its stack alone: "goroutine 7 [running]:".
func goroutineNumber() (number uint64) {
	var stack [32]byte
	for _, digit := range stack[len("goroutine "):runtime.Stack(stack[:], false)] {
		if digit < '0' || digit > '9' {
			break
		}
		number = 10*number + uint64(digit-'0')
	}
	return number
}

// current gives the guest on whose goroutine this is; nil on others.
func (l *guestList) current() *guest {
	number := goroutineNumber()
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	return l.all[number]
}

// serving gives the guest that answers a call of a worker on this goroutine.
func (l *guestList) serving(w *Worker) *guest {
	if g := l.current(); g != nil && g.call != nil && g.call.worker == w {
		return g
	}
	return nil
}

// within names the code of the user that runs on this goroutine ("a function", "OnLog", "OnMember"), or "": a
// worker that leaves waits for its end.
func (l *guestList) within(w *Worker) string {
	g := l.current()
	switch {
	case g == nil || w == nil:
		return ""
	case g.call != nil && g.call.worker == w:
		return "a function"
	case g.options == w.options:
		return g.callback
	}
	return ""
}

func (l *guestList) add(number uint64, g *guest) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.all[number] = g
	if g.call != nil && g.call.worker.functions.left {
		g.call.reply.cancel()
	}
	if g.asked != nil {
		l.hosted.Add(1)
	}
}

func (l *guestList) remove(number uint64, g *guest) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	delete(l.all, number)
	if g.asked != nil {
		l.hosted.Add(-1)
	}
}

// leave ends the Contexts of the calls of a worker that has left, also of those that are about to run, and gives the names
// of the functions that still run.
func (l *guestList) leave(w *Worker) []string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	w.functions.left = true
	var names []string
	for _, g := range l.all {
		if g.call != nil && g.call.worker == w {
			g.call.reply.cancel()
			names = append(names, g.function.name)
		}
	}
	sort.Strings(names)
	return names
}

func isHosted() bool {
	if guests.hosted.Load() == 0 {
		return false
	}
	g := guests.current()
	return g != nil && g.asked != nil
}

// hostWait runs what waits inside of C: for code that C waits for, on the thread of C.
func hostWait(wait func()) {
	if guests.hosted.Load() > 0 {
		if g := guests.current(); g != nil && g.asked != nil {
			g.asked <- wait
			<-g.waited
			return
		}
	}
	wait()
}

// host runs code of the user, and waits for it.
func (g *guest) host(run func() error) error {
	g.asked, g.waited = make(chan func()), make(chan struct{})
	done := make(chan error, 1)
	go g.run(run, func(failure error) { done <- failure })
	for {
		select {
		case wait := <-g.asked:
			hostWait(wait)
			g.waited <- struct{}{}
		case failure := <-done:
			return failure
		}
	}
}

// run runs code of the user on this goroutine, and then has its failure looked at, also when it ends the goroutine.
func (g *guest) run(run func() error, then func(failure error)) {
	number := goroutineNumber()
	guests.add(number, g)
	var failure error
	returned := false
	defer func() {
		recover() // of a reason that panics when it is shown
		guests.remove(number, g)
		then(failure)
	}()
	defer func() {
		if reason := recover(); reason != nil {
			cause, _ := reason.(error)
			failure = &userFailure{"panic: (what was thrown cannot be shown)", cause, debug.Stack()}
			failure = &userFailure{fmt.Sprintf("panic: %v", reason), cause, debug.Stack()}
		} else if !returned {
			failure = &userFailure{message: "runtime.Goexit in a function (or panic(nil)): return an error instead"}
		}
	}()
	failure = run()
	returned = true
}

// protect runs code of the user and waits for it.
func protect(run func() error) error {
	g := &guest{}
	if outer := guests.current(); outer != nil {
		g.call, g.function, g.callback, g.options = outer.call, outer.function, outer.callback, outer.options
	}
	return g.host(run)
}

// callback runs a callback of a worker, and waits for it.
func callback(name string, options *Options, run func()) {
	g := &guest{callback: name, options: options}
	if outer := guests.current(); outer != nil { // of a function that is heard meanwhile
		g.call, g.function = outer.call, outer.function
	}
	failure := g.host(func() error {
		run()
		return nil
	})
	if name == "OnLog" {
		options = nil // it cannot log its own end
	}
	tellPanic(name, options, failure)
}

// tellPanic logs a panic in code of the user that has no caller; to stderr without an OnLog.
func tellPanic(name string, options *Options, failure error) {
	panicked, ok := failure.(*userFailure)
	if !ok {
		return
	}
	said := fmt.Sprintf("%s: %s\n%s", name, panicked.message, panicked.stack)
	if options == nil || options.OnLog == nil {
		fmt.Fprintln(os.Stderr, "distag: "+said)
		return
	}
	callback("OnLog", options, func() { options.OnLog(LogError, said) })
}

// userFailure is a panic or an end of a goroutine in code of the user.
type userFailure struct {
	message string
	cause   error
	stack   []byte
}

func (e *userFailure) Error() string { return e.message }
func (e *userFailure) Unwrap() error { return e.cause }

// logPanic logs a panic whose message the caller gets, with its stack.
func (o *offered) logPanic(failure error) {
	if o.worker.options.OnLog != nil {
		tellPanic(o.name, o.worker.options, failure)
	}
}

// tally counts what runs.
type tally struct {
	mutex sync.Mutex
	count int
	none  chan struct{} // closed once none runs; nil where no goroutine waits for that
}

func (t *tally) begin() {
	t.mutex.Lock()
	t.count++
	t.mutex.Unlock()
}

func (t *tally) end() {
	t.mutex.Lock()
	t.count--
	if t.count == 0 && t.none != nil {
		close(t.none)
		t.none = nil
	}
	t.mutex.Unlock()
}

// wait waits until none runs, and tells whether that was before the end of something.
func (t *tally) wait(ended <-chan struct{}) bool {
	t.mutex.Lock()
	if t.count == 0 {
		t.mutex.Unlock()
		return true
	}
	if t.none == nil {
		t.none = make(chan struct{})
	}
	none := t.none
	t.mutex.Unlock()
	select {
	case <-none:
		return true
	case <-ended:
		return false
	}
}

// functions are those that a worker offers.
type functions struct {
	mutex sync.Mutex
	named map[string]*offered
	calls tally // of all, also those that were withdrawn
	left  bool  // under the mutex of guests
}

func (f *functions) put(own *offered) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.named == nil {
		f.named = map[string]*offered{}
	}
	f.named[own.name] = own
}

func (f *functions) find(name string) *offered {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.named[name]
}

// withdraw forgets a function, unless another one has its name by now.
func (f *functions) withdraw(own *offered) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.named[own.name] == own {
		delete(f.named, own.name)
	}
}

// stillRunning is the failure of who waited for functions that did not end.
func stillRunning(names []string) error {
	message := "functions still run: " + strings.Join(names, ", ") + ": end them when the Context of their call ends"
	return &Error{Code: ErrDeadline, OriginRank: -1, Message: message}
}
