package dohost

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// msgpack reduces an integer that a type cannot hold modulo the size of the type, without
// an error. So decode walks over the encoding once more, guided by the type, and compares
// each number with the range of its type.

// shape describes the places of numbers in the encoding of a type. The nil shape has none.
type shape struct {
	kind   reflect.Kind // Int, Uint or Float32 or Float64 for a number; Slice, Map or Struct
	bits   int          // of a number
	typ    reflect.Type // of a number
	key    *shape       // of a map
	elem   *shape       // of a map or slice
	fields []shapeField // of a struct, in the order of their encoding
	names  map[string]int
}

type shapeField struct {
	name  string
	shape *shape
}

// shapes remembers the shapes of types.
var shapes sync.Map // reflect.Type to *shape

// shapeOf returns the shape of the type that the pointer v points to.
func shapeOf(v any) *shape {
	switch v.(type) {
	case *struct{}, *bool, *string, *[]byte, *[]string, *time.Time: // which are frequent
		return nil
	}
	t := reflect.TypeOf(v).Elem()
	if known, ok := shapes.Load(t); ok {
		return known.(*shape)
	}
	s := make(shapeBuilder).of(t)
	if !s.hasNumbers(make(map[*shape]bool)) {
		s = nil
	}
	shapes.Store(t, s)
	return s
}

// hasNumbers reports whether s contains a number. seen are the shapes already visited.
func (s *shape) hasNumbers(seen map[*shape]bool) bool {
	if s == nil || seen[s] {
		return false
	}
	seen[s] = true
	return s.typ != nil || s.key.hasNumbers(seen) || s.elem.hasNumbers(seen) ||
		slices.ContainsFunc(s.fields, func(f shapeField) bool { return f.shape.hasNumbers(seen) })
}

// shapeBuilder has the shapes of the types that are being visited, because types may be
// recursive.
type shapeBuilder map[reflect.Type]*shape

var ownDecoders = []reflect.Type{
	reflect.TypeFor[msgpack.CustomDecoder](), reflect.TypeFor[msgpack.Unmarshaler](),
	reflect.TypeFor[encoding.BinaryUnmarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
}

// decodesItself reports whether t has methods of its own for decoding msgpack.
func decodesItself(t reflect.Type) bool {
	return slices.ContainsFunc(ownDecoders, func(i reflect.Type) bool {
		return t.Implements(i) || reflect.PointerTo(t).Implements(i)
	})
}

func (c shapeBuilder) of(t reflect.Type) *shape {
	if known, ok := c[t]; ok {
		return known
	}
	if decodesItself(t) {
		return nil
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &shape{kind: reflect.Int, bits: t.Bits(), typ: t}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &shape{kind: reflect.Uint, bits: t.Bits(), typ: t}
	case reflect.Float32, reflect.Float64:
		return &shape{kind: t.Kind(), bits: t.Bits(), typ: t}
	case reflect.Pointer:
		return c.of(t.Elem())
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return nil // bytes
		}
		return c.container(t, reflect.Slice, nil)
	case reflect.Map:
		return c.container(t, reflect.Map, t.Key())
	case reflect.Struct:
		return c.record(t)
	}
	return nil
}

// container returns the shape of a slice, an array or a map.
func (c shapeBuilder) container(t reflect.Type, kind reflect.Kind, key reflect.Type) *shape {
	s := &shape{kind: kind}
	c[t] = s
	if key != nil {
		s.key = c.of(key)
	}
	if s.elem = c.of(t.Elem()); s.elem == nil && s.key == nil {
		c[t] = nil
		return nil
	}
	return s
}

// record returns the shape of a struct.
func (c shapeBuilder) record(t reflect.Type) *shape {
	s := &shape{kind: reflect.Struct, names: make(map[string]int)}
	c[t] = s
	for f := range t.Fields() {
		tag := strings.Split(f.Tag.Get("msgpack"), ",")
		if tag[0] == "-" || f.PkgPath != "" && !f.Anonymous {
			continue
		}
		of := c.of(f.Type)
		if f.Anonymous && c.inlines(s, f.Type, of, tag) {
			for _, x := range of.fields {
				s.add(x.name, x.shape)
			}
			continue
		}
		name := tag[0]
		if name == "" {
			name = f.Name
		}
		s.add(name, of)
		for _, option := range tag[1:] {
			if alias, ok := strings.CutPrefix(option, "alias:"); ok {
				s.names[alias] = len(s.fields) - 1
			}
		}
	}
	return s
}

// inlines reports whether msgpack encodes the fields of an embedded struct as fields of the struct s that embeds it:
// unless they shadow others, or a tag forbids it.
func (c shapeBuilder) inlines(s *shape, t reflect.Type, of *shape, tag []string) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if of == nil || t.Kind() != reflect.Struct || slices.Contains(tag, "noinline") {
		return false
	}
	return slices.Contains(tag, "inline") || !slices.ContainsFunc(of.fields, func(f shapeField) bool {
		_, taken := s.names[f.name]
		return taken
	})
}

func (s *shape) add(name string, of *shape) {
	s.names[name] = len(s.fields)
	s.fields = append(s.fields, shapeField{name, of})
}

// rangeError is a number that its type cannot hold.
type rangeError struct {
	path  string // to the number, from the value that is decoded
	value string
	typ   reflect.Type
}

// Error names the place, if it is within the value, the number and the type.
func (m *rangeError) Error() string {
	text := fmt.Sprintf("%s does not fit %s", m.value, m.typ)
	if path := strings.TrimPrefix(m.path, "."); path != "" {
		text = path + ": " + text
	}
	return text
}

