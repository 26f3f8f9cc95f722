package dohost

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"sync"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/dohost/dohost/objectstore"
)

// valueFormat is the first byte of every stored value: msgpack follows.
const valueFormat = 1

// encoder writes values into its buffer. A new one costs more than most values.
type encoder struct {
	b bytes.Buffer
	e *msgpack.Encoder
}

var encoders = sync.Pool{New: func() any {
	return &encoder{e: msgpack.NewEncoder(nil)}
}}

// maxKept is the size of the largest buffer that an encoder keeps, in bytes.
const maxKept = 64 << 10

// encoded calls use with the encoding of v, which is valid until use returns. It is the
// one encoding of values that are stored or cross between objects.
func encoded(v any, use func([]byte) error) error {
	e := encoders.Get().(*encoder)
	e.b.Reset()
	e.b.WriteByte(valueFormat)
	e.e.Reset(&e.b) // discards the settings of the last value's EncodeMsgpack
	e.e.UseCompactInts(true)
	e.e.SetSortMapKeys(true)
	if err := e.e.Encode(v); err != nil { // the encoder is not used again
		return fmt.Errorf("dohost: encode %T: %w", v, err)
	}
	if e.b.Cap() <= maxKept {
		defer encoders.Put(e)
	}
	return use(e.b.Bytes())
}

// encode returns the encoding of v.
func encode(v any) (data []byte, err error) {
	err = encoded(v, func(b []byte) error { data = bytes.Clone(b); return nil })
	return data, err
}

// decoder reads values. A new one costs more than most values.
type decoder struct {
	r bytes.Reader
	d *msgpack.Decoder
}

var decoders = sync.Pool{New: func() any {
	return &decoder{d: msgpack.NewDecoder(bytes.NewReader(nil))}
}}

// buffers hold encodings until they are decoded.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// decode returns the T that data encodes. A number that its type cannot hold is an error
// that names the place of the number.
func decode[T any](data []byte) (T, error) {
	var v, zero T
	if err := decodeTo(&v, data); err != nil {
		return zero, err
	}
	return v, nil
}

// decodeTo decodes data into the variable that the pointer v points to. After an error the variable has any value.
func decodeTo(v any, data []byte) error {
	if len(data) == 0 || data[0] != valueFormat {
		return fmt.Errorf("%w: value has format %v, this version reads format %d", objectstore.ErrFormat, data[:min(len(data), 1)], valueFormat)
	}
	if decodeInt(v, data[1:]) {
		return nil
	}
	d := decoders.Get().(*decoder)
	d.r.Reset(data[1:])
	d.d.Reset(&d.r)
	if err := d.d.Decode(v); err != nil { // the decoder is not used again
		return decodeError(v, err)
	}
	d.r.Reset(nil)
	decoders.Put(d)
	if s := shapeOf(v); s != nil {
		if _, m := s.fit(data[1:]); m != nil {
			return decodeError(v, m)
		}
	}
	return nil
}

// decodeInt decodes the encoding of an integer into a variable of type int or int64, which are frequent, without a decoder. It returns
// false if data is anything else, or the variable cannot hold the number: the decoder reports that.
func decodeInt(v any, data []byte) bool {
	h := head(data)
	n := h.int
	if h.kind == headUint && h.uint <= math.MaxInt64 {
		n = int64(h.uint)
	} else if h.kind != headInt {
		return false
	}
	switch p := v.(type) {
	case *int64:
		*p = n
	case *int:
		if n < math.MinInt || n > math.MaxInt {
			return false
		}
		*p = int(n)
	default:
		return false
	}
	return true
}

// decodeError names the type of the variable that the pointer v points to.
func decodeError(v any, err error) error {
	return fmt.Errorf("dohost: decode %v: %w", reflect.TypeOf(v).Elem(), err)
}

// flatTypes remembers which types share no memory when they are copied.
var flatTypes sync.Map // reflect.Type to bool

// flat reports whether a copy of the variable that the pointer v points to is independent of it.
func flat(v any) bool {
	switch v.(type) {
	case *struct{}, *bool, *string, *int, *int64, *uint64, *float64: // which are frequent
		return true
	}
	t := reflect.TypeOf(v).Elem()
	if known, ok := flatTypes.Load(t); ok {
		return known.(bool)
	}
	f := isFlat(t)
	flatTypes.Store(t, f)
	return f
}

func isFlat(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Chan, reflect.Func, reflect.Interface, reflect.UnsafePointer:
		return false
	case reflect.Array:
		return isFlat(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			if !isFlat(f.Type) {
				return false
			}
		}
	}
	return true
}

// copied is a value on its way from one object to another: itself if it is flat,
// else its encoding.
type copied[T any] struct {
	value T
	data  []byte // nil: value is the original
}

// copyOf takes a copy of v, which may change afterwards.
func copyOf[T any](v T, byReference bool) (copied[T], error) {
	if byReference || flat((*T)(nil)) {
		return copied[T]{value: v}, nil
	}
	data, err := encode(v)
	return copied[T]{data: data}, err
}

// get returns the receiver's own value.
func (c copied[T]) get() (T, error) {
	if c.data == nil {
		return c.value, nil
	}
	return decode[T](c.data)
}
