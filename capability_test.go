package dohost_test

import (
	"reflect"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/runtime"
)

// An object that hands out its Storage, or a Stub, hands out nothing else: no conversion leads from one public type to
// another, or to the runtime.
func TestPublicTypesDoNotConvertToOthers(t *testing.T) {
	types := []reflect.Type{
		reflect.TypeFor[*dohost.State](), reflect.TypeFor[*dohost.Storage](), reflect.TypeFor[*dohost.Host](),
		reflect.TypeFor[*dohost.Socket](), reflect.TypeFor[*runtime.State](), reflect.TypeFor[*runtime.Host](),
	}
	checked := 0
	for _, from := range types {
		for _, to := range types {
			if from != to {
				checked++
				if from.ConvertibleTo(to) {
					t.Errorf("%v converts to %v", from, to)
				}
			}
		}
	}
	if checked != 30 {
		t.Errorf("%d pairs checked, want 30", checked)
	}
	for _, ty := range types[:4] {
		if _, has := ty.MethodByName("Runtime"); has {
			t.Errorf("%v has the method Runtime", ty)
		}
		for i := range ty.Elem().NumField() {
			if f := ty.Elem().Field(i); f.IsExported() {
				t.Errorf("%v has the exported field %s", ty, f.Name)
			}
		}
	}
}
