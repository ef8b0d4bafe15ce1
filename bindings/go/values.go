package distag

/*
#include <stdlib.h>
#include "callbacks.h"
*/
import "C"

import (
	"fmt"
	"math"
	"reflect"
	"runtime/cgo"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// The library refuses 17 lists within each other; here the error has their place.
const deepest = 16

// builder makes values of C, and releases them when it is closed, which ends the call that needs them.
type builder struct {
	owned []*C.distag_value
	held  []user
	depth int
}

func (b *builder) close() {
	for _, value := range b.owned {
		C.distag_value_release(value)
	}
	for _, each := range b.held {
		each.drop()
	}
}

// pathError names the place in the arguments, from the inside to the outside.
type pathError struct {
	path string
	err  error
}

func (e *pathError) Error() string { return e.err.Error() }

func at(err error, place string) error {
	if inner, ok := err.(*pathError); ok {
		return &pathError{place + inner.path, inner.err}
	}
	return &pathError{place, err}
}

// located gives the error with its path in front.
func located(err error) error {
	inner, ok := err.(*pathError)
	if !ok {
		return err
	}
	known := inner.err.(*Error)
	if inner.path == "" {
		return known
	}
	return &Error{Code: known.Code, OriginRank: known.OriginRank, Message: inner.path + ": " + known.Message}
}

func (b *builder) arguments(args []any) ([]*C.distag_value, error) {
	values := make([]*C.distag_value, len(args), len(args)+1)
	for i, each := range args {
		value, err := b.value(each, false)
		if err != nil {
			return nil, located(at(err, fmt.Sprintf("args[%d]", i)))
		}
		values[i] = value
	}
	return values, nil
}

// own keeps what a call made until the end, and gives the failure of the call.
func (b *builder) own(f *frame) (*C.distag_value, error) {
	value := f.value
	if f.status == 0 {
		b.owned = append(b.owned, value)
	}
	return value, f.finish()
}

// value converts what Go has. With objects, what is no value becomes an object that stays in this process.
func (b *builder) value(given any, objects bool) (*C.distag_value, error) {
	f := newFrame()
	switch v := given.(type) {
	case nil:
		f.status = C.distag_value_create_null(&f.value, &f.err)
	case bool:
		f.status = C.distag_value_create_bool(truth(v), &f.value, &f.err)
	case int:
		f.status = C.distag_value_create_int64(C.int64_t(v), &f.value, &f.err)
	case int64:
		f.status = C.distag_value_create_int64(C.int64_t(v), &f.value, &f.err)
	case float64:
		f.status = C.distag_value_create_float64(C.double(v), &f.value, &f.err)
	case string:
		return b.text(v, f)
	case []byte:
		f.status = C.distag_value_create_bytes(firstByte(v), C.size_t(len(v)), &f.value, &f.err)
	case []int64:
		f.status = C.distag_value_create_int64_list(ints(v), C.size_t(len(v)), &f.value, &f.err)
	case []float64:
		f.status = C.distag_value_create_float64_list((*C.double)(bytesOf(v)), C.size_t(len(v)), &f.value, &f.err)
	case *Tensor:
		return b.lend(v, v == nil, C.distag_tensor_as_value(v.hold(f)), f)
	case *RRef:
		return b.lend(v, v == nil, C.distag_rref_as_value(v.hold(f)), f)
	default:
		f.free()
		return b.other(given, objects)
	}
	return b.own(f)
}

// lend gives the value that is a handle of the user, and holds it until the end.
func (b *builder) lend(owner user, isNil bool, value *C.distag_value, f *frame) (*C.distag_value, error) {
	b.held = append(b.held, owner)
	f.status = 0
	if err := f.finish(); err != nil || !isNil {
		return value, err
	}
	return nil, usage("a nil %T: give nil itself for null", owner)
}

func (b *builder) text(v string, f *frame) (*C.distag_value, error) {
	if !utf8.ValidString(v) {
		f.free()
		return nil, usage("a text that is no UTF-8: give a []byte")
	}
	if strings.IndexByte(v, 0) >= 0 {
		f.free()
		return nil, usage("a text with a NUL inside: give a []byte")
	}
	bytes := append([]byte(v), 0)
	f.status = C.distag_value_create_text((*C.char)(unsafe.Pointer(&bytes[0])), &f.value, &f.err)
	return b.own(f)
}

// other converts by the kind of a type: other numbers, lists and maps of any type.
func (b *builder) other(given any, objects bool) (*C.distag_value, error) {
	if err, ok := given.(error); ok && objects {
		return nil, usage("an error as a value: %s: give it as the last result", text(err))
	}
	v := reflect.ValueOf(given)
	switch v.Kind() {
	case reflect.Bool:
		return b.value(v.Bool(), false)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int, reflect.Int64:
		return b.value(v.Int(), false)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint, reflect.Uint64:
		if v.Uint() > math.MaxInt64 {
			return nil, usage("%d is above the largest int64: send a text or a float64", v.Uint())
		}
		return b.value(int64(v.Uint()), false)
	case reflect.Float32, reflect.Float64:
		return b.value(v.Float(), false)
	case reflect.String:
		return b.value(v.String(), false)
	case reflect.Slice, reflect.Array, reflect.Map:
		if v.Kind() == reflect.Slice && v.Type().Elem() == reflect.TypeOf(byte(0)) {
			return b.value(v.Bytes(), false)
		}
		if b.depth++; b.depth > deepest {
			return nil, usage("nested more than %d deep, or it contains itself: make it flat", deepest)
		}
		defer func() { b.depth-- }()
		if v.Kind() == reflect.Map {
			return b.mapping(v)
		}
		return b.list(v)
	}
	if objects {
		f := newFrame()
		f.status = C.distag_go_create_object(C.uintptr_t(cgo.NewHandle(given)), &f.value, &f.err)
		return b.own(f)
	}
	return nil, usage("%T is no value: give numbers, text, bytes, tensors, rrefs, lists or maps of them", given)
}

func (b *builder) list(v reflect.Value) (*C.distag_value, error) {
	items := make([]*C.distag_value, v.Len(), v.Len()+1)
	for i := range items {
		item, err := b.value(v.Index(i).Interface(), false)
		if err != nil {
			return nil, at(err, fmt.Sprintf("[%d]", i))
		}
		items[i] = item
	}
	f := newFrame()
	f.status = C.distag_value_create_list(&items[:1][0], C.size_t(len(items)), &f.value, &f.err)
	return b.own(f)
}

func (b *builder) mapping(v reflect.Value) (*C.distag_value, error) {
	if v.Type().Key().Kind() != reflect.String {
		return nil, usage("%s, whose keys are no texts: use strings as keys", withArticle(v.Type()))
	}
	count := v.Len()
	items := make([]*C.distag_value, 0, count+1)
	array := C.calloc(C.size_t(count+1), C.size_t(unsafe.Sizeof(uintptr(0))))
	keys := unsafe.Slice((**C.char)(array), count+1)
	defer func() {
		for i := range items {
			C.free(unsafe.Pointer(keys[i]))
		}
		C.free(array)
	}()
	for each := v.MapRange(); each.Next(); {
		key := each.Key().String()
		if strings.IndexByte(key, 0) >= 0 {
			return nil, usage("the key %q has a NUL inside: remove it", key)
		}
		item, err := b.value(each.Value().Interface(), false)
		if err != nil {
			return nil, at(err, "."+key)
		}
		keys[len(items)] = C.CString(key)
		items = append(items, item)
	}
	f := newFrame()
	f.status = C.distag_value_create_map(&keys[0], &items[:1][0], C.size_t(count), &f.value, &f.err)
	return b.own(f)
}

// fromValue converts a value of C, which stays the caller's. Lists are []any, maps map[string]any, numbers int64 and
// float64.
func fromValue(value *C.distag_value) (any, error) {
	f := newFrame()
	switch valueKind(C.distag_value_get_kind(value)) {
	case valueNull:
		f.free()
		return nil, nil
	case valueBool:
		var found C.int32_t
		f.status = C.distag_value_get_bool(value, &found, &f.err)
		return found != 0, f.finish()
	case valueInt64:
		var found C.int64_t
		f.status = C.distag_value_get_int64(value, &found, &f.err)
		return int64(found), f.finish()
	case valueFloat64:
		var found C.double
		f.status = C.distag_value_get_float64(value, &found, &f.err)
		return float64(found), f.finish()
	case valueText:
		var found *C.char
		f.status = C.distag_value_get_text(value, &found, &f.err)
		return C.GoString(found), f.finish()
	case valueBytes:
		var found unsafe.Pointer
		var size C.size_t
		f.status = C.distag_value_get_bytes(value, &found, &size, &f.err)
		return append([]byte{}, unsafe.Slice((*byte)(found), int(size))...), f.finish()
	case valueTensor:
		f.status = C.distag_value_get_tensor(value, &f.tensor, &f.err)
		retainTensor(f.tensor)
		return f.take()
	case valueRRef:
		var found *C.distag_rref
		f.status = C.distag_value_get_rref(value, &found, &f.err)
		if err := f.finish(); err != nil {
			return nil, err
		}
		return newRRef(retainRRef(found)), nil
	case valueObject:
		var found C.uintptr_t
		f.status = C.distag_go_get_object(value, &found, &f.err)
		if err := f.finish(); err != nil {
			return nil, err
		}
		return cgo.Handle(found).Value(), nil
	}
	f.free()
	return fromItems(value)
}

func fromItems(value *C.distag_value) (any, error) {
	count := int(C.distag_value_get_count(value))
	items := make([]any, count)
	for i := range items {
		item := C.distag_value_get_item(value, C.size_t(i))
		if item == nil {
			return nil, &Error{Code: ErrOutOfMemory, OriginRank: -1, Message: "there is no memory for an item of a value"}
		}
		converted, err := fromValue(item)
		if err != nil {
			return nil, err
		}
		items[i] = converted
	}
	if valueKind(C.distag_value_get_kind(value)) != valueMap {
		return items, nil
	}
	entries := make(map[string]any, count)
	for i, item := range items {
		entries[C.GoString(C.distag_value_get_key(value, C.size_t(i)))] = item
	}
	return entries, nil
}

// As converts what a call gave to a type: numbers that fit, lists and maps item by item. T is any, an own type of these
// kinds, *Tensor, *RRef, or the type of an object. A float64 is rounded to a float32. A finite one beyond its range does
// not fit, nor does an integer that would lose digits.
func As[T any](value any) (T, error) { return asAt[T]("", value) }

// answerAs is As for the answer of a call, which its errors name.
func answerAs[T any](value any) (T, error) { return asAt[T]("answer", value) }

func asAt[T any](place string, value any) (T, error) {
	if exact, ok := value.(T); ok {
		return exact, nil
	}
	var target T
	if err := convert(value, reflect.ValueOf(&target).Elem()); err != nil {
		return target, located(at(err, place))
	}
	return target, nil
}

// withArticle gives "an int64", "a *distag.Tensor".
func withArticle(kind reflect.Type) string {
	name := kind.String()
	if strings.ContainsRune("aeio", rune(name[0])) {
		return "an " + name
	}
	return "a " + name
}

// losesBits tells whether a float32 would be another number.
func losesBits(v int64, target reflect.Value) bool {
	return target.Kind() == reflect.Float32 && float64(float32(v)) != float64(v)
}

func convert(value any, target reflect.Value) error {
	if value == nil {
		switch target.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
			return nil
		}
		return at(usage("null, where %s is wanted", withArticle(target.Type())), "")
	}
	source := reflect.ValueOf(value)
	if source.Type().AssignableTo(target.Type()) {
		target.Set(source)
		return nil
	}
	wanted := withArticle(target.Type())
	mismatch := at(usage("%s, where %s is wanted", withArticle(source.Type()), wanted), "")
	switch v := value.(type) {
	case int64:
		switch {
		case target.CanInt() && !target.OverflowInt(v):
			target.SetInt(v)
		case target.CanUint() && v >= 0 && !target.OverflowUint(uint64(v)):
			target.SetUint(uint64(v))
		case target.CanFloat() && int64(float64(v)) == v && v != math.MaxInt64 && !losesBits(v, target):
			target.SetFloat(float64(v))
		case target.CanInt() || target.CanUint() || target.CanFloat():
			return at(usage("%d does not fit into %v", v, target.Type()), "")
		default:
			return mismatch
		}
	case float64:
		if !target.CanFloat() {
			return mismatch
		}
		if target.SetFloat(v); math.IsInf(target.Float(), 0) && !math.IsInf(v, 0) {
			return at(usage("%v does not fit into %v", v, target.Type()), "")
		}
	case string, bool:
		if source.Kind() != target.Kind() {
			return mismatch
		}
		target.Set(source.Convert(target.Type()))
	case []any:
		if target.Kind() != reflect.Slice {
			return mismatch
		}
		target.Set(reflect.MakeSlice(target.Type(), len(v), len(v)))
		for i, item := range v {
			if err := convert(item, target.Index(i)); err != nil {
				return at(err, fmt.Sprintf("[%d]", i))
			}
		}
	case map[string]any:
		if target.Kind() != reflect.Map || target.Type().Key().Kind() != reflect.String {
			return mismatch
		}
		target.Set(reflect.MakeMapWithSize(target.Type(), len(v)))
		for key, item := range v {
			converted := reflect.New(target.Type().Elem()).Elem()
			if err := convert(item, converted); err != nil {
				return at(err, "."+key)
			}
			target.SetMapIndex(reflect.ValueOf(key).Convert(target.Type().Key()), converted)
		}
	default:
		return mismatch
	}
	return nil
}

func firstByte(data []byte) unsafe.Pointer {
	if len(data) == 0 {
		return nil
	}
	return unsafe.Pointer(&data[0])
}