// within adds a step to the path of a rangeError.
func (m *rangeError) within(format string, arg any) *rangeError {
	if m != nil {
		m.path = fmt.Sprintf(format, arg) + m.path
	}
	return m
}

// fit looks at a value that msgpack has decoded, and returns the bytes after it. It
// returns nil at an encoding that it does not know: nothing after it is looked at.
func (s *shape) fit(b []byte) (rest []byte, m *rangeError) {
	if len(b) == 0 {
		return nil, nil
	}
	switch c := b[0]; {
	case c < fixedMap, c == msgpcode.Nil, c == msgpcode.False, c == msgpcode.True:
		return b[1:], nil // 0 to 127 fit every type, and the others are no numbers
	case s == nil:
		return skipped(b, 1), nil
	case c == msgpcode.Int64 && s.kind == reflect.Int && s.bits == 64 && len(b) > 8:
		return b[9:], nil // any int64 fits
	}
	h := head(b)
	switch {
	case h.size == 0:
		return nil, nil
	case s.kind == reflect.Slice && h.kind == headList:
		return s.fitList(b[h.size:], h.n)
	case s.kind == reflect.Map && h.kind == headMap:
		return s.fitMap(b[h.size:], h.n)
	case s.kind == reflect.Struct && h.kind == headMap:
		return s.fitFields(b[h.size:], h.n)
	case s.kind == reflect.Struct && h.kind == headList:
		b = b[h.size:]
		for i := 0; i < h.n && i < len(s.fields); i++ {
			if b, m = s.fields[i].shape.fit(b); m != nil {
				return nil, m.within(".%s", s.fields[i].name)
			}
		}
		return b, nil
	case h.kind == headInt || h.kind == headUint:
		return b[h.size:], s.fitNumber(h)
	}
	return skipped(b, 1), nil
}

func (s *shape) fitList(b []byte, n int) (rest []byte, m *rangeError) {
	for i := 0; i < n && b != nil; i++ {
		if b, m = s.elem.fit(b); m != nil {
			return nil, m.within("[%d]", i)
		}
	}
	return b, nil
}

func (s *shape) fitMap(b []byte, n int) (rest []byte, m *rangeError) {
	for i := 0; i < n && b != nil; i++ {
		key := b
		if b, m = s.key.fit(b); m != nil {
			return nil, m.within("%s", "[a key]")
		}
		value := b
		if b, m = s.elem.fit(b); m != nil {
			return nil, m.within("[%s]", keyText(key[:len(key)-len(value)]))
		}
	}
	return b, nil
}

// keyText formats the key of a map for an error.
func keyText(b []byte) string {
	h := head(b)
	switch h.kind {
	case headBytes:
		return fmt.Sprintf("%.64q", b[h.size:])
	case headInt, headUint:
		return h.text()
	}
	return "..."
}

// fitFields expects the fields in the order of the type.
func (s *shape) fitFields(b []byte, n int) (rest []byte, m *rangeError) {
	next := 0
	for i := 0; i < n && b != nil; i++ {
		var name []byte
		if text := short(b); text > 0 {
			name, b = b[1:text], b[text:]
		} else if h := head(b); h.kind == headBytes && h.n <= len(b)-h.size {
			name, b = b[h.size:h.size+h.n], b[h.size+h.n:]
		} else {
			return nil, nil
		}
		at, ok := s.field(name, next)
		if !ok {
			b = skipped(b, 1)
			continue
		}
		next = at + 1
		if b, m = s.fields[at].shape.fit(b); m != nil {
			return nil, m.within(".%s", s.fields[at].name)
		}
	}
	return b, nil
}

// maxOmitted is the number of fields that field looks at before it looks the name up: encodings leave
// out fields with omitempty.
const maxOmitted = 3

// field returns the index of the field with a name, which is probably next.
func (s *shape) field(name []byte, next int) (at int, ok bool) {
	for at = next; at < len(s.fields) && at <= next+maxOmitted; at++ {
		if s.fields[at].name == string(name) {
			return at, true
		}
	}
	at, ok = s.names[string(name)]
	return at, ok
}

// fitNumber compares an integer with the range of its type. A float holds an integer
// if it is exactly that.
func (s *shape) fitNumber(h header) *rangeError {
	fits := true
	switch {
	case s.kind == reflect.Int && h.kind == headInt:
		fits = h.int>>(s.bits-1) == 0 || h.int>>(s.bits-1) == -1
	case s.kind == reflect.Int:
		fits = h.uint>>(s.bits-1) == 0
	case s.kind == reflect.Uint && h.kind == headInt:
		fits = h.int >= 0 && uint64(h.int)>>(s.bits-1)>>1 == 0
	case s.kind == reflect.Uint:
		fits = h.uint>>(s.bits-1)>>1 == 0
	case s.kind == reflect.Float32 && h.kind == headInt:
		fits = exact(float64(float32(h.int)), h.int)
	case s.kind == reflect.Float64 && h.kind == headInt:
		fits = exact(float64(h.int), h.int)
	case s.kind == reflect.Float32 || s.kind == reflect.Float64:
		fits = h.uint < 1<<63 && (&shape{kind: s.kind}).fitNumber(header{kind: headInt, int: int64(h.uint)}) == nil
	}
	if fits {
		return nil
	}
	return &rangeError{value: h.text(), typ: s.typ}
}

// exact reports whether f is n. 2^63 is the only float that rounding makes too large.
func exact(f float64, n int64) bool { return f < math.MaxInt64 && int64(f) == n }
