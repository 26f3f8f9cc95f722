package dohost_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/examples/counter"
	"github.com/dohost/dohost/runtime"
)

// An object that hands out its Storage, or a Stub, hands out nothing else: no conversion leads from one public type to
// another, or to the runtime.
func TestTypesOfTheAPIDoNotConvertToOthers(t *testing.T) {
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

// zeroKey calls f with the zero value of a type that the caller need not name, and returns the panic.
func zeroKey[C, K, R any](f func(C, K) R, c C) (r R, panicked any) {
	defer func() { panicked = recover() }()
	var k K
	return f(c, k), nil
}

// A program that does not import internal/seal can still call a function with a seal.Key: with the Key's zero value.
func TestContextOfAnEventDoesNotLeadToTheEngine(t *testing.T) {
	h := open(t, nil, counter.Class())
	err := counter.Counters.Get(h, "alice").Do(t.Context(), func(ctx context.Context, _ *counter.Counter) error {
		st, panicked := zeroKey(runtime.StateOf, ctx)
		if text, _ := panicked.(string); st != nil || !strings.Contains(text, "from outside of the module") {
			t.Errorf("StateOf = %v, panic %v", st, panicked)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// An Entry with a function of the program could replace the Class that Bind makes.
func TestFunctionsDoNotConvertToEntries(t *testing.T) {
	type object struct{}
	if entry := reflect.TypeFor[dohost.Entry[object]](); reflect.TypeFor[func(*dohost.Class)]().ConvertibleTo(entry) {
		t.Errorf("a function converts to %v", entry)
	}
}
