package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// alarmEffect is an object with an alarm that has an effect outside, and does not repeat it
// blindly: a run that finds its predecessor cut off sets the alarm for now, and the next
// run starts again.
type alarmEffect struct {
	st   *dohost.State
	bank *dohosttest.FakeService
}

var alarmEffects dohost.Namespace[alarmEffect] = "alarm-effect"

// The phases of an alarmEffect.
const (
	effectNew   = "new"
	effectBegun = "begun"
	effectDone  = "done"
)

func (v *alarmEffect) schedule(ctx context.Context, _ none) (none, error) {
	_, known, err := dohost.Get[string](ctx, v.st.Storage(), "phase")
	if err != nil || known {
		return none{}, err
	}
	return none{}, errors.Join(dohost.Put(ctx, v.st.Storage(), "phase", effectNew), v.st.SetAlarm(ctx, time.Now().Add(time.Second)))
}

func (v *alarmEffect) onAlarm(ctx context.Context, _ dohost.AlarmInfo) error {
	s := v.st.Storage()
	phase, _, err := dohost.Get[string](ctx, s, "phase")
	if err != nil || phase == effectDone {
		return err
	}
	if phase == effectBegun {
		return errors.Join(dohost.Put(ctx, s, "phase", effectNew), v.st.SetAlarm(ctx, time.Now()))
	}
	if err := dohost.Put(ctx, s, "phase", effectBegun); err != nil {
		return err
	}
	err = dohost.Await(ctx, func(ctx context.Context) error { return v.bank.Call(ctx, v.st.ID().Name, "") })
	return errors.Join(err, dohost.Put(ctx, s, "phase", effectDone))
}

func (v *alarmEffect) phase(ctx context.Context, _ none) (string, error) {
	phase, _, err := dohost.Get[string](ctx, v.st.Storage(), "phase")
	return phase, err
}

// newAlarmChanges sets an alarm again for the same moment, but only in a recovery.
func newAlarmChanges() dohosttest.Scenario {
	bank := &dohosttest.FakeService{Idempotent: true}
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(alarmEffects, func(_ context.Context, st *dohost.State) (*alarmEffect, error) {
			return &alarmEffect{st, bank}, nil
		}, &dohost.Handlers[alarmEffect]{OnAlarm: (*alarmEffect).onAlarm})},
		Services: []*dohosttest.FakeService{bank},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			_, err := retryCall(ctx, alarmEffects.Get(h, "a"), (*alarmEffect).schedule, none{})
			return err
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			phase, err := dohost.Call(ctx, alarmEffects.Get(h, "a"), (*alarmEffect).phase, none{})
			return errors.Join(err, differ("the visit", phase, effectDone), bank.RanOnce("a"))
		},
	}
}

// appointment is an object with a long alarm handler in an Exclusive section. Clients can
// put the alarm off and cancel it while the handler runs.
type appointment struct {
	st *dohost.State
	w  *runRecord
}

var appointments dohost.Namespace[appointment] = "appointment"

// set sets the alarm, and stores its time.
func (a *appointment) set(ctx context.Context, at time.Time) (none, error) {
	return none{}, errors.Join(dohost.Put(ctx, a.st.Storage(), "due", at), a.st.SetAlarm(ctx, at))
}

func (a *appointment) cancel(ctx context.Context, _ none) (none, error) {
	return none{}, a.st.Storage().DeleteAll(ctx)
}

func (a *appointment) onAlarm(ctx context.Context, _ dohost.AlarmInfo) error {
	due, set, err := dohost.Get[time.Time](ctx, a.st.Storage(), "due")
	if err != nil {
		return err
	}
	if early := time.Until(due); early > 0 || !set {
		a.w.faultf("the alarm fires %v too early (set: %t)", early, set)
	}
	err = dohost.Exclusive(ctx, func(ctx context.Context) error { return dohost.Sleep(ctx, 2*time.Second) })
	if err != nil {
		return err
	}
	return dohost.Put(ctx, a.st.Storage(), "delivered", due)
}

// contents returns the storage of an appointment.
func (a *appointment) contents(ctx context.Context, _ none) (map[string]string, error) {
	found := map[string]string{}
	items, err := dohost.List[time.Time](ctx, a.st.Storage(), nil)
	for _, it := range items {
		found[it.Key] = it.Value.UTC().Format(time.TimeOnly)
	}
	return found, err
}

func appointmentClass(w *runRecord) dohost.Class {
	return dohost.Bind(appointments, func(_ context.Context, st *dohost.State) (*appointment, error) {
		return &appointment{st, w}, nil
	}, &dohost.Handlers[appointment]{OnAlarm: (*appointment).onAlarm})
}

// newAlarmPutOff has a client that puts an alarm off while its handler runs.
func newAlarmPutOff() dohosttest.Scenario {
	w := new(runRecord)
	var until time.Time
	return dohosttest.Scenario{
		Classes: []dohost.Class{appointmentClass(w)},
		Reset:   w.reset,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			until = time.Now().Add(time.Minute)
			_, err := retryCall(ctx, appointments.Get(h, "a"), (*appointment).set, time.Now().Add(time.Second))
			if err != nil {
				return err
			}
			h.Advance(2 * time.Second)
			_, err = retryCall(ctx, appointments.Get(h, "a"), (*appointment).set, until)
			return err
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			got, err := dohost.Call(ctx, appointments.Get(h, "a"), (*appointment).contents, none{})
			at := until.UTC().Format(time.TimeOnly)
			return errors.Join(err, w.err(), differ("the rows", got, map[string]string{"due": at, "delivered": at}))
		},
	}
}

// newCancel has a client that cancels after a call with an unknown outcome. A cancelled
// appointment must leave nothing.
func newCancel() dohosttest.Scenario {
	w := new(runRecord)
	cancelled := false
	return dohosttest.Scenario{
		Classes: []dohost.Class{appointmentClass(w)},
		Reset:   func() { w.reset(); cancelled = false },
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			a := appointments.Get(h, "a")
			_, err := dohost.Call(ctx, a, (*appointment).set, time.Now().Add(time.Hour))
			if err == nil {
				return nil
			}
			cancelled = true
			_, err = retryCall(ctx, a, (*appointment).cancel, none{})
			return err
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			got, err := dohost.Call(ctx, appointments.Get(h, "a"), (*appointment).contents, none{})
			if left := len(got); cancelled != (left == 0) {
				err = errors.Join(err, fmt.Errorf("cancelled: %t, and there is %v", cancelled, got))
			}
			return errors.Join(err, w.err())
		},
	}
}
