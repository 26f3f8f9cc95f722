package dohost

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
)

// checkJSON returns an error if JSON can carry no argument, or no result, of a type.
func checkJSON(t reflect.Type, decode bool) error {
	c := jsonCheck{decode: decode, seen: map[reflect.Type]bool{}}
	bad := c.bad(t)
	if bad == nil {
		return nil
	}
	inside := ""
	if bad != t {
		inside = fmt.Sprintf(" in %v", t)
	}
	if decode {
		return fmt.Errorf("no argument of type %v%s can be decoded from JSON", bad, inside)
	}
	return fmt.Errorf("no result of type %v%s can be encoded as JSON", bad, inside)
}

// jsonCheck looks for a type that package encoding/json refuses, also as the element of a pointer, slice, array or map.
// It does not look into structs: a field that is refused may be shadowed, left out or nil.
type jsonCheck struct {
	decode bool
	seen   map[reflect.Type]bool
}

var (
	jsonMarshalers   = []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()}
	jsonUnmarshalers = []reflect.Type{reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]()}
)

// custom reports whether the type encodes or decodes itself.
func (c *jsonCheck) custom(t reflect.Type) bool {
	own := jsonMarshalers
	if c.decode {
		own = jsonUnmarshalers
	}
	for _, i := range own {
		if t.Implements(i) || reflect.PointerTo(t).Implements(i) {
			return true
		}
	}
	return false
}

// bad returns the type in t that is refused, or nil.
func (c *jsonCheck) bad(t reflect.Type) reflect.Type {
	if c.seen[t] || t.Kind() != reflect.Interface && c.custom(t) {
		return nil
	}
	c.seen[t] = true
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return t
	case reflect.Interface:
		if c.decode && t.NumMethod() > 0 {
			return t
		}
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return c.bad(t.Elem())
	case reflect.Map:
		switch k := t.Key(); k.Kind() {
		case reflect.String, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
			reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		default:
			if !c.custom(k) {
				return t
			}
		}
		return c.bad(t.Elem())
	}
	return nil
}
