package randagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// modelKey is the key of the model.
const modelKey = "model"

// read reads the model.
func (a *machine) read(ctx context.Context) (*model, error) {
	m := newModel()
	text, ok, err := dohost.Get[string](ctx, a.Storage(), modelKey)
	if err != nil || !ok {
		return m, err
	}
	return m, json.Unmarshal([]byte(text), m)
}

// load reads the model, and compares the agent with it.
func (a *machine) load(ctx context.Context) (*model, error) {
	m, err := a.read(ctx)
	if err != nil {
		return nil, err
	}
	return m, a.verify(ctx, m)
}

// save writes a new version of the model, without waiting.
func (a *machine) save(ctx context.Context, m *model) error {
	m.Serial++
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return dohost.Put(ctx, a.Storage(), modelKey, string(text))
}

// verify compares the agent with the model. Changes that the agent makes by itself are made in the model.
func (a *machine) verify(ctx context.Context, m *model) error {
	if err := errors.Join(a.verifyFibers(ctx, m), a.verifyRows(ctx, m)); err != nil {
		return err
	}
	s, err := a.State(ctx)
	if err != nil {
		return err
	}
	if s != m.State {
		a.w.Faultf("the state is %+v, want %+v", s, m.State)
	}
	if err := a.verifySubs(ctx, m); err != nil {
		return err
	}
	dead, err := a.DeadLetters().List(ctx, 0)
	if err != nil {
		return err
	}
	if err := a.verifyTimers(ctx, m, dead); err != nil {
		return err
	}
	return a.verifyQueue(ctx, m, dead)
}

func (a *machine) verifyFibers(ctx context.Context, m *model) error {
	list, err := a.Fibers().List(ctx, &agent.FiberQuery{Limit: 100})
	if err != nil {
		return err
	}
	full := len(list) == 100
	list = slices.DeleteFunc(list, func(i agent.FiberInfo) bool { return !i.Started && i.Status == agent.FiberDead })
	found := map[string]agent.FiberInfo{}
	for i, info := range list {
		f := m.Fibers[info.ID]
		found[info.ID] = info
		switch {
		case f == nil || f.Gone:
			a.w.Faultf("List has the fiber %+v, want none", info)
		case i > 0 && f.Number > m.Fibers[list[i-1].ID].Number:
			a.w.Faultf("List has %v after %v", f, m.Fibers[list[i-1].ID])
		}
	}
	if full {
		return nil // there may be more
	}
	for _, f := range m.fibers() {
		info, ok := found[f.ID]
		if !ok {
			a.missing(f)
			continue
		}
		a.compare(f, info)
	}
	return nil
}

// strikes returns an upper bound of the errors and interruptions of a fiber.
func (a *machine) strikes(f *fiber) int { return f.Errors + a.incarnation - f.Since }

// maxHooks is the documented number of calls of a hook.
const maxHooks = 5

// gaveUp reports whether the calls of a hook for a fiber may have been given up.
func (a *machine) gaveUp(f *fiber) bool {
	return a.w.hooksOf(f.endName())+a.incarnation-f.Since >= maxHooks
}

// endName names an end of a fiber.
func (f *fiber) endName() string { return fmt.Sprintf("%s/%d", f.ID, f.Restarts) }

// missing checks that the row of a fiber may have expired.
func (a *machine) missing(f *fiber) {
	if f.open() && a.strikes(f) > maxRetries {
		f.Status, f.Gone = agent.FiberFailed, true // failed, and expired
		return
	}
	after, expires := f.expires()
	switch {
	case f.open():
		a.w.Faultf("%v is missing", f)
	case !expires:
		a.w.Faultf("%v is missing: it does not expire", f)
	case time.Now().UnixMilli() < f.Ended+after.Milliseconds():
		a.w.Faultf("%v is missing at %d: it ended at %d", f, time.Now().UnixMilli(), f.Ended)
	case f.notifies() && !f.Notified && !a.gaveUp(f):
		a.w.Faultf("%v has expired before OnFiberEnded was called", f)
	}
	f.Gone = true
}

