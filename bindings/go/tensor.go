package distag

/*
#include "callbacks.h"
*/
import "C"

import (
	"fmt"
	"math"
	"runtime"
	"runtime/cgo"
	"sync/atomic"
	"unsafe"
)

// Tensor is a dense array of numbers with its history. Two objects stand for one tensor if their IDs are equal.
type Tensor struct {
	handle
	scope atomic.Pointer[Scope]
}

// newTensor takes one reference.
func newTensor(pointer *C.distag_tensor) *Tensor {
	t := &Tensor{handle: handle{pointer: unsafe.Pointer(pointer), release: releaseTensor}}
	t.bytes = int64(C.distag_tensor_get_size(pointer))
	runtime.SetFinalizer(t, (*Tensor).finalize)
	memory.add(t.bytes)
	return t
}

func (x *Tensor) finalize() { x.handle.close() }

// Close releases the tensor; graphs and messages that need it keep it. The second time it does nothing.
func (x *Tensor) Close() error {
	if x == nil || x.closed() {
		return nil
	}
	runtime.SetFinalizer(x, nil)
	if s := x.scope.Load(); s != nil {
		s.Keep(x)
	}
	x.handle.close()
	return nil
}

// refusal is the error of a tensor that was closed, or is a zero value; nil where it is of use, or nil.
func (x *Tensor) refusal(name string, arguments ...any) error {
	if x == nil || x.pointer != nil && !x.closed() {
		return nil
	}
	return x.handle.refusal(fmt.Sprintf(name, arguments...), "tensor")
}

// Element is a type of Go that a dtype has.
type Element interface {
	float32 | float64 | int64 | bool
}

func dtypeOf[T Element]() DType {
	switch any(*new(T)).(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	case int64:
		return Int64
	}
	return Bool
}

var dtypeNames = map[DType]string{Float32: "float32", Float64: "float64", Int64: "int64", Bool: "bool"}

// String gives the name of a dtype.
func (d DType) String() string {
	if name, ok := dtypeNames[d]; ok {
		return name
	}
	return fmt.Sprintf("dtype %d", int32(d))
}

// From copies data, row-major, into a new tensor; without a shape it has one dim.
func From[T Element](data []T, shape ...int64) (*Tensor, error) {
	if shape == nil {
		shape = []int64{int64(len(data))}
	}
	return create(bytesOf(data), len(data)*int(unsafe.Sizeof(*new(T))), dtypeOf[T](), shape)
}

// Scalar makes a tensor without dims.
func Scalar[T Element](value T) (*Tensor, error) {
	return create(unsafe.Pointer(&value), int(unsafe.Sizeof(value)), dtypeOf[T](), nil)
}

func bytesOf[T Element](data []T) unsafe.Pointer {
	if len(data) == 0 {
		return nil
	}
	return unsafe.Pointer(&data[0])
}

func create(data unsafe.Pointer, size int, dtype DType, shape []int64) (*Tensor, error) {
	f := newFrame()
	f.status = C.distag_tensor_create(data, C.size_t(size), C.distag_dtype(dtype), ints(shape), C.size_t(len(shape)),
		&f.tensor, &f.err)
	return f.take()
}

// Borrow makes a tensor over size bytes of memory of C (by C.malloc, mmap), never of Go, without a copy. The memory stays as
// it is until release runs, on any goroutine, also when this fails. A borrowed tensor cannot be written or stepped.
func Borrow(data unsafe.Pointer, size int, dtype DType, release func(), shape ...int64) (*Tensor, error) {
	if size < 0 {
		giveBack(release)
		return nil, usage("Borrow: the size is %d: give the bytes of the memory", size)
	}
	f := newFrame()
	f.status = C.distag_go_borrow(data, C.size_t(size), C.distag_dtype(dtype), ints(shape), C.size_t(len(shape)),
		C.uintptr_t(cgo.NewHandle(release)), &f.tensor, &f.err)
	return f.take()
}

// Shape gives the size of each dim.
func (x *Tensor) Shape() []int64 {
	return x.list(func(i *C.distag_tensor_info) *C.int64_t { return i.shape })
}

// Strides gives the distance of neighbours in each dim, in elements.
func (x *Tensor) Strides() []int64 {
	return x.list(func(i *C.distag_tensor_info) *C.int64_t { return i.strides })
}

func (x *Tensor) info() (info C.distag_tensor_info) {
	info.struct_size = C.uint32_t(unsafe.Sizeof(info))
	C.distag_tensor_get_info(x.hold(nil), &info, nil)
	x.drop()
	return info
}

