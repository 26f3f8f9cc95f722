package dohost_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/examples/counter"
	"github.com/dohost/dohost/objectstore"
)

// exported returns the export of a counter with the value n.
func exported(t *testing.T, h *dohost.Host, n int) []byte {
	t.Helper()
	from := counter.Counters.Get(h, "original")
	if _, err := dohost.Call(t.Context(), from, (*counter.Counter).Add, n); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := h.Export(t.Context(), from.ID(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func total(t *testing.T, s dohost.Stub[counter.Counter]) int {
	t.Helper()
	n, err := dohost.Call(t.Context(), s, (*counter.Counter).Add, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestImportReplacesAnIdleIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil, counter.Class())
		export := exported(t, h, 7)
		s := counter.Counters.Get(h, "copy")
		if err := s.Do(t.Context(), func(context.Context, *counter.Counter) error { return nil }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // an answer leaves before its event has ended
		if !h.IsLive(s.ID()) {
			t.Fatal("the object is not in memory")
		}
		if err := h.Import(t.Context(), s.ID(), bytes.NewReader(export)); err != nil {
			t.Fatal(err)
		}
		if n := total(t, s); n != 7 {
			t.Fatalf("the copy stands at %d", n)
		}
	})
}

func TestImportRefusesAnObjectInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil, counter.Class())
		export := exported(t, h, 7)
		s := counter.Counters.Get(h, "copy")
		proceed, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- s.Do(t.Context(), func(ctx context.Context, c *counter.Counter) error {
				if _, _, err := dohost.Recv(ctx, proceed); err != nil {
					return err
				}
				_, err := c.Add(ctx, 1)
				return err
			})
		}()
		synctest.Wait()
		if err := h.Import(t.Context(), s.ID(), bytes.NewReader(export)); !errors.Is(err, objectstore.ErrExists) {
			t.Fatalf("imported into a running object: %v", err)
		}
		close(proceed)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if n := total(t, s); n != 1 {
			t.Fatalf("the object stands at %d", n)
		}
	})
}

func TestImportDelaysEventsOfItsObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil, counter.Class())
		export := exported(t, h, 7)
		s := counter.Counters.Get(h, "copy")
		r, w := io.Pipe()
		imported, called := make(chan error, 1), make(chan int, 1)
		go func() { imported <- h.Import(t.Context(), s.ID(), r) }()
		synctest.Wait()
		go func() { called <- total(t, s) }()
		synctest.Wait()
		select {
		case n := <-called:
			t.Fatalf("a call ran during the import and saw %d", n)
		default:
		}
		if _, err := w.Write(export); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if err := <-imported; err != nil {
			t.Fatal(err)
		}
		if n := <-called; n != 7 {
			t.Fatalf("the call saw %d", n)
		}
	})
}

func TestImportIntoAClosedHostFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil, counter.Class())
		export := exported(t, h, 7)
		h.Close()
		err := h.Import(t.Context(), counter.Counters.Get(h, "copy").ID(), bytes.NewReader(export))
		if !errors.Is(err, dohost.ErrClosed) {
			t.Fatal(err)
		}
	})
}

func TestSetAlarmByOperatorRefusesTimesOutOfRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil, notebookClass(make(chan int)))
		id := notebooks.Get(h, "home").ID()
		year := func(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }
		for _, at := range []time.Time{{}, year(1969), year(10_000), time.Unix(1<<50, 0)} {
			err := h.SetAlarm(t.Context(), id, at)
			_, bad := errors.AsType[*dohost.ArgumentError](err)
			if e, ok := errors.AsType[*dohost.Error](err); !bad || !ok || e.Outcome != dohost.OutcomeNotRun {
				t.Errorf("%v: %v", at, err)
			}
		}
		if err := h.SetAlarm(t.Context(), id, year(9999)); err != nil {
			t.Error(err)
		}
		if err := h.DeleteAlarm(t.Context(), id); err != nil {
			t.Error(err)
		}
	})
}

func TestInspectNeitherWakesNorKeepsObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, &dohost.Options{IdleAfter: 10 * time.Second}, counter.Class())
		s := counter.Counters.Get(h, "a")
		if n := total(t, s); n != 0 {
			t.Fatal(n)
		}
		look := func() (live int) {
			synctest.Wait() // an event ends a little after it has answered
			info, err := h.Inspect(t.Context(), s.ID())
			if err != nil {
				t.Fatal(err)
			}
			for range h.Live() {
				live++
			}
			if pins := h.Pins(s.ID()); len(pins) > 0 || info.Live != (live > 0) || info.Live != h.IsLive(s.ID()) || h.LiveCount() != live {
				t.Fatalf("%+v, %d live, pins %v", info, live, pins)
			}
			return live
		}
		if look() != 1 {
			t.Fatal("not in memory")
		}
		for range 25 { // at most twice IdleAfter, and the sweeper's second
			time.Sleep(time.Second)
			look()
		}
		if look() != 0 {
			t.Fatal("looking has kept it in memory")
		}
	})
}
