package distag

/*
#include <distag.h>
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// Class says how to go on after a failure: the tens of its code. It is an error to compare with: errors.Is(err,
// distag.ErrRetry).
type Class int32

// The classes of status codes.
const (
	ErrUsage      Class = 1   // mend the call
	ErrAnotherWay Class = 2   // use another way
	ErrRetry      Class = 3   // wait and retry
	ErrReconnect  Class = 4   // reconnect
	ErrGaveUp     Class = 5   // time is up, or it was cancelled
	ErrOther      Class = 6   // read the message
	ErrUser       Class = 100 // a function failed
)

var classNames = map[Class]string{ErrUsage: "usage", ErrAnotherWay: "unsupported", ErrRetry: "retry",
	ErrReconnect: "reconnect", ErrGaveUp: "gave up", ErrOther: "other", ErrUser: "user"}

// Error makes a class comparable by errors.Is.
func (c Class) Error() string { return classNames[c] }

// Class gives the class of a code; ErrOther for one that this package does not know.
func (c Code) Class() Class {
	switch {
	case c >= CodeUser:
		return ErrUser
	case c >= 10 && c < 60:
		return Class(c / 10)
	}
	return ErrOther
}

// String gives the name of a code, such as "DEADLINE"; "USER" from 1000 on, "UNKNOWN" for one that is not known.
func (c Code) String() string {
	if c >= CodeUser {
		return "USER"
	}
	if name, ok := codeNames[c]; ok {
		return name
	}
	return "UNKNOWN"
}

// Error makes a code comparable by errors.Is, and an answer of a function.
func (c Code) Error() string { return c.String() }

// Error is a failure of distag, or of a function at its caller.
type Error struct {
	Code       Code
	OriginRank int  // of the worker on which it arose; -1: this process
	MayHaveRun bool // the function ran or may have run; else it did not
	Message    string

	cause error // of Go: a context that ended, or the error of a function that ran here
}

func (e *Error) Error() string { return fmt.Sprintf("distag: %s: %s", e.Code, e.Message) }

// Unwrap gives the error of Go that is behind it, if there is one.
func (e *Error) Unwrap() error {
	if e == nil { // a nil *Error that became an error
		return nil
	}
	return e.cause
}

// Is compares with codes, classes, and the errors of package context that mean the same.
func (e *Error) Is(target error) bool {
	if e == nil {
		return false
	}
	switch wanted := target.(type) {
	case Code:
		return e.Code == wanted
	case Class:
		return e.Code.Class() == wanted
	}
	return e.Code == ErrDeadline && target == context.DeadlineExceeded ||
		e.Code == ErrCancelled && target == context.Canceled
}

// Errorf makes an error for a function to answer with: its code (1000 or above) and message arrive at the caller.
func Errorf(code Code, format string, arguments ...any) error {
	return &Error{Code: code, OriginRank: -1, MayHaveRun: true, Message: fmt.Sprintf(format, arguments...)}
}

func usage(format string, arguments ...any) error {
	return &Error{Code: ErrInvalidArgument, OriginRank: -1, Message: fmt.Sprintf(format, arguments...)}
}

// fits refuses a number of Go that C would cut.
func fits(name string, number, least int) error {
	if number < least || number > math.MaxInt32 {
		return usage("%s: %d does not fit: from %d to %d", name, number, least, math.MaxInt32)
	}
	return nil
}

func goError(err *C.distag_error, cause error) error {
	return &Error{Code: Code(err.code), OriginRank: int(err.origin_rank), Message: C.GoString(&err.message[0]),
		MayHaveRun: err.flags&C.DISTAG_ERROR_MAY_HAVE_RUN != 0, cause: cause}
}

// told is what C is told of a failure.
type told struct {
	code    Code
	message string
	own     *Error // the distag error that it is or wraps
}

// tell asks an error what it is: the message of a distag error that was wrapped is that of the wrapper; its code, rank and
// flags stay. The methods of the error are code of the user.
func tell(failure error) told {
	var own *Error
	var bare Code
	var ended *userFailure
	switch {
	case errors.As(failure, &own) && own != nil && own.Code != OK:
		if failure == error(own) {
			return told{own.Code, own.Message, own}
		}
		return told{own.Code, text(failure), own}
	case errors.As(failure, &bare) && bare != OK:
		return told{bare, text(failure), nil}
	case errors.As(failure, &ended):
		return told{CodeUser, ended.message, nil}
	}
	return told{CodeUser, fmt.Sprintf("%T: %s", failure, text(failure)), nil}
}

// setError fills the error of a callback, and gives its status.
func setError(err *C.distag_error, failure error) C.distag_status {
	var found told
	if odd := protect(func() error {
		found = tell(failure)
		return nil
	}); odd != nil {
		found = told{CodeUser, fmt.Sprintf("%T: its method Unwrap, Is or As fails: %s", failure, odd.(*userFailure).message), nil}
		if ended, ok := failure.(*userFailure); ok { // what was thrown is such an error
			found.message = ended.message
		}
	}
	bytes := terminated(found.message)
	status := C.distag_error_set(err, C.distag_status(found.code), (*C.char)(unsafe.Pointer(&bytes[0])))
	if found.own != nil && found.own.OriginRank >= 0 {
		err.origin_rank = C.int32_t(found.own.OriginRank)
	}
	if found.own != nil && found.own.MayHaveRun {
		err.flags |= C.DISTAG_ERROR_MAY_HAVE_RUN
	}
	return status
}

// text is what an error says, also one whose method panics or ends its goroutine.
func text(failure error) (message string) {
	if odd := protect(func() error {
		message = failure.Error()
		return nil
	}); odd != nil {
		said := odd.(*userFailure).message
		return "its method Error panics: " + strings.TrimPrefix(said, "panic: ")
	}
	return message
}

// terminated gives a message in the form of C: valid UTF-8 without NUL inside, ended by one.
func terminated(message string) []byte {
	if !utf8.ValidString(message) {
		message = strings.ToValidUTF8(message, "\uFFFD")
	}
	return append([]byte(strings.ReplaceAll(message, "\x00", "\uFFFD")), 0)
}

// cText gives a text that C reads during one call; NULL for an empty one. A NUL inside is refused: C would cut it there.
func cText(what, value string) (*C.char, error) {
	if value == "" {
		return nil, nil
	}
	if strings.IndexByte(value, 0) >= 0 {
		return nil, usage("%s: %q has a NUL inside: remove it", what, value)
	}
	bytes := append([]byte(value), 0)
	return (*C.char)(unsafe.Pointer(&bytes[0])), nil
}
