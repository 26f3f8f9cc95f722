package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// failingAlarm is an object with an alarm that fails a given number of times. An error keeps the
// handler's writes, so the record of a run exists once, like the run's outcome.
type failingAlarm struct{ st *dohost.State }

// failure selects how a failingAlarm fails.
type failure struct {
	Runs  int
	Panic bool // loses the run's record
}

// alarmRun is a run of the alarm handler.
type alarmRun struct {
	Attempt int
	At      time.Time
}

var failingAlarms dohost.Namespace[failingAlarm] = "failing-alarm"

const maxRuns = 7 // of a failing alarm

func (b *failingAlarm) begin(ctx context.Context, f failure) (none, error) {
	_, begun, err := dohost.Get[failure](ctx, b.st.Storage(), "failure")
	if err != nil || begun {
		return none{}, err
	}
	return none{}, errors.Join(b.st.SetAlarm(ctx, time.Now().Add(time.Second)), dohost.Put(ctx, b.st.Storage(), "failure", f))
}

var errAlarm = errors.New("the alarm fails")

func (b *failingAlarm) onAlarm(ctx context.Context, a dohost.AlarmInfo) error {
	f, _, err := dohost.Get[failure](ctx, b.st.Storage(), "failure")
	if err != nil {
		return err
	}
	runs, _, err := dohost.Get[[]alarmRun](ctx, b.st.Storage(), "runs")
	if err != nil {
		return err
	}
	if err := dohost.Put(ctx, b.st.Storage(), "runs", append(runs, alarmRun{a.Attempt, time.Now()})); err != nil {
		return err
	}
	switch {
	case a.Attempt >= f.Runs:
		return nil
	case f.Panic:
		panic(errAlarm)
	}
	return errAlarm
}

func (b *failingAlarm) runs(ctx context.Context, _ none) ([]alarmRun, error) {
	runs, _, err := dohost.Get[[]alarmRun](ctx, b.st.Storage(), "runs")
	return runs, err
}

// checkRuns compares runs with the expected attempts. The end of a process is not an
// attempt.
func checkRuns(runs []alarmRun, first, last int) (err error) {
	if len(runs) != last-first+1 {
		err = fmt.Errorf("%d runs are noted, of attempts %d to %d: %v", len(runs), first, last, runs)
	}
	for i, r := range runs {
		if r.Attempt != first+i {
			err = errors.Join(err, fmt.Errorf("a run is attempt %d, want %d", r.Attempt, first+i))
		}
		if i == 0 {
			continue
		}
		if due := runs[i-1].At.Add(2 * time.Second << runs[i-1].Attempt); r.At.Before(due) {
			err = errors.Join(err, fmt.Errorf("attempt %d begins %v too early", r.Attempt, due.Sub(r.At)))
		}
	}
	return err
}

// newFailingAlarms has an alarm that never succeeds, one that succeeds the second time, and one
// with a panic in its first run.
func newFailingAlarms() dohosttest.Scenario {
	w := new(runRecord)
	fails := map[string]failure{"always": {Runs: maxRuns}, "once": {Runs: 1}, "panic": {Runs: 1, Panic: true}}
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(failingAlarms, func(_ context.Context, st *dohost.State) (*failingAlarm, error) {
			return &failingAlarm{st}, nil
		}, &dohost.Handlers[failingAlarm]{OnAlarm: (*failingAlarm).onAlarm})},
		Options: dohost.Options{Listener: w.listener()},
		Places:  []dohost.Place{dohost.PlaceAlarm, dohost.PlaceCommit, dohost.PlaceCommitted, dohost.PlaceSync, dohost.PlaceDurable, dohost.PlaceOutcome},
		Reset:   w.reset,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			for _, name := range []string{"always", "once", "panic"} {
				if _, err := retryCall(ctx, failingAlarms.Get(h, name), (*failingAlarm).begin, fails[name]); err != nil {
					return err
				}
			}
			return nil
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			always, err := dohost.Call(ctx, failingAlarms.Get(h, "always"), (*failingAlarm).runs, none{})
			once, err2 := dohost.Call(ctx, failingAlarms.Get(h, "once"), (*failingAlarm).runs, none{})
			panics, err3 := dohost.Call(ctx, failingAlarms.Get(h, "panic"), (*failingAlarm).runs, none{})
			if err := errors.Join(err, err2, err3); err != nil {
				return err
			}
			return errors.Join(
				checkRuns(always, 0, maxRuns-1),
				checkRuns(once, 0, 1),
				checkRuns(panics, 1, 1))
		},
	}
}
