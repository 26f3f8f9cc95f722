package dohosttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
)

// fullDiskRuns runs a scenario of a call at every point and with full disks, and returns the number of runs with a full disk, and
// the failures.
func fullDiskRuns(t *testing.T, run func(ctx context.Context, th *testObject) error, check func(ctx context.Context, h *Host) error) (int, []*Failure) {
	t.Helper()
	s := doing(run)
	s.FullDisk, s.Check = true, check
	r := explore(t, s)
	if r.Runs[fullDisk] == 0 {
		t.Error("no run had a full disk")
	}
	return r.Runs[fullDisk], r.reported(t.Name())
}

func hasValue(ctx context.Context, h *Host) (ok bool, err error) {
	err = testObjects.Get(h, "a").Do(ctx, func(ctx context.Context, th *testObject) (err error) {
		_, ok, err = dohost.Get[int](ctx, th.st.Storage(), "k")
		return err
	})
	return ok, err
}

// TestScenarioFullDiskFindsALostError has a call that ignores the error of its write, and reports success.
func TestScenarioFullDiskFindsALostError(t *testing.T) {
	var acked bool
	ignores := func(ctx context.Context, th *testObject) error { _ = put(ctx, th); return nil }
	check := func(ctx context.Context, h *Host) error {
		ok, err := hasValue(ctx, h)
		if acked && !ok {
			err = errors.Join(err, errors.New("the value is lost"))
		}
		return err
	}
	s := doing(ignores)
	s.FullDisk, s.Check, s.Reset = true, check, func() { acked = false }
	s.Run = func(ctx context.Context, h *Host) error {
		_, err := dohost.Call(ctx, testObjects.Get(h, "a"), (*testObject).do, 0)
		acked = err == nil
		return err
	}
	r := explore(t, s)
	all := r.reported(t.Name())
	if len(all) != 1 || !strings.Contains(all[0].Error(), "after a full disk at the place \"storage\"") || !strings.Contains(all[0].Error(), "the value is lost") {
		t.Fatalf("the failures are %v", all)
	}
	again := replay(t, s, all[0].Replay())
	if len(again) != 1 || again[0].Text() != all[0].Text() {
		t.Errorf("the replay %q fails with %v", all[0].Replay(), again)
	}
	s.FullDisk = false
	if r := explore(t, s); len(r.Failures) > 0 || r.Runs[fullDisk] > 0 {
		t.Errorf("without full disks: %v", r.summary())
	}
}

// TestScenarioFullDiskEndsWithTheStep writes three values: one is refused, and the disk has space for the next one.
func TestScenarioFullDiskEndsWithTheStep(t *testing.T) {
	refused := map[int]int{}
	run := func(ctx context.Context, th *testObject) error {
		n := 0
		for i := range 3 {
			switch err := dohost.Put(ctx, th.st.Storage(), fmt.Sprint(i), i); {
			case errors.Is(err, dohost.ErrNoSpace):
				n++
			case err != nil:
				return err
			}
		}
		refused[n]++
		return nil
	}
	if _, failures := fullDiskRuns(t, run, func(context.Context, *Host) error { return nil }); len(failures) > 0 {
		t.Fatal(failures[0])
	}
	if refused[1] != 3 || len(refused) != 2 {
		t.Errorf("the numbers of refused writes of the runs are %v", refused)
	}
}

// TestScenarioFullDiskIsAnErrorOfClients has clients with the error of a write that found no space, and with another error.
func TestScenarioFullDiskIsAnErrorOfClients(t *testing.T) {
	pass := func(context.Context, *Host) error { return nil }
	if n, failures := fullDiskRuns(t, put, pass); len(failures) > 0 || n != 1 {
		t.Errorf("%d runs with a full disk, failures %v", n, failures)
	}
	another := func(ctx context.Context, th *testObject) error {
		if err := put(ctx, th); errors.Is(err, dohost.ErrNoSpace) {
			return errors.New("another error")
		}
		return nil
	}
	if _, failures := fullDiskRuns(t, another, pass); len(failures) != 1 || !strings.Contains(failures[0].Error(), "another error") {
		t.Errorf("the failures are %v", failures)
	}
}

// TestScenarioFullDiskDelaysAnAlarm has an alarm that writes: the host repeats it.
func TestScenarioFullDiskDelaysAnAlarm(t *testing.T) {
	run := func(ctx context.Context, th *testObject) error {
		_, armed, err := dohost.Get[bool](ctx, th.st.Storage(), "armed")
		if armed || err != nil {
			return errors.Join(err, put(ctx, th))
		}
		return dohost.Transaction(ctx, func(ctx context.Context) error {
			return errors.Join(dohost.Put(ctx, th.st.Storage(), "armed", true), th.st.SetAlarm(ctx, time.Now().Add(time.Second)))
		})
	}
	values := 0
	n, failures := fullDiskRuns(t, run, func(ctx context.Context, h *Host) error {
		var armed bool
		err := testObjects.Get(h, "a").Do(ctx, func(ctx context.Context, th *testObject) (err error) {
			_, armed, err = dohost.Get[bool](ctx, th.st.Storage(), "armed")
			return err
		})
		ok, err2 := hasValue(ctx, h)
		if ok {
			values++
		}
		if err = errors.Join(err, err2); err == nil && armed != ok {
			err = fmt.Errorf("armed: %t, the alarm has written: %t", armed, ok)
		}
		return err
	})
	if len(failures) > 0 {
		t.Fatal(failures[0])
	}
	if n < 5 || values < n {
		t.Errorf("%d runs with a full disk, the alarm has written in %d checks", n, values)
	}
}

// TestScenarioFullDiskIsSampled counts the runs of a sample.
func TestScenarioFullDiskIsSampled(t *testing.T) {
	s := doing(func(ctx context.Context, th *testObject) error {
		for i := range 20 {
			if err := dohost.Put(ctx, th.st.Storage(), fmt.Sprint(i), i); err != nil {
				return err
			}
		}
		return nil
	})
	s.FullDisk, s.Sample, s.Places = true, 10, []dohost.Place{eviction.PlaceCommit, eviction.PlaceCommitted, eviction.PlaceDurable, eviction.PlaceRelease}
	r := explore(t, s)
	if len(r.Failures) > 0 {
		t.Fatal(r.Failures[0])
	}
	ended := 0
	for _, e := range allEndings {
		ended += r.Runs[e]
	}
	if r.Runs[fullDisk] != 4 || ended != 10 {
		t.Errorf("%d runs with an ending and %d with a full disk: %s", ended, r.Runs[fullDisk], r.summary())
	}
}
