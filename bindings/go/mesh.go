package distag

/*
#include "callbacks.h"
*/
import "C"

import (
	"context"
	"runtime"
	"unsafe"
)

// Mesh arranges workers, its members, as a grid whose axes have names. All members make the same calls on it, in the same
// order; each takes a goroutine.
type Mesh struct{ handle }

// MeshAxis is one axis of a mesh.
type MeshAxis struct {
	Name string
	Size int64
}

func newMesh(pointer *C.distag_mesh) *Mesh {
	m := &Mesh{handle{pointer: unsafe.Pointer(pointer), release: releaseMesh}}
	runtime.SetFinalizer(m, func(m *Mesh) { m.handle.close() })
	return m
}

// NewMesh makes a mesh of all living members of the group, and waits until they have come.
func (w *Worker) NewMesh(ctx context.Context, axes ...MeshAxis) (*Mesh, error) {
	var t texts
	defer t.free()
	names, shape := make([]string, len(axes)), make([]int64, len(axes))
	for i, axis := range axes {
		names[i], shape[i] = axis.Name, axis.Size
	}
	array, count := t.array("axis", names)
	if t.err != nil {
		return nil, t.err
	}
	var made *C.distag_mesh
	future, err := begin(func(f *frame) {
		f.status = C.distag_mesh_create_async(w.hold(f), nil, 0, ints(shape), array, count, nil, &made, &f.future, &f.err)
		drop(w)
	})
	if err != nil {
		return nil, err
	}
	defer future.Close()
	m := newMesh(made)
	if err := future.wait(ctx); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Close takes this worker out of the mesh.
func (m *Mesh) Close() error {
	if m == nil {
		return nil
	}
	runtime.SetFinalizer(m, nil)
	m.handle.close()
	return nil
}

// CollectiveOptions of one collective call.
type CollectiveOptions struct {
	Axes      string // among the members that differ only in these; "": all
	Reduction Reduction
	Dim       int64
	DimTo     int64
	Root      int64
	Shift     int64
}

// Collective runs a collective on a plain tensor; nil where this member gets none.
func (m *Mesh) Collective(ctx context.Context, kind CollectiveKind, x *Tensor, options CollectiveOptions) (*Tensor, error) {
	timeout, err := timeoutOf(ctx, 0)
	if err != nil {
		return nil, err
	}
	axes, err := cText("axes", options.Axes)
	if err != nil {
		return nil, err
	}
	var c C.distag_collective_options
	c.struct_size = C.uint32_t(unsafe.Sizeof(c))
	c.reduction, c.dim, c.dim_to = C.uint32_t(options.Reduction), C.int64_t(options.Dim), C.int64_t(options.DimTo)
	c.root, c.shift, c.timeout_ns = C.int64_t(options.Root), C.int64_t(options.Shift), timeout
	value, err := run(ctx, func(f *frame) {
		f.status = C.distag_collective_async(m.hold(f), C.uint32_t(kind), axes, x.hold(f), &c, &f.future, &f.err)
		drop(m, x)
	})
	if err != nil {
		return nil, err
	}
	return As[*Tensor](value)
}

// Stats gives the work of this worker on the mesh.
func (m *Mesh) Stats() (MeshStats, error) {
	var found C.distag_mesh_stats
	found.struct_size = C.uint32_t(unsafe.Sizeof(found))
	f := newFrame()
	f.status = C.distag_mesh_get_stats(m.hold(f), &found, &f.err)
	drop(m)
	return meshStatsOf(&found), f.finish()
}

// NewJointContext makes a context that all members share: Backward on it is collective.
func (m *Mesh) NewJointContext(parent context.Context) (*Context, error) {
	f := newFrame()
	var made *C.distag_context
	f.status = C.distag_context_create_joint(m.hold(f), &made, &f.err)
	drop(m)
	if err := f.finish(); err != nil {
		return nil, err
	}
	return newContext(parent, nil, made), nil
}

// MarkSharding turns x, without history, into a sharded tensor, as a spec such as "('data', None)" says. sourceRank -1: each
// member has all of it already.
func (x *Tensor) MarkSharding(m *Mesh, spec string, sourceRank int) error {
	if err := fits("sourceRank", sourceRank, -1); err != nil {
		return err
	}
	text, err := cText("spec", spec)
	if err != nil {
		return err
	}
	f := newFrame()
	hostWait(func() {
		f.status = C.distag_tensor_mark_sharding(x.hold(f), m.hold(f), text, C.int32_t(sourceRank), &f.err)
		drop(x, m)
	})
	return f.finish()
}

// Redistribute gives the same values under another spec; recorded.
func (x *Tensor) Redistribute(spec string) (*Tensor, error) {
	text, err := cText("spec", spec)
	if err != nil {
		return nil, err
	}
	f := newFrame()
	hostWait(func() {
		f.status = C.distag_redistribute(x.hold(f), text, 0, &f.tensor, &f.err)
		drop(x)
	})
	return f.take(x)
}

// FromLocal makes a sharded tensor of which local is this worker's shard.
func (m *Mesh) FromLocal(local *Tensor, spec string, shape ...int64) (*Tensor, error) {
	text, err := cText("spec", spec)
	if err != nil {
		return nil, err
	}
	f := newFrame()
	f.status = C.distag_tensor_from_local(m.hold(f), local.hold(f), text, ints(shape), C.size_t(len(shape)), nil, &f.tensor, &f.err)
	drop(m, local)
	return f.take(local)
}

// ToLocal gives the shard of this worker as a plain tensor.
func (x *Tensor) ToLocal() (*Tensor, error) {
	f := newFrame()
	f.status = C.distag_tensor_to_local(x.hold(f), nil, &f.tensor, &f.err)
	drop(x)
	return f.take(x)
}

// Whole gives all elements as a plain tensor without history, on the member of a rank (nil elsewhere), or with -1 on all.
func (x *Tensor) Whole(ctx context.Context, rank int) (*Tensor, error) {
	if err := fits("rank", rank, -1); err != nil {
		return nil, err
	}
	timeout, err := timeoutOf(ctx, 0)
	if err != nil {
		return nil, err
	}
	value, err := run(ctx, func(f *frame) {
		f.status = C.distag_tensor_gather_async(x.hold(f), C.int32_t(rank), timeout, &f.future, &f.err)
		drop(x)
	})
	if err != nil {
		return nil, err
	}
	return As[*Tensor](value)
}
