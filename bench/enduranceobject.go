package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
)

const enduranceObjects dohost.Namespace[enduranceObject] = "endurance"

// enduranceObject is an object with data of every kind: a sum, rows, a collection and an alarm that sets itself again.
// Each incarnation counts its contents again.
type enduranceObject struct {
	st       *dohost.State
	every    time.Duration // between its alarms
	alarms   *alarmRecord
	contents objectContents
}

// objectContents is the contents of an object on the disk.
type objectContents struct {
	Sum        int
	Rows       int
	Versions   [maxItems]uint64 // of the rows of the collection; zero for missing rows
	Deliveries int              // deliveries of the alarm, counted by the object
	Due        int64            // of the alarm that is set, in ms; zero if none
}

// maxItems is the maximum of the collection's rows.
const maxItems = 4

// item is a row of an object's collection.
type item struct {
	Number int
	Weight int
}

var items = dohost.Collection[item]{
	Name:    "shelf",
	Key:     func(p item) string { return fmt.Sprint(p.Number) },
	Indexes: []dohost.Index[item]{{Name: "weight", Of: func(p item) dohost.Key { return dohost.KeyOf(p.Weight) }}},
}

// alarmRecord counts the alarms outside of the store.
type alarmRecord struct {
	deliveries map[string]*alarmCounts // of each object, by name
	wrong      atomic.Pointer[string]
}

// alarmCounts are the counted alarms.
type alarmCounts struct{ durable, unknown atomic.Int64 }

func newAlarmRecord(n int) *alarmRecord {
	w := &alarmRecord{deliveries: make(map[string]*alarmCounts, n)}
	for i := range n {
		w.deliveries[name(i)] = &alarmCounts{}
	}
	return w
}

// enduranceClass is the class of objects with an alarm record for their alarms.
func enduranceClass(every time.Duration, alarms *alarmRecord) dohost.Class {
	return dohost.Bind(enduranceObjects, func(ctx context.Context, st *dohost.State) (*enduranceObject, error) {
		t := &enduranceObject{st: st, every: every, alarms: alarms}
		return t, t.load(ctx)
	}, &dohost.Handlers[enduranceObject]{OnAlarm: (*enduranceObject).onAlarm})
}

// load counts the stored contents.
func (t *enduranceObject) load(ctx context.Context) error {
	s := t.st.Storage()
	counts, err := dohost.GetMany[int](ctx, s, "sum", "deliveries", "due")
	if err != nil {
		return err
	}
	t.contents.Sum, t.contents.Deliveries, t.contents.Due = counts["sum"], counts["deliveries"], int64(counts["due"])
	for row, err := range dohost.All[int](ctx, s, &dohost.ListOptions{Prefix: "row/"}) {
		if err != nil {
			return err
		}
		if t.contents.Rows++; row.Value != t.contents.Rows {
			return fmt.Errorf("row %d of %v holds %d", t.contents.Rows, t.st.ID(), row.Value)
		}
	}
	for row, err := range items.All(ctx, s, &dohost.Query[item]{Index: "weight"}) {
		if err != nil {
			return err
		}
		t.contents.Versions[row.Value.Number] = row.Version
	}
	return nil
}

// get returns the contents.
func (t *enduranceObject) get(context.Context, int) (objectContents, error) { return t.contents, nil }

func (t *enduranceObject) add(ctx context.Context, delta int) (objectContents, error) {
	t.contents.Sum += delta
	return t.contents, dohost.Put(ctx, t.st.Storage(), "sum", t.contents.Sum)
}

func (t *enduranceObject) append(ctx context.Context, _ int) (objectContents, error) {
	t.contents.Rows++
	return t.contents, dohost.Put(ctx, t.st.Storage(), fmt.Sprintf("row/%06d", t.contents.Rows), t.contents.Rows)
}

// putItem writes a row of the collection, at another place in its index each time.
func (t *enduranceObject) putItem(ctx context.Context, n int) (objectContents, error) {
	n %= maxItems
	t.contents.Versions[n]++
	return t.contents, items.Put(ctx, t.st.Storage(), item{Number: n, Weight: int(t.contents.Versions[n]*7) % 13})
}

// clear deletes everything, and writes the counts and the alarm again.
func (t *enduranceObject) clear(ctx context.Context, _ int) (objectContents, error) {
	s := t.st.Storage()
	if err := s.DeleteAll(ctx); err != nil {
		return t.contents, err
	}
	t.contents.Rows, t.contents.Versions = 0, [maxItems]uint64{}
	if err := dohost.PutMany(ctx, s, map[string]int{"sum": t.contents.Sum, "deliveries": t.contents.Deliveries}); err != nil {
		return t.contents, err
	}
	return t.contents, t.arm(ctx, time.UnixMilli(t.contents.Due))
}

// initialContents is the first call of an object: objects differ from the start, as they do later.
type initialContents struct {
	After time.Duration // the time until its alarm
	Rows  int
}

func (t *enduranceObject) begin(ctx context.Context, b initialContents) (objectContents, error) {
	for range b.Rows {
		if _, err := t.append(ctx, 0); err != nil {
			return t.contents, err
		}
	}
	return t.contents, t.arm(ctx, time.Now().Add(b.After))
}

// arm sets the alarm, and records its time: now, if due was in the past.
func (t *enduranceObject) arm(ctx context.Context, due time.Time) error {
	if err := t.st.SetAlarm(ctx, due); err != nil {
		return err
	}
	at, _, err := t.st.GetAlarm(ctx)
	if err != nil {
		return err
	}
	t.contents.Due = at.UnixMilli()
	return dohost.Put(ctx, t.st.Storage(), "due", t.contents.Due)
}

// onAlarm counts the alarm, and sets the next. It reports an alarm that fires and is not the one that is set.
func (t *enduranceObject) onAlarm(ctx context.Context, a dohost.AlarmInfo) error {
	id := t.st.ID()
	if due := a.Scheduled.UnixMilli(); due != t.contents.Due {
		t.alarms.wrong.Store(new(fmt.Sprintf("the alarm of %v that was due at %d was delivered, and another one, due at %d, is set",
			id, due, t.contents.Due)))
	}
	t.contents.Deliveries++
	if err := dohost.Put(ctx, t.st.Storage(), "deliveries", t.contents.Deliveries); err != nil {
		return err
	}
	if err := t.arm(ctx, time.Now().Add(t.every)); err != nil {
		return err
	}
	counts := t.alarms.deliveries[id.Name]
	return t.st.Emit(ctx, func(err error) {
		if err == nil {
			counts.durable.Add(1)
		} else {
			counts.unknown.Add(1)
		}
	})
}

// stopAlarms ends the alarms, and returns the final contents.
func (t *enduranceObject) stopAlarms(ctx context.Context, _ int) (objectContents, error) {
	at, ok, err := t.st.GetAlarm(ctx)
	switch {
	case err != nil:
		return t.contents, err
	case !ok || at.UnixMilli() != t.contents.Due:
		return t.contents, fmt.Errorf("the alarm is set for %v, want %d", at, t.contents.Due)
	}
	return t.contents, t.st.DeleteAlarm(ctx)
}
