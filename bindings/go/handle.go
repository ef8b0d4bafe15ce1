package distag

/*
#include <distag.h>
*/
import "C"

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// handle owns one reference of C. A call holds it, so that a Close on another goroutine releases it only when the call is
// over; a closed one, and that of a zero value, gives NULL.
type handle struct {
	pointer  unsafe.Pointer
	release  func(unsafe.Pointer)
	users    atomic.Int64 // calls under way; math.MinInt64 is added once it is closed
	released atomic.Bool
	bytes    int64 // of C's memory, for the collector
}

// acquire is followed by drop, also where it gives NULL. A frame notes why it does.
func (h *handle) acquire(f *frame, kind string) unsafe.Pointer {
	if h != nil && h.users.Add(1) >= 0 && h.pointer != nil {
		return h.pointer
	}
	if f != nil {
		f.refused, f.closed = kind, h != nil && h.closed()
	}
	return nil
}

func (h *handle) drop() {
	if h != nil && h.users.Add(-1) == math.MinInt64 {
		h.end()
	}
}

func (h *handle) end() {
	if h.pointer != nil && h.released.CompareAndSwap(false, true) {
		h.release(h.pointer)
		memory.add(-h.bytes)
	}
}

// close has no effect the second time.
func (h *handle) close() {
	for {
		users := h.users.Load()
		if users < 0 {
			return
		}
		if h.users.CompareAndSwap(users, users+math.MinInt64) {
			if users == 0 {
				h.end()
			}
			return
		}
	}
}

func (h *handle) closed() bool { return h.users.Load() < 0 }

// makers say how to get what a zero value is not.
var makers = map[string]string{
	"tensor": "From and all ops make one", "worker": "NewWorker makes one", "reply": "Call.Defer gives one",
	"future": "methods whose names end in Async make one", "context": "NewContext makes one",
	"gradients": "Context.Gradients gives them", "rref": "Remote and NewRRef make one", "optimizer": "NewOptimizer makes one",
	"mesh": "NewMesh makes one",
}

// refusal is the error of a handle that was closed, or never made: that of a zero value.
func (h *handle) refusal(name, kind string) error {
	switch {
	case h != nil && h.closed():
		return refused(name, kind, true)
	case h == nil || h.pointer == nil:
		return refused(name, kind, false)
	}
	return nil
}

func refused(name, kind string, closed bool) error {
	if closed {
		return usage("%s is closed: use it before its Close", name)
	}
	return usage("%s is a zero value: %s", name, makers[kind])
}

// nativeMemory is what the tensors of this process hold in C, which Go's collector does not see. A collection starts when
// it has doubled since the last one, beyond 64 MiB. Views count as much as what they are of.
type nativeMemory struct {
	alive, least atomic.Int64 // least: since the last collection began
	collecting   sync.Mutex
}

var memory nativeMemory

const leastMemory = 64 << 20

func (m *nativeMemory) add(bytes int64) {
	alive := m.alive.Add(bytes)
	if bytes <= 0 {
		for least := m.least.Load(); alive < least && !m.least.CompareAndSwap(least, alive); least = m.least.Load() {
		}
		return
	}
	if alive > leastMemory && alive > 2*m.least.Load() && m.collecting.TryLock() {
		m.least.Store(alive)
		runtime.GC()
		m.collecting.Unlock()
	}
}

// frame has what a call of C writes to. It comes from a pool, since what C writes to lies on no stack.
type frame struct {
	err     C.distag_error
	tensor  *C.distag_tensor
	value   *C.distag_value
	future  *C.distag_future
	status  C.distag_status
	refused string // the kind of a handle that the call wanted to use; a constant, as C must see no pointer to memory of Go
	closed  bool   // and why: it was closed, else it is a zero value
}

// user of a call is what it holds.
type user interface{ drop() }

// drop ends what began with hold.
func drop(users ...user) {
	for _, each := range users {
		each.drop()
	}
}

func dropAll(tensors []*Tensor) {
	for _, each := range tensors {
		each.drop()
	}
}

var frames = sync.Pool{New: func() any {
	f := new(frame)
	f.err.struct_size = C.uint32_t(unsafe.Sizeof(f.err))
	return f
}}

func newFrame() *frame { return frames.Get().(*frame) }

func (f *frame) free() {
	f.err.code, f.err.origin_rank, f.err.flags, f.err.message[0] = 0, -1, 0, 0
	f.tensor, f.value, f.future, f.refused = nil, nil, nil, ""
	frames.Put(f)
}

// failure is the error of the call, nil after success. It frees nothing. A call with a closed handle, or a zero value, has
// failed, also where C takes NULL for "none".
func (f *frame) failure(cause error) error {
	if f.refused != "" {
		return refused("the "+f.refused, f.refused, f.closed)
	}
	if f.status == 0 {
		return nil
	}
	return goError(&f.err, cause)
}

// finish is failure, and the end of the frame.
func (f *frame) finish() error {
	err := f.failure(nil)
	f.free()
	return err
}

// take gives the tensor that the call made, in the scope of the first input that has one, and ends the frame.
func (f *frame) take(inputs ...*Tensor) (*Tensor, error) {
	pointer := f.tensor
	if err := f.finish(); err != nil {
		C.distag_tensor_release(pointer)
		return nil, err
	}
	made := newTensor(pointer)
	inherit(made, inputs)
	return made, nil
}

// Closer is what a Scope can close: tensors, gradients, contexts, references, futures, optimizers, meshes. The Close of each
// does nothing to nil, so that it may be deferred before the error is looked at.
type Closer interface{ Close() error }

// Scope closes what was made in it, but what is kept. A tensor that an op makes of one in a scope is in that scope too.
type Scope struct {
	mutex   sync.Mutex
	members map[Closer]struct{}
	closed  bool
}

// NewScope makes an empty scope. Give it what it shall close by Add: x = s.Add(x), or make it the scope of a Context.
func NewScope() *Scope { return &Scope{} }

// Add puts something into the scope.
func (s *Scope) Add(members ...Closer) {
	for _, member := range members {
		if t, ok := member.(*Tensor); ok && t != nil {
			t.scope.Store(s)
		}
		s.mutex.Lock()
		closed := s.closed
		if s.members == nil && !closed {
			s.members = map[Closer]struct{}{}
		}
		if !closed {
			s.members[member] = struct{}{}
		}
		s.mutex.Unlock()
		if closed {
			member.Close()
		}
	}
}

// Keep takes something out of the scope, so that it outlives it.
func (s *Scope) Keep(members ...Closer) {
	for _, member := range members {
		if t, ok := member.(*Tensor); ok && t != nil {
			t.scope.CompareAndSwap(s, nil)
		}
		s.mutex.Lock()
		delete(s.members, member)
		s.mutex.Unlock()
	}
}

// Close closes all that is in the scope; what is added later is closed at once.
func (s *Scope) Close() error {
	if s == nil {
		return nil
	}
	s.mutex.Lock()
	members := s.members
	s.members, s.closed = nil, true
	s.mutex.Unlock()
	for member := range members {
		member.Close()
	}
	return nil
}

func inherit(made *Tensor, inputs []*Tensor) {
	for _, input := range inputs {
		if input == nil {
			continue
		}
		if s := input.scope.Load(); s != nil {
			s.Add(made)
			return
		}
	}
}
