package runtime

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/alarm"
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
		if field.Name == "Failed" || field.Name == "Service" { // of Service see serviceReports
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
		f.Call(args)
		if called != before+1 {
			t.Errorf("Listener.%s was called %d times, want 1", field.Name, called-before)
		}
	}
}

// Two calls of a function hang, and one of them returns: later callers still do not wait.
func TestHostFuncIsNotCalledWhileOneOfItsCallsHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		calls := 0
		quit := []chan struct{}{make(chan struct{}), make(chan struct{})}
		c := &hostFunc{host: h, name: "test"}
		call := func(f func()) (took time.Duration) {
			begun := time.Now()
			c.call(f)
			return time.Since(begun)
		}
		for _, q := range quit {
			go call(func() { <-q })
		}
		time.Sleep(2 * hostFuncTimeout)
		for i, q := range quit {
			if took := call(func() { calls++ }); took != 0 || calls != 0 {
				t.Errorf("with %d calls that hang: the function was called %d times, after %v", len(quit)-i, calls, took)
			}
			close(q)
			synctest.Wait()
		}
		if call(func() { calls++ }); calls != 1 {
			t.Errorf("after the calls have returned: the function was called %d times", calls)
		}
	})
}

// Each call of the Listener takes three seconds, and no write of an object waits for one.
func TestListenerThatIsSlowDelaysNoWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		with := Class{Name: "counter", New: newCounter, Alarm: func(context.Context, any, alarm.Info) error { return nil }}
		h := open(t, fs, Options{}, with)
		for _, name := range []string{"a", "b", "c"} {
			setAlarm(t, h, name, time.Minute)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		var calls atomic.Int32
		slow := func() {
			calls.Add(1)
			time.Sleep(3 * time.Second)
		}
		h = open(t, fs, Options{Store: objectstore.Options{ReserveBytes: 1000}, Listener: Listener{
			AlarmParked: func(ParkedAlarm) { slow() }, Space: func(objectstore.DiskSpace) { slow() },
		}}, Class{Name: "counter", New: newCounter}) // has no handler, so all three are parked
		for _, step := range []struct {
			what  string
			do    func()
			calls int32 // of the Listener, up to now
			full  bool
		}{
			{"three alarms are parked", func() { time.Sleep(time.Minute); synctest.Wait() }, 3, false},
			{"the disk is full", func() { fs.SetFree(999); time.Sleep(2 * time.Second) }, 4, true},
			{"the disk has space", func() { fs.SetFree(1000); time.Sleep(10 * time.Second) }, 5, false},
		} {
			step.do()
			begun := time.Now()
			_, err := add(t.Context(), h, "other", 1)
			if took := time.Since(begun); took > time.Second || errors.Is(err, objectstore.ErrNoSpace) != step.full {
				t.Errorf("%s: a write took %v: %v", step.what, took, err)
			}
			synctest.Wait()
			if n := calls.Load(); n != step.calls {
				t.Errorf("%s: the Listener was called %d times, want %d", step.what, n, step.calls)
			}
		}
		time.Sleep(time.Minute) // until the last call has returned
	})
}

// Close waits for reports that are under way.
func TestCloseWaitsForTheLastReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		var full []bool
		h := open(t, fs, Options{Store: objectstore.Options{ReserveBytes: 1000}, Listener: Listener{
			Space: func(d objectstore.DiskSpace) { time.Sleep(time.Second / 4); full = append(full, d.Full) },
		}})
		for _, free := range []uint64{999, 1000, 999} {
			fs.SetFree(free)
			time.Sleep(2 * time.Second)
			_, _ = add(t.Context(), h, "a", 1)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		if want := []bool{true, false, true}; !slices.Equal(full, want) {
			t.Errorf("reports %v, want %v", full, want)
		}
	})
}
