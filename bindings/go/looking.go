package distag

/*
#include "callbacks.h"
*/
import "C"

import (
	"math"
	"sync"
	"unsafe"
)

// Environment is the place of this process in its group, as its launcher tells; -1 and 0 where it does not.
type Environment struct {
	Rank                 int // -1 in an open world: the group gives one
	WorldSize            int // -1: an open world
	LocalRank, LocalSize int // among the processes of this node
	Node, NodeCount      int
	Restart              int    // how often the launcher has started this anew
	Launcher             string // "own", "torchrun", "slurm" or "kubernetes"
}

// ReadEnvironment gives what a worker whose options have no rank and size would take; the error names all that is missing.
func ReadEnvironment() (Environment, error) {
	var found C.distag_environment
	found.struct_size = C.sizeof_distag_environment
	f := newFrame()
	f.status = C.distag_get_environment(&found, &f.err)
	if err := f.finish(); err != nil {
		return Environment{}, err
	}
	return Environment{int(found.rank), int(found.world_size), int(found.local_rank), int(found.local_size),
		int(found.node), int(found.node_count), int(found.restart), C.GoString(&found.launcher[0])}, nil
}

// TraceOptions of a trace.
type TraceOptions struct {
	Folder   string // it has to be there; "": what DISTAG_TRACE names
	MaxBytes uint64 // of the file, 65,536 or more; 0: 256 MiB
}

// StartTrace writes what the started worker does to Folder/NAME.trace.json, which https://ui.perfetto.dev shows.
func (w *Worker) StartTrace(options TraceOptions) error {
	folder, err := cText("Folder", options.Folder)
	if err != nil {
		return err
	}
	f := newFrame()
	f.status = C.distag_go_start_trace(w.hold(f), folder, C.uint64_t(options.MaxBytes), &f.err)
	drop(w)
	return f.finish()
}

// StopTrace ends the trace, if there is one, and closes its file, as the shutdown does.
func (w *Worker) StopTrace() error {
	f := newFrame()
	f.status = C.distag_worker_stop_trace(w.hold(f), &f.err)
	drop(w)
	return f.finish()
}

// Trace begins a span in the trace, and gives the function that ends it, for defer: on any goroutine, once; a second time does
// nothing. The function is there also after an error (a label of more than 127 bytes), and where nothing is traced.
func (w *Worker) Trace(label string) (end func(), err error) {
	if _, err := cText("label", label); err != nil {
		return func() {}, err
	}
	text := append([]byte(label), 0)
	var span C.uint64_t
	f := newFrame()
	f.status = C.distag_trace_begin(w.hold(f), (*C.char)(unsafe.Pointer(&text[0])), &span, &f.err)
	drop(w)
	if err := f.finish(); err != nil || span == 0 {
		return func() {}, err
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			C.distag_trace_end(w.hold(nil), span)
			w.drop()
		})
	}, nil
}

// PictureOptions of a drawing.
type PictureOptions struct {
	Format PictureFormat // PictureText
	Color  bool          // PictureText with escape codes
	Width  int           // columns of PictureText; 0: 80
	Row    int           // with Column the two dims that are drawn; 0 and 0: the first two
	Column int
	Label  string // before the numbers of members; "": "CPU"
}

// VisualizeSharding draws which members hold which part of a tensor, by a spec in HLO text, which names devices itself:
// "{devices=[2,2]0,1,2,3}". Without a shape (nil) all parts are drawn alike.
func VisualizeSharding(spec string, shape []int64, options PictureOptions) (string, error) {
	return visualize(nil, spec, shape, options)
}

// Visualize draws which members hold which part of a tensor under a spec, such as "('data', None)".
func (m *Mesh) Visualize(spec string, shape []int64, options PictureOptions) (string, error) {
	if m == nil {
		return "", usage("the mesh is nil: make it by NewMesh, or use VisualizeSharding")
	}
	defer m.drop()
	mesh := m.hold(nil)
	if mesh == nil {
		return "", m.refusal("the mesh", "mesh")
	}
	return visualize(mesh, spec, shape, options)
}

func visualize(mesh *C.distag_mesh, spec string, shape []int64, options PictureOptions) (string, error) {
	text, err := cText("spec", spec)
	if err != nil {
		return "", err
	}
	label, err := cText("Label", options.Label)
	if err != nil {
		return "", err
	}
	for _, number := range []int{options.Width, options.Row, options.Column} {
		if number < 0 || number > math.MaxInt32 {
			return "", usage("Visualize: %d is no width and no dim: give a number of 0 .. %d", number, math.MaxInt32)
		}
	}
	return copyText(func(f *frame, buffer *C.char, capacity C.size_t, size *C.size_t) C.distag_status {
		return C.distag_go_visualize(mesh, text, ints(shape), C.size_t(len(shape)), C.uint32_t(options.Format),
			C.uint32_t(truth(options.Color)), C.uint32_t(options.Width), C.uint32_t(options.Row), C.uint32_t(options.Column),
			label, buffer, capacity, size, &f.err)
	})
}