func (x *Tensor) list(of func(*C.distag_tensor_info) *C.int64_t) []int64 {
	if x == nil {
		return nil
	}
	defer x.drop()
	if x.hold(nil) == nil {
		return nil
	}
	info := x.info()
	return append([]int64{}, unsafe.Slice((*int64)(unsafe.Pointer(of(&info))), int(info.ndim))...)
}

// HasHistory tells whether x was computed from a tensor that requires a gradient.
func (x *Tensor) HasHistory() bool { return x.info().flags&C.DISTAG_TENSOR_HAS_HISTORY != 0 }

// String describes a tensor without its elements.
func (x *Tensor) String() string { return fmt.Sprintf("Tensor(%v, shape %v)", x.DType(), x.Shape()) }

// Item gives the only element.
func (x *Tensor) Item() (float64, error) {
	f := newFrame()
	var item C.double
	f.status = C.distag_tensor_get_item(x.hold(f), &item, &f.err)
	drop(x)
	return float64(item), f.finish()
}

// Data copies all elements, row-major. T is the type of the tensor's dtype.
func Data[T Element](x *Tensor) ([]T, error) {
	if err := checkType[T](x); err != nil {
		return nil, err
	}
	data := make([]T, x.Count())
	f := newFrame()
	f.status = C.distag_tensor_copy_data(x.hold(f), bytesOf(data), C.size_t(len(data))*C.size_t(unsafe.Sizeof(*new(T))), &f.err)
	drop(x)
	if err := f.finish(); err != nil {
		return nil, err
	}
	return data, nil
}

// View lends the elements of this moment, row-major, to a function; they must not be written, nor kept after it. Nothing is
// copied if x is contiguous.
func View[T Element](x *Tensor, use func([]T) error) error {
	if err := checkType[T](x); err != nil {
		return err
	}
	snapshot, err := x.Snapshot()
	if err == nil && snapshot.info().flags&C.DISTAG_TENSOR_CONTIGUOUS == 0 {
		strided := snapshot
		snapshot, err = strided.Clone()
		strided.Close()
	}
	if err != nil {
		return err
	}
	defer snapshot.Close()
	data := C.distag_tensor_get_data(snapshot.hold(nil))
	defer snapshot.drop()
	if data == nil && snapshot.Count() > 0 {
		return &Error{Code: ErrInvalidState, OriginRank: -1, Message: "View: the elements are not here: use ToLocal or Whole"}
	}
	return use(unsafe.Slice((*T)(data), snapshot.Count()))
}

func checkType[T Element](x *Tensor) error {
	if x == nil {
		return usage("the tensor is nil: make it first")
	}
	if err := x.refusal("the tensor"); err != nil {
		return err
	}
	if found, wanted := x.DType(), dtypeOf[T](); found != wanted {
		return usage("the tensor is %v, not %v: use the type of its dtype, or Cast", found, wanted)
	}
	return nil
}

// Snapshot makes a tensor with the values of this moment, without history; it copies nothing until one is written.
func (x *Tensor) Snapshot() (*Tensor, error) {
	f := newFrame()
	f.status = C.distag_tensor_create_snapshot(x.hold(f), &f.tensor, &f.err)
	drop(x)
	return f.take(x)
}

// SetRequiresGrad asks for gradients with respect to x, or not.
func (x *Tensor) SetRequiresGrad(requires bool) error {
	f := newFrame()
	f.status = C.distag_tensor_set_requires_grad(x.hold(f), truth(requires), &f.err)
	drop(x)
	return f.finish()
}

// Parameter asks for gradients and gives x itself: w, err := distag.Parameter(distag.Randn(1, shape)).
func Parameter(x *Tensor, err error) (*Tensor, error) {
	if err == nil {
		err = x.SetRequiresGrad(true)
	}
	if err != nil {
		return nil, err
	}
	return x, nil
}

// Must gives the tensor, or panics: for ops that can only fail by a mistake in the program, y := Must(x.Mul(x)). In a
// function that a worker offers, such a panic is an error at the caller.
func Must(x *Tensor, err error) *Tensor {
	if err != nil {
		panic(err)
	}
	return x
}

// Write sets the values in place, unrecorded, to row-major data.
func Write[T Element](x *Tensor, data []T) error {
	if err := checkType[T](x); err != nil {
		return err
	}
	f := newFrame()
	f.status = C.distag_tensor_write(x.hold(f), bytesOf(data), C.size_t(len(data))*C.size_t(unsafe.Sizeof(*new(T))), &f.err)
	drop(x)
	return f.finish()
}

