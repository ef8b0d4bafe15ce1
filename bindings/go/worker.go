package distag

/*
#include <stdlib.h>
#include "callbacks.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime/cgo"
	"time"
	"unsafe"
)

// Options of a new worker; what is left out has the default of the C library, and rank, size and rendezvous come from the
// environment if all three are left out.
type Options struct {
	Name             string // "worker<rank>"
	Rank             int    // 0 .. WorldSize - 1; -1 in an open world: the group gives one
	WorldSize        int    // -1: an open world
	Rendezvous       string // "env://", "tcp://host:port", "file:///folder", "inproc://name", "etcd://..."
	Job              string
	Bind, Advertise  string
	Executor         Executor // ExecutorPool; with ExecutorHost functions run in Poll only, one after the other
	Threads          int      // functions that run at once, without those that wait for distag; 0: any number
	CallTimeout      time.Duration
	Lease            time.Duration
	MaxInFlightBytes uint64
	MaxMessageBytes  uint64
	NoLane           bool
	SocketEngine     SocketEngine // the library of sockets; 0: the one that DISTAG_SOCKET_ENGINE names, else libzmq
	LogLevel         LogLevel
	// OnLog gets what is logged; nil: nothing is. The worker waits for its end, so it must not block. A panic in it is told
	// on stderr.
	OnLog    func(level LogLevel, message string)
	OnMember func(member Member) // when one joins, leaves or is lost. A panic in it goes to OnLog, without one to stderr

	GroupKey             string            // of all workers of the group
	SecretKey, PublicKey string            // instead, those of this worker
	Peers                map[string]string // and the public keys of the others by name
	RendezvousName       string
	Initiators           []string
	AllowInsecure        bool
}

// Member is one participant as a worker sees it.
type Member struct {
	Name        string
	Rank        int
	State       MemberState
	Incarnation uint64
}

func memberOf(found *C.distag_member) Member {
	return Member{C.GoString(&found.name[0]), int(found.rank), MemberState(found.state), uint64(found.incarnation)}
}

// Worker is one participant: it has a name and a rank, offers functions and calls those of others. It is not collected
// while it serves: close it.
type Worker struct {
	handle
	options   *Options
	watch     watch
	functions functions
}

// texts are strings in memory of C until the end of one call. The first one with a NUL inside is its error.
type texts struct {
	memory []unsafe.Pointer
	err    error
}

func (t *texts) free() {
	for _, each := range t.memory {
		C.free(each)
	}
}

func (t *texts) copy(what, text string) *C.char {
	if _, err := cText(what, text); err != nil && t.err == nil {
		t.err = err
	}
	if text == "" {
		return nil
	}
	copied := C.CString(text)
	t.memory = append(t.memory, unsafe.Pointer(copied))
	return copied
}

func (t *texts) array(what string, list []string) (**C.char, C.size_t) {
	array := C.calloc(C.size_t(len(list)+1), C.size_t(unsafe.Sizeof(uintptr(0))))
	t.memory = append(t.memory, array)
	pointers := unsafe.Slice((**C.char)(array), len(list)+1)
	for i, each := range list {
		pointers[i] = t.copy(what, each)
	}
	return (**C.char)(array), C.size_t(len(list))
}

func (t *texts) security(o *Options) *C.distag_security_options {
	if o.GroupKey+o.SecretKey+o.PublicKey+o.RendezvousName == "" && len(o.Peers)+len(o.Initiators) == 0 && !o.AllowInsecure {
		return nil
	}
	memory := C.calloc(1, C.sizeof_distag_security_options)
	t.memory = append(t.memory, memory)
	s := (*C.distag_security_options)(memory)
	s.struct_size = C.sizeof_distag_security_options
	s.allow_insecure = C.uint32_t(truth(o.AllowInsecure))
	s.public_key, s.secret_key = t.copy("PublicKey", o.PublicKey), t.copy("SecretKey", o.SecretKey)
	s.group_key, s.rendezvous_name = t.copy("GroupKey", o.GroupKey), t.copy("RendezvousName", o.RendezvousName)
	if len(o.Peers) > 0 {
		s.peer_names, s.peer_keys, s.peer_count = t.peers(o.Peers)
	}
	if len(o.Initiators) > 0 {
		s.initiators, s.initiator_count = t.array("Initiators", o.Initiators)
	}
	return s
}

func (t *texts) peers(peers map[string]string) (names, keys **C.char, count C.size_t) {
	var nameList, keyList []string
	for name, key := range peers {
		nameList, keyList = append(nameList, name), append(keyList, key)
	}
	names, count = t.array("Peers", nameList)
	keys, _ = t.array("Peers", keyList)
	return names, keys, count
}

// NewWorker makes a worker that cannot be reached yet: register its functions, then Start.
func NewWorker(options Options) (*Worker, error) {
	if missing != nil {
		return nil, missing
	}
	for _, each := range []struct {
		name          string
		number, least int
	}{{"Rank", options.Rank, -1}, {"WorldSize", options.WorldSize, -1}, {"Threads", options.Threads, 0}} {
		if err := fits(each.name, each.number, each.least); err != nil {
			return nil, err
		}
	}
	var t texts
	defer t.free()
	memory := C.calloc(1, C.sizeof_distag_worker_options)
	t.memory = append(t.memory, memory)
	o := (*C.distag_worker_options)(memory)
	o.struct_size = C.sizeof_distag_worker_options
	o.executor, o.log_level = C.distag_executor_type(options.Executor), C.distag_log_level_type(options.LogLevel)
	o.rank, o.world_size, o.thread_count = C.int32_t(options.Rank), C.int32_t(options.WorldSize), C.uint32_t(options.Threads)
	o.call_timeout_ns, o.lease_ns = C.int64_t(options.CallTimeout), C.int64_t(options.Lease)
	o.max_in_flight_bytes, o.max_message_bytes = C.uint64_t(options.MaxInFlightBytes), C.uint64_t(options.MaxMessageBytes)
	o.name, o.rendezvous, o.job = t.copy("Name", options.Name), t.copy("Rendezvous", options.Rendezvous), t.copy("Job", options.Job)
	o.bind, o.advertise = t.copy("Bind", options.Bind), t.copy("Advertise", options.Advertise)
	o.security = t.security(&options)
	o.no_lane, o.socket_engine = C.uint32_t(truth(options.NoLane)), C.distag_socket_engine_type(options.SocketEngine)
	if t.err != nil {
		return nil, t.err
	}
	w := &Worker{handle: handle{release: releaseWorker}, options: &options}
	if options.OnLog != nil || options.OnMember != nil {
		C.distag_go_set_callbacks(o, C.uintptr_t(cgo.NewHandle(w.options)), truth(options.OnLog != nil), truth(options.OnMember != nil))
	}
	f := newFrame()
	var pointer *C.distag_worker
	f.status = C.distag_worker_create(o, &pointer, &f.err)
	w.pointer = unsafe.Pointer(pointer)
	if err := f.finish(); err != nil {
		return nil, err
	}
	return w, nil
}

//export distagGoLog
func distagGoLog(options C.uintptr_t, level C.int32_t, message *C.char) {
	text := C.GoString(message)
	own := cgo.Handle(options).Value().(*Options)
	callback("OnLog", own, func() { own.OnLog(LogLevel(level), text) })
}

//export distagGoMember
func distagGoMember(options C.uintptr_t, seen *C.distag_member) {
	member := memberOf(seen)
	own := cgo.Handle(options).Value().(*Options)
	callback("OnMember", own, func() { own.OnMember(member) })
}

// Start meets the group. It waits for all members of a static group, for ever if ctx has no deadline.
func (w *Worker) Start(ctx context.Context) error {
	started, err := w.StartAsync(ctx)
	if err != nil {
		return err
	}
	defer started.Close()
	return started.wait(ctx)
}

// StartAsync is Start without waiting.
func (w *Worker) StartAsync(ctx context.Context) (*Future, error) {
	timeout, err := timeoutOf(ctx, forever)
	if err != nil {
		return nil, err
	}
	return begin(func(f *frame) {
		f.status = C.distag_worker_start_async(w.hold(f), timeout, &f.future, &f.err)
		drop(w)
	})
}

// Report is what a worker says when it is down.
type Report struct {
	Clean       bool
	Missing     []string
	OpenCalls   int64
	LeakedRRefs []string
}

// Shutdown serves on until every living member of a static group shuts down too and no call is open, and leaves; in an
// open world it leaves alone. When ctx ends it leaves regardless. Without an end of ctx it waits for ever, so a server
// is Start and Shutdown.
//
// The order: the worker leaves, the Contexts of calls whose functions still run end, and Shutdown waits for these
// functions. ErrDeadline names those that run on when ctx ends: the worker has left all the same, and a later Shutdown
// or Close waits for them again. Futures that are open then fail with ErrCancelled. The worker stays usable for its
// report until Close.
//
// With ExecutorHost this goroutine polls from then on, so functions that are due run while it waits: stop polling
// elsewhere first. After ShutdownAsync poll until its future is done.
//
// From within a function, OnLog or OnMember of this worker it is refused, as it would wait for itself: use
// ShutdownAsync.
func (w *Worker) Shutdown(ctx context.Context) (Report, error) {
	if who := guests.within(w); who != "" {
		return Report{}, fromWithin("Shutdown", who, "use ShutdownAsync")
	}
	if ended := ctx.Done(); ended != nil {
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			select {
			case <-ended: // the earliest deadline counts
				if now, err := w.shutdown(0); err == nil {
					now.Close()
				}
			case <-stop:
			}
		}()
	}
	value, err := w.leave(timeoutToLeave(ctx))
	if err != nil {
		return Report{}, err
	}
	return ReportOf(value), w.awaitFunctions(ctx)
}

// leave shuts down by one call of C, which polls: with the host executor a wait for a future does so only on the thread that
// polled last.
func (w *Worker) leave(timeout C.int64_t) (any, error) {
	f := newFrame()
	hostWait(func() {
		f.status = C.distag_worker_shutdown(w.hold(f), timeout, &f.value, &f.err)
		drop(w)
	})
	value := f.value
	if err := f.finish(); err != nil {
		return nil, err
	}
	defer C.distag_value_release(value)
	return fromValue(value)
}

// awaitFunctions waits for the functions of a worker that has left. The end of their Contexts tells them to end.
func (w *Worker) awaitFunctions(ctx context.Context) error {
	guests.leave(w)
	if w.functions.calls.wait(ctx.Done()) {
		return nil
	}
	return stillRunning(guests.leave(w))
}

func fromWithin(what, who, cure string) error {
	message := what + ": " + who + " of this worker calls it, and it waits for the end of that: " + cure
	return &Error{Code: ErrInvalidState, OriginRank: -1, Message: message}
}

// ReportOf reads the value of the future of ShutdownAsync.
func ReportOf(value any) Report {
	report, _ := As[map[string]any](value)
	clean, _ := As[bool](report["clean"])
	missing, _ := As[[]string](report["missing"])
	open, _ := As[int64](report["open_calls"])
	leaked, _ := As[[]string](report["leaked_rrefs"])
	return Report{clean, missing, open, leaked}
}

// ShutdownAsync is Shutdown without waiting, also for functions that still run. Of ctx only the deadline counts.
// ReportOf reads the value of the future.
func (w *Worker) ShutdownAsync(ctx context.Context) (*Future, error) {
	return w.shutdown(timeoutToLeave(ctx))
}

func timeoutToLeave(ctx context.Context) C.int64_t {
	timeout, _ := timeoutOf(ctx, forever) // 0 where it is over: to leave late is to leave at once
	return timeout
}

func (w *Worker) shutdown(timeout C.int64_t) (*Future, error) {
	return begin(func(f *frame) {
		f.status = C.distag_worker_shutdown_async(w.hold(f), timeout, &f.future, &f.err)
		drop(w)
	})
}

// Close leaves the group at once, unless Shutdown has done so: calls that are open fail with ErrCancelled. Then it ends
// the Contexts of calls whose functions still run, waits up to 5 s for these functions, and releases the worker in any
// case; ErrDeadline names the functions that run on. With ExecutorHost this goroutine polls meanwhile, as in Shutdown.
// The second time it does nothing. From within a function, OnLog or OnMember of this worker it is refused.
func (w *Worker) Close() error {
	if w == nil || w.pointer == nil || w.closed() {
		return nil
	}
	if who := guests.within(w); who != "" {
		return fromWithin("Close", who, "call it elsewhere, or ShutdownAsync")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var err error
	for {
		_, err = w.leave(0)
		if err == nil || ctx.Err() != nil || !errors.Is(err, ErrDeadline) {
			break
		}
	}
	if err == nil || errors.Is(err, ErrDeadline) {
		err = w.awaitFunctions(ctx)
	}
	w.handle.close()
	return err
}

// Forever means no limit for Poll, WaitForWork and Unregister. A limit of 0 ends at once.
const Forever time.Duration = forever

// Poll runs what is due with ExecutorHost, at most maxItems (0: any number), and begins nothing once limit is over: Poll(0,
// Forever) runs all that is due, Poll(0, 0) nothing. It does not wait. One goroutine polls; lock it to its thread
// (runtime.LockOSThread).
func (w *Worker) Poll(maxItems int, limit time.Duration) (int, error) {
	if maxItems < 0 {
		return 0, usage("Poll: maxItems is %d: give 0 for any number", maxItems)
	}
	f := newFrame()
	var done C.size_t
	f.status = C.distag_worker_poll(w.hold(f), C.size_t(maxItems), C.int64_t(limit), &done, &f.err)
	drop(w)
	return int(done), f.finish()
}

// WaitForWork waits until Poll has something to run.
func (w *Worker) WaitForWork(limit time.Duration) error {
	f := newFrame()
	f.status = C.distag_worker_wait(w.hold(f), C.int64_t(limit), &f.err)
	drop(w)
	return f.finish()
}

// Unregister withdraws a function, and waits until none of its calls runs: ErrDeadline when some do at the limit. From within
// the function it is refused.
func (w *Worker) Unregister(name string, limit time.Duration) error {
	if w == nil {
		return usage("the worker is nil: NewWorker makes one")
	}
	if g := guests.serving(w); g != nil && g.function.name == name {
		return fromWithin("Unregister", "a function", "call it elsewhere")
	}
	text, err := cText("function", name)
	if err != nil {
		return err
	}
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if limit >= 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	own := w.functions.find(name)
	f := newFrame()
	hostWait(func() {
		f.status = C.distag_worker_unregister(w.hold(f), text, C.int64_t(limit), &f.err)
		drop(w)
	})
	err = f.finish()
	if own == nil || err != nil && !errors.Is(err, ErrDeadline) {
		return err
	}
	w.functions.withdraw(own)
	if err == nil && !own.calls.wait(ctx.Done()) {
		err = stillRunning([]string{name})
	}
	return err
}

// MemberByName gives the latest member of a name, in any state.
func (w *Worker) MemberByName(name string) (Member, error) {
	text, err := cText("name", name)
	if err != nil {
		return Member{}, err
	}
	var found C.distag_member
	found.struct_size = C.sizeof_distag_member
	f := newFrame()
	f.status = C.distag_worker_get_member_by_name(w.hold(f), text, &found, &f.err)
	drop(w)
	return memberOf(&found), f.finish()
}

// Ranks gives the ranks of the living members whose names begin with a prefix, ascending.
func (w *Worker) Ranks(prefix string) ([]int, error) {
	if _, err := cText("prefix", prefix); err != nil {
		return nil, err
	}
	text := append([]byte(prefix), 0)
	ranks := make([]C.int32_t, 65536)
	var count C.size_t
	f := newFrame()
	f.status = C.distag_worker_copy_ranks(w.hold(f), (*C.char)(unsafe.Pointer(&text[0])), &ranks[0], C.size_t(len(ranks)), &count, &f.err)
	drop(w)
	found := make([]int, count)
	for i := range found {
		found[i] = int(ranks[i])
	}
	return found, f.finish()
}

// AllGather gives each of ranks (nil: all) the values of all, in the order of ranks.
func (w *Worker) AllGather(ctx context.Context, value any, ranks []int) ([]any, error) {
	var b builder
	defer b.close()
	converted, err := b.arguments([]any{value})
	if err != nil {
		return nil, err
	}
	timeout, err := timeoutOf(ctx, forever)
	if err != nil {
		return nil, err
	}
	given := make([]C.int32_t, len(ranks)+1)
	for i, rank := range ranks {
		if err := fits(fmt.Sprintf("ranks[%d]", i), rank, 0); err != nil {
			return nil, err
		}
		given[i] = C.int32_t(rank)
	}
	values, err := run(ctx, func(f *frame) {
		var first *C.int32_t
		if ranks != nil {
			first = &given[0]
		}
		f.status = C.distag_worker_all_gather_async(w.hold(f), converted[0], first, C.size_t(len(ranks)), timeout, &f.future, &f.err)
		drop(w)
	})
	if err != nil {
		return nil, err
	}
	return values.([]any), nil
}

// Stats gives the counters of the worker.
func (w *Worker) Stats() (Stats, error) {
	var found C.distag_stats
	found.struct_size = C.sizeof_distag_stats
	f := newFrame()
	f.status = C.distag_worker_get_stats(w.hold(f), &found, &f.err)
	drop(w)
	return statsOf(&found), f.finish()
}

// Report gives members, open calls, contexts and events in JSON.
func (w *Worker) Report() (string, error) {
	return copyText(func(f *frame, buffer *C.char, capacity C.size_t, size *C.size_t) C.distag_status {
		return C.distag_worker_copy_report(w.hold(f), buffer, capacity, size, &f.err)
	}, w)
}

// GroupReport gives in JSON what all members have open and wait for; one that does not answer before the end of ctx is
// told as silent.
func (w *Worker) GroupReport(ctx context.Context) (string, error) {
	timeout, err := timeoutOf(ctx, forever)
	if err != nil {
		return "", err
	}
	return copyText(func(f *frame, buffer *C.char, capacity C.size_t, size *C.size_t) (status C.distag_status) {
		hostWait(func() { status = C.distag_worker_copy_group_report(w.hold(f), timeout, buffer, capacity, size, &f.err) })
		return status
	}, w)
}

// Metrics gives the counters in the text format of Prometheus.
func (w *Worker) Metrics() (string, error) {
	return copyText(func(f *frame, buffer *C.char, capacity C.size_t, size *C.size_t) C.distag_status {
		return C.distag_worker_copy_metrics(w.hold(f), buffer, capacity, size, &f.err)
	}, w)
}

// SetPeers replaces the workers that may connect: their public keys by name.
func (w *Worker) SetPeers(peers map[string]string) error {
	var t texts
	defer t.free()
	names, keys, count := t.peers(peers)
	if t.err != nil {
		return t.err
	}
	f := newFrame()
	f.status = C.distag_worker_set_peers(w.hold(f), names, keys, count, &f.err)
	drop(w)
	return f.finish()
}

// Keys are those of a worker, in text.
type Keys struct{ Public, Secret string }

// CreateKeys makes a new random pair of keys.
func CreateKeys() (Keys, error) {
	var made C.distag_key_pair
	made.struct_size = C.sizeof_distag_key_pair
	f := newFrame()
	f.status = C.distag_security_create_keys(&made, &f.err)
	return Keys{C.GoString(&made.public_key[0]), C.GoString(&made.secret_key[0])}, f.finish()
}