// compare compares the description of a fiber with the model.
func (a *machine) compare(f *fiber, info agent.FiberInfo) {
	status := info.Status
	if status == agent.FiberPending || status == agent.FiberDead {
		status = agent.FiberRunning
	}
	if status == agent.FiberFailed && f.open() {
		if a.strikes(f) <= maxRetries {
			a.w.Faultf("%v has failed (%s) after %d errors and interruptions at most", f, info.Error, a.strikes(f))
		}
		f.end(agent.FiberFailed, a.incarnation, info.Ended)
	}
	if status != f.Status {
		a.w.Faultf("%v has status %s", f, status)
	}
	if info.Name != f.Kind || info.Key != f.Key {
		a.w.Faultf("%v is listed as %s with key %q", f, info.Name, info.Key)
	}
	if f.Status == agent.FiberCompleted && string(info.Result) != f.Result {
		a.w.Faultf("%v has the result %s, want %s", f, info.Result, f.Result)
	}
	if info.Status == agent.FiberDead && !a.maybeDead(f) {
		a.w.Faultf("%v is dead", f)
	}
	var p progress
	if err := json.Unmarshal(info.Checkpoint, &p); err != nil {
		a.w.Faultf("%v: the checkpoint %q: %v", f, info.Checkpoint, err)
	}
	a.checkpoint(f, p)
}

// checkpoint compares the checkpoint of a fiber with the model.
func (a *machine) checkpoint(f *fiber, p progress) {
	if p.Number != f.Number || p.Done != f.Done && p.Done != f.Maybe {
		a.w.Faultf("%v has the checkpoint %d of number %d, want %d or %d", f, p.Done, p.Number, f.Done, f.Maybe)
	}
}

func (a *machine) maybeDead(f *fiber) bool {
	return f.Kind != string(quiet) && a.incarnation >= maxHooks
}

func (a *machine) verifyTimers(ctx context.Context, m *model, dead []agent.DeadLetter) error {
	list, err := a.Schedules().List(ctx, nil)
	if err != nil {
		return err
	}
	for i, info := range list {
		var p payload
		if err := json.Unmarshal(info.Payload, &p); err != nil {
			a.w.Faultf("the payload of schedule %s: %v", info.ID, err)
		}
		j := m.Timers[p.Number]
		switch {
		case j == nil:
			a.w.Faultf("List has schedule %d, want none", p.Number)
		case j.ID != info.ID:
			a.w.Faultf("schedule %v has id %s", j, info.ID)
		case !j.When.recurs() && info.Due.UnixMilli() != j.Due, info.Due.UnixMilli() < j.Due && !info.Running:
			a.w.Faultf("schedule %v is due at %d", j, info.Due.UnixMilli())
		}
		if i > 0 && info.Due.Before(list[i-1].Due) {
			a.w.Faultf("List is not ordered by time: %v is after %v", info.Due, list[i-1].Due)
		}
	}
	for _, j := range m.timers() {
		if slices.ContainsFunc(list, func(i agent.ScheduleInfo) bool { return i.ID == j.ID }) {
			continue
		}
		given := !j.When.recurs() && a.incarnation-j.Since >= maxInterruptions
		if !given || !slices.ContainsFunc(dead, func(d agent.DeadLetter) bool { return d.ID == j.ID }) {
			a.w.Faultf("schedule %v is missing", j)
		}
		delete(m.Timers, j.Number)
		if given {
			m.addDead(j)
		}
	}
	return nil
}

func (a *machine) verifyQueue(ctx context.Context, m *model, dead []agent.DeadLetter) error {
	list, err := a.Queue().List(ctx, nil)
	if err != nil {
		return err
	}
	isDead := func(id string) bool {
		return slices.ContainsFunc(dead, func(d agent.DeadLetter) bool { return d.ID == id })
	}
	for len(m.Queue) > 0 { // only the first can be interrupted
		j := m.Queue[0]
		if len(list) > 0 && list[0].ID == j.ID || a.incarnation-j.Since < maxInterruptions || !isDead(j.ID) {
			break
		}
		m.Queue = m.Queue[1:]
		m.addDead(j)
	}
	var got, want []string
	for _, i := range list {
		got = append(got, numbered(i.ID, i.Payload))
	}
	for _, j := range m.Queue {
		want = append(want, fmt.Sprintf("%d=%s", j.Number, j.ID))
	}
	if !slices.Equal(got, want) {
		a.w.Faultf("the queue is %v, want %v", got, want)
	}
	got, want = nil, nil
	for _, d := range dead {
		got = append(got, numbered(d.ID, d.Payload))
	}
	for _, j := range m.Dead {
		want = append(want, fmt.Sprintf("%d=%s", j.Number, j.ID))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		a.w.Faultf("the dead letters are %v, want %v", got, want)
	}
	return nil
}

// numbered returns the number in a payload with an id.
func numbered(id string, raw json.RawMessage) string {
	var p payload
	if err := json.Unmarshal(raw, &p); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d=%s", p.Number, id)
}
