package distag

/*
#include <distag.h>
*/
import "C"

import (
	"errors"
	"strings"
	"sync"
)

// causeList has the errors of functions that ran in this process, for its callers that are in this process too: C carries
// code and text, and errors.Is wants the error itself. One is kept while a call to the worker that it came from is open.
type causeList struct {
	mutex sync.Mutex
	open  map[string]*openCalls // by the name of the worker that is called
}

type openCalls struct {
	count  int
	causes map[string]error // by what they say
}

var causes = causeList{open: map[string]*openCalls{}}

// mostTexts is how many texts are kept for a worker, two an error; then they begin anew.
const mostTexts = 1 << 16

// codeOfOps stands where a worker is named, for the code of ops and hooks, which no worker offers.
const codeOfOps = ""

// ends gives the begin of a text and the end of a message, which are there where C has left out the middle.
func ends(text, message string) string {
	if len(text) > 60 {
		text = text[:60]
	}
	if len(message) > 200 {
		message = message[len(message)-200:]
	}
	return text + "\x00" + message
}

// expect begins to keep causes for a call; forget ends that, once its failure cannot be asked for any more.
func (l *causeList) expect(to string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	calls := l.open[to]
	if calls == nil {
		calls = &openCalls{}
		l.open[to] = calls
	}
	calls.count++
}

func (l *causeList) forget(to string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	calls := l.open[to]
	if calls.count--; calls.count == 0 {
		delete(l.open, to)
	}
}

// keep notes what a function failed with, as C was told.
func (l *causeList) keep(worker string, err *C.distag_error, failure error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	calls := l.open[worker]
	if calls == nil {
		return
	}
	if calls.causes == nil || len(calls.causes) >= mostTexts { // a reference may be open for as long as the process runs
		calls.causes = map[string]error{}
	}
	message := C.GoString(&err.message[0])
	calls.causes[message], calls.causes[ends(message, message)] = failure, failure
}

// find gives a failure its cause, if the function ran here. C has put before its text where that was: "call ...: text".
func (l *causeList) find(to string, err error) error {
	var own *Error
	if !errors.As(err, &own) || own.cause != nil {
		return err
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	calls := l.open[to]
	if calls == nil || len(calls.causes) == 0 {
		return err
	}
	for text, is := own.Message, true; is && own.cause == nil; _, text, is = strings.Cut(text, ": ") {
		if own.cause = calls.causes[text]; own.cause == nil {
			own.cause = calls.causes[ends(text, own.Message)]
		}
	}
	return err
}
