package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost"
)

// shapesObject has a method of each shape that the Call functions and adapters take.
type shapesObject struct {
	n   int
	err error
}

var shapesObjects dohost.Namespace[shapesObject] = "tally"

func (t *shapesObject) Set(_ context.Context, n int) error { t.n = n; return t.err }
func (t *shapesObject) Value(context.Context) (int, error) { return t.n, t.err }
func (t *shapesObject) Double(context.Context) error       { t.n *= 2; return t.err }
func (t *shapesObject) Add(_ context.Context, n int) (int, error) {
	t.n += n
	return t.n, t.err
}

func shapesClass(err error) dohost.Class {
	return dohost.Bind(shapesObjects,
		func(context.Context, *dohost.State) (*shapesObject, error) { return &shapesObject{err: err}, nil }, nil,
		dohost.Expose("add", (*shapesObject).Add),
		dohost.Expose("set", dohost.NoResult((*shapesObject).Set)),
		dohost.Expose("value", dohost.NoArg((*shapesObject).Value)),
		dohost.Expose("double", dohost.Bare((*shapesObject).Double)))
}

func TestCallOfMethodsWithoutArgumentOrResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shapesObjects.Get(open(t, nil, shapesClass(nil)), "a")
		err := errors.Join(dohost.CallNoResult(t.Context(), s, (*shapesObject).Set, 4), dohost.CallBare(t.Context(), s, (*shapesObject).Double))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := dohost.CallNoArg(t.Context(), s, (*shapesObject).Value); err != nil || n != 8 {
			t.Errorf("the value is %d, %v; want 8", n, err)
		}
	})
}

func TestCallErrorNamesMethodsWithoutArgumentOrResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		s := shapesObjects.Get(open(t, nil, shapesClass(broken)), "a")
		_, value := dohost.CallNoArg(t.Context(), s, (*shapesObject).Value)
		for op, err := range map[string]error{
			"Set":    dohost.CallNoResult(t.Context(), s, (*shapesObject).Set, 4),
			"Double": dohost.CallBare(t.Context(), s, (*shapesObject).Double),
			"Value":  value,
		} {
			e, ok := errors.AsType[*dohost.Error](err)
			if !ok || e.Op != op || e.Outcome != dohost.OutcomeRan || !errors.Is(err, broken) {
				t.Errorf("%s: %#v", op, err)
			}
		}
	})
}

func TestInvokeOfMethodsWithoutArgumentOrResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil, shapesClass(nil))
		for _, c := range []struct{ method, arg, want string }{
			{"set", "4", "{}"},
			{"double", "", "{}"},
			{"double", "null", "{}"},
			{"value", "", "16"},
			{"value", `{"ignored":1}`, "16"},
		} {
			out, err := h.Invoke(t.Context(), shapesObjects.Get(h, "a").ID(), c.method, []byte(c.arg))
			if err != nil || string(out) != c.want {
				t.Errorf("%s(%s) = %s, %v; want %s", c.method, c.arg, out, err, c.want)
			}
		}
		_, err := h.Invoke(t.Context(), shapesObjects.Get(h, "a").ID(), "value", []byte("7"))
		if _, ok := errors.AsType[*dohost.ArgumentError](err); !ok {
			t.Errorf("value(7): %v, want an ArgumentError", err)
		}
	})
}

func TestExposeReportsNilMethodsOfEachShape(t *testing.T) {
	construct := func(context.Context, *dohost.State) (*shapesObject, error) { return &shapesObject{}, nil }
	for name, e := range map[string]dohost.Entry[shapesObject]{
		"no arg":    dohost.Expose("get", dohost.NoArg[shapesObject, int](nil)),
		"no result": dohost.Expose("get", dohost.NoResult[shapesObject, int](nil)),
		"bare":      dohost.Expose("get", dohost.Bare[shapesObject](nil)),
	} {
		_, err := dohost.Open(t.TempDir(), nil, dohost.Bind(shapesObjects, construct, nil, e))
		if want := `dohost: class "tally": Expose of "get" without a method`; fmt.Sprint(err) != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

func TestEntryOfOneClassDoesNotConvertToAnother(t *testing.T) {
	if reflect.TypeFor[dohost.Entry[shapesObject]]().ConvertibleTo(reflect.TypeFor[dohost.Entry[httpObject]]()) {
		t.Error("an entry converts")
	}
}
