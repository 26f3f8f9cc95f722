package ledger

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

var (
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

var errZone = errors.New("a time is not in UTC: equal times of different zones would be different arguments")

// checkComplete checks that the JSON of a value has all of it, so that different values have different forms. encoding/json
// omits fields that are not exported, that have the tag "-", or that another field hides. It also checks that equal times
// have one form. The value has been encoded, so it has no cycle.
func checkComplete(v reflect.Value) error {
	if !v.IsValid() {
		return nil
	}
	t := v.Type()
	if t == reflect.TypeFor[time.Time]() {
		if v.Interface().(time.Time).Location() != time.UTC {
			return errZone
		}
		return nil
	}
	if t.Implements(marshaler) || t.Implements(textMarshaler) {
		if t.Kind() == reflect.Pointer && !v.IsNil() { // also one of a type that implements it without a pointer
			return checkComplete(v.Elem())
		}
		return nil
	}
	if v.CanAddr() && (reflect.PointerTo(t).Implements(marshaler) || reflect.PointerTo(t).Implements(textMarshaler)) {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface:
		return checkComplete(v.Elem())
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() < reflect.Array { // such as bytes, which may be many
			return nil
		}
		for i := range v.Len() {
			if err := checkComplete(v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if err := checkComplete(it.Value()); err != nil {
				return err
			}
		}
	case reflect.Struct:
		return checkFields(v, map[string]bool{})
	}
	return nil
}

// checkFields is checkComplete for the fields of a struct. names are the names of the members so far.
func checkFields(v reflect.Value, names map[string]bool) error {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Tag.Get("json") == "-":
			return fmt.Errorf("the field %s of %v is not part of its JSON", f.Name, t)
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct && !f.Type.Implements(marshaler) && !f.Type.Implements(textMarshaler):
			if err := checkFields(v.Field(i), names); err != nil {
				return err
			}
			continue
		case !f.IsExported():
			return fmt.Errorf("the field %s of %v is not exported", f.Name, t)
		}
		if name == "" {
			name = f.Name
		}
		if names[name] {
			return fmt.Errorf("two fields of %v have the name %q in its JSON", t, name)
		}
		names[name] = true
		if err := checkComplete(v.Field(i)); err != nil {
			return err
		}
	}
	return nil
}
