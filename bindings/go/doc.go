// Package distag is distributed autograd: workers call functions of each other, written in any language, and one backward
// pass runs through all processes that took part. It is a thin layer over the C library libdistag, found by pkg-config.
//
// Everything may be used from any goroutine. What has a Close method holds memory or threads of C: close it where that
// matters, or let a Scope do it; the collector is the net for all but workers.
//
// A process that calls fork of C by itself must not use this package in the child, as Go's runtime does not live on
// there; os/exec is as ever. The end of main ends the process at once: shut workers down before it.
package distag

/*
#cgo !distag_load pkg-config: distag
#cgo distag_load CFLAGS: -DDISTAG_GO_LOAD
#cgo distag_load LDFLAGS: -ldl
#include <stdlib.h>
#include "loader.h"
*/
import "C"

import "unsafe"

var missing error // the library fits where it is nil

// An older library lacks functions that this package calls: the loader, which binds late, would find that in the middle of
// a run.
func init() {
	version := C.CString(Version)
	defer C.free(unsafe.Pointer(version))
	if said := C.distag_go_check_library(apiSize, version); said != nil {
		missing = &Error{Code: ErrUnsupported, OriginRank: -1, Message: C.GoString(said)}
		if isLinked {
			panic(missing)
		}
	}
}

// CheckLibrary tells, in a program that was built with the tag distag_load, what is wrong with the library: it is missing,
// older, of another major version or for another processor. All else fails with the same error then.
func CheckLibrary() error { return missing }

// HandleCount gives the number of handles of this process that are not released yet.
func HandleCount() uint64 { return uint64(C.distag_get_handle_count()) }

// HandleReport gives them in JSON; with DISTAG_VALIDATE=1 in the environment one by one.
func HandleReport() (string, error) {
	return copyText(func(f *frame, buffer *C.char, capacity C.size_t, size *C.size_t) C.distag_status {
		return C.distag_copy_handle_report(buffer, capacity, size, &f.err)
	})
}

// MisuseCount gives the number of handles that were used or released in a wrong way, with DISTAG_VALIDATE=1 all of them.
func MisuseCount() uint64 { return uint64(C.distag_get_misuse_count()) }

// copyText gives what a function copies, whose length may be another the next time.
func copyText(call func(f *frame, buffer *C.char, capacity C.size_t, size *C.size_t) C.distag_status, users ...user) (string, error) {
	f := newFrame()
	defer f.free()
	buffer := make([]byte, 4096)
	for {
		var size C.size_t
		f.status = call(f, (*C.char)(unsafe.Pointer(&buffer[0])), C.size_t(len(buffer)), &size)
		drop(users...)
		if err := f.failure(nil); err != nil {
			return "", err
		}
		if int(size) < len(buffer) {
			return string(buffer[:size]), nil
		}
		buffer = make([]byte, 2*int(size))
	}
}
