package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// loop is an object with an alarm that does a step and sets the next alarm. It never
// awaits, so each step happens exactly once.
type loop struct {
	st *dohost.State
	w  *runRecord
}

// progress is the state of a loop.
type progress struct {
	Step, Total int
	Every       time.Duration
	Armed       int64 // due time of the next step, in milliseconds
	Failed      int   // sum of the attempts of all deliveries
}

var loops dohost.Namespace[loop] = "loop"

// begin starts the loop, unless it has started.
func (l *loop) begin(ctx context.Context, p progress) (none, error) {
	_, begun, err := dohost.Get[progress](ctx, l.st.Storage(), "progress")
	if err != nil || begun {
		return none{}, err
	}
	return none{}, l.arm(ctx, p, time.Now().Add(p.Every))
}

// arm sets the alarm and stores its time.
func (l *loop) arm(ctx context.Context, p progress, at time.Time) error {
	if now := time.Now(); !at.After(now) {
		at = now.Truncate(time.Millisecond) // as SetAlarm does
	}
	p.Armed = at.Add(time.Millisecond - 1).UnixMilli()
	return errors.Join(l.st.SetAlarm(ctx, at), dohost.Put(ctx, l.st.Storage(), "progress", p))
}

func (l *loop) onAlarm(ctx context.Context, a dohost.AlarmInfo) error {
	l.w.count("run")
	if time.Now().Before(a.Scheduled) {
		l.w.faultf("the alarm of %v fires too early", a.Scheduled)
	}
	p, _, err := dohost.Get[progress](ctx, l.st.Storage(), "progress")
	if err != nil {
		return err
	}
	if at := a.Scheduled.UnixMilli(); at < p.Armed || at > p.Armed && !l.w.mayPostpone() {
		l.w.faultf("step %d: the alarm of %v fired, the set alarm is %v", p.Step+1, a.Scheduled.UnixMilli(), p.Armed)
	}
	p.Step++
	p.Failed += a.Attempt
	if err := dohost.Put(ctx, l.st.Storage(), fmt.Sprintf("step/%d", p.Step), true); err != nil {
		return err
	}
	if p.Step < p.Total {
		return l.arm(ctx, p, a.Scheduled.Add(p.Every))
	}
	return dohost.Put(ctx, l.st.Storage(), "progress", p)
}

// state returns a loop's progress, and the number of its stored steps.
func (l *loop) state(ctx context.Context, _ none) (a struct {
	Progress progress
	Steps    int
}, err error) {
	a.Progress, _, err = dohost.Get[progress](ctx, l.st.Storage(), "progress")
	steps, err2 := dohost.List[bool](ctx, l.st.Storage(), &dohost.ListOptions{Prefix: "step/"})
	a.Steps = len(steps)
	return a, errors.Join(err, err2)
}

func newAlarmLoop() dohosttest.Scenario   { return newLoop(progress{Total: 4, Every: time.Second}) }
func newAlarmForNow() dohosttest.Scenario { return newLoop(progress{Total: 4}) }

func newLoop(p progress) dohosttest.Scenario {
	w := new(runRecord)
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(loops, func(_ context.Context, st *dohost.State) (*loop, error) {
			return &loop{st, w}, nil
		}, &dohost.Handlers[loop]{OnAlarm: (*loop).onAlarm})},
		Options: dohost.Options{Listener: w.listener()},
		Places:  objectPlaces,
		Reset:   w.reset,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			_, err := retryCall(ctx, loops.Get(h, "a"), (*loop).begin, p)
			return err
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			endings := w.endings(loops.Get(h, "a").ID())
			a, err := dohost.Call(ctx, loops.Get(h, "a"), (*loop).state, none{})
			err = errors.Join(err, w.err(),
				differ("the last step", a.Progress.Step, p.Total),
				differ("steps that were noted", a.Steps, p.Total))
			if a.Progress.Failed > 0 {
				err = errors.Join(err, fmt.Errorf("%d runs are taken for failed ones", a.Progress.Failed))
			}
			if runs := w.countOf("run"); runs > p.Total+endings {
				err = errors.Join(err, fmt.Errorf("the handler ran %d times for %d steps and %d endings", runs, p.Total, endings))
			}
			return err
		},
	}
}
