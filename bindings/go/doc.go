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
#cgo pkg-config: distag
#include <distag.h>
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// An older library lacks functions that this package calls: the loader, which binds late, would find that in the middle of
// a run.
func init() {
	table := C.distag_get_api(abiMajor)
	if table == nil {
		panic(fmt.Sprintf("distag: the library is version %s, this package needs one with ABI %d: install libdistag%d",
			C.GoString(C.distag_get_version()), abiMajor, abiMajor))
	}
	if uintptr(table.struct_size) < apiSize {
		panic(fmt.Sprintf("distag: the library is version %s, this package needs %s: install a newer libdistag%d",
			C.GoString(C.distag_get_version()), Version, abiMajor))
	}
}

// HandleCount gives the number of handles of this process that are not released yet.
func HandleCount() uint64 { return uint64(C.distag_get_handle_count()) }

// HandleReport gives them in JSON; with DISTAG_VALIDATE=1 in the environment one by one.
func HandleReport() (string, error) {
	return copyText(func(buffer *C.char, capacity C.size_t, size *C.size_t, err *C.distag_error) C.distag_status {
		return C.distag_copy_handle_report(buffer, capacity, size, err)
	})
}

// MisuseCount gives the number of handles that were used or released in a wrong way, with DISTAG_VALIDATE=1 all of them.
func MisuseCount() uint64 { return uint64(C.distag_get_misuse_count()) }

// copyText gives what a function copies, whose length may be another the next time.
func copyText(call func(*C.char, C.size_t, *C.size_t, *C.distag_error) C.distag_status) (string, error) {
	f := newFrame()
	defer f.free()
	buffer := make([]byte, 4096)
	for {
		var size C.size_t
		if f.status = call((*C.char)(unsafe.Pointer(&buffer[0])), C.size_t(len(buffer)), &size, &f.err); f.status != 0 {
			return "", f.failure(nil)
		}
		if int(size) < len(buffer) {
			return string(buffer[:size]), nil
		}
		buffer = make([]byte, 2*int(size))
	}
}
