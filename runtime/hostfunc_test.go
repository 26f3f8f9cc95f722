package runtime

import (
	"reflect"
	"testing"

	"github.com/dohost/dohost/objectstore"
)

func TestListenerHasNoUnguardedFunction(t *testing.T) {
	h := open(t, objectstore.NewMemFS(), Options{})
	var l Listener
	called := 0
	for _, f := range reflect.ValueOf(&l).Elem().Fields() {
		f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value {
			called++
			panic("bad")
		}))
	}
	l.Failed = nil // it would get the panics of the others
	v := reflect.ValueOf(h.guarded(l)).Elem()
	for field, f := range v.Fields() {
		if field.Name == "Failed" {
			continue
		}
		if f.IsNil() {
			t.Errorf("Listener.%s is dropped", field.Name)
			continue
		}
		args := make([]reflect.Value, f.Type().NumIn())
		for i := range args {
			args[i] = reflect.Zero(f.Type().In(i))
		}
		before := called
		if f.Type().IsVariadic() {
			f.CallSlice(args)
		} else {
			f.Call(args)
		}
		if called != before+1 {
			t.Errorf("Listener.%s was called %d times, want 1", field.Name, called-before)
		}
	}
}