// Assign sets the values in place, unrecorded, to those of source, cast and broadcast.
func (x *Tensor) Assign(source *Tensor) error {
	f := newFrame()
	f.status = C.distag_tensor_assign(x.hold(f), source.hold(f), &f.err)
	drop(x, source)
	return f.finish()
}

// AddScaled adds scale * source to the values in place, unrecorded, cast and broadcast.
func (x *Tensor) AddScaled(source *Tensor, scale float64) error {
	f := newFrame()
	f.status = C.distag_tensor_add_scaled(x.hold(f), source.hold(f), C.double(scale), &f.err)
	drop(x, source)
	return f.finish()
}

// ---- arguments of ops ----

// Option is an attribute of an op that has a default; the With functions make them.
type Option struct {
	name  string
	value any
}

// Apply runs any built-in op by its name, with all its attributes; an input may be nil where the op says so.
func Apply(op string, inputs []*Tensor, attributes map[string]any, outputs int) ([]*Tensor, error) {
	if err := checkOutputs(op, outputs); err != nil {
		return nil, err
	}
	var b builder
	defer b.close()
	converted, err := b.value(attributes, false)
	if err != nil {
		return nil, located(at(err, "attributes"))
	}
	for i, each := range inputs {
		if err := each.refusal("%s: input %d", op, i); err != nil {
			return nil, err
		}
	}
	name, err := cText("op", op)
	if err != nil {
		return nil, err
	}
	made := make([]*C.distag_tensor, outputs+1)
	f := newFrame()
	f.status = C.distag_apply(name, holdAll(f, inputs).pointer(), C.size_t(len(inputs)), converted, 0, &made[0],
		C.size_t(outputs), &f.err)
	dropAll(inputs)
	if err := f.finish(); err != nil {
		for _, each := range made[:outputs] { // an input that was closed meanwhile counts as left out
			C.distag_tensor_release(each)
		}
		return nil, err
	}
	tensors := make([]*Tensor, outputs)
	for i := range tensors {
		tensors[i] = newTensor(made[i])
		inherit(tensors[i], inputs)
	}
	return tensors, nil
}

func checkOutputs(op string, outputs int) error {
	if outputs < 0 || outputs > math.MaxInt32 {
		return usage("%s: %d outputs: give a number from 0 to %d", op, outputs, math.MaxInt32)
	}
	return nil
}

func applyMany(op string, inputs []*Tensor, tensors []string, given, options []Option, outputs int) ([]*Tensor, error) {
	all := append([]*Tensor{}, inputs...)
	attributes := map[string]any{}
	places := map[string]int{}
	for _, name := range tensors {
		places[name] = len(all)
		all = append(all, nil)
	}
	for _, option := range append(given, options...) {
		switch value := option.value.(type) {
		case *Tensor:
			place, ok := places[option.name]
			if !ok {
				return nil, &Error{Code: ErrNotFound, OriginRank: -1,
					Message: fmt.Sprintf("%s: there is no input %s: leave the option out", op, option.name)}
			}
			all[place] = value
		case DType:
			attributes[option.name] = value.String()
		default:
			attributes[option.name] = value
		}
	}
	return Apply(op, all, attributes, outputs)
}

func applyOne(op string, inputs []*Tensor, tensors []string, given, options []Option) (*Tensor, error) {
	made, err := applyMany(op, inputs, tensors, given, options, 1)
	if err != nil {
		return nil, err
	}
	return made[0], nil
}

type held []*C.distag_tensor

func holdAll(f *frame, tensors []*Tensor) held {
	pointers := make(held, len(tensors))
	for i, each := range tensors {
		pointers[i] = each.hold(f)
	}
	return pointers
}

func (h held) pointer() **C.distag_tensor {
	if len(h) == 0 {
		return nil
	}
	return &h[0]
}

func ints(numbers []int64) *C.int64_t {
	if len(numbers) == 0 {
		return nil
	}
	return (*C.int64_t)(unsafe.Pointer(&numbers[0]))
}

// pair gives rows and columns; one number stands for both.
func pair(op, name string, given []int64) ([2]C.int64_t, error) {
	switch len(given) {
	case 1:
		return [2]C.int64_t{C.int64_t(given[0]), C.int64_t(given[0])}, nil
	case 2:
		return [2]C.int64_t{C.int64_t(given[0]), C.int64_t(given[1])}, nil
	}
	return [2]C.int64_t{}, usage("%s: %s has %d numbers: give one, or rows and columns", op, name, len(given))
}

func truth(value bool) C.int32_t {
	if value {
		return 1
	}
	return 0
}
