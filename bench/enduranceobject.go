package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
)

const tenants dohost.Namespace[tenant] = "tenant"

// tenant is an object with data of every kind: a sum, rows, a collection and an alarm that sets itself again. Each
// incarnation counts its contents again.
type tenant struct {
	st    *dohost.State
	every time.Duration // between its alarms
	bell  *witness
	has   holding
}

// holding is the contents of a tenant on the disk.
type holding struct {
	Sum      int
	Rows     int
	Versions [parcels]uint64 // of the rows of the collection; zero for missing rows
	Rings    int             // of the alarm, counted by the tenant
	Due      int64           // of the alarm that is set, in ms; zero if none
}

// parcels is the maximum of the collection's rows.
const parcels = 4

// parcel is a row of a tenant's collection.
type parcel struct {
	Number int
	Weight int
}

var shelf = dohost.Collection[parcel]{
	Name:    "shelf",
	Key:     func(p parcel) string { return fmt.Sprint(p.Number) },
	Indexes: []dohost.Index[parcel]{{Name: "weight", Of: func(p parcel) dohost.Key { return dohost.KeyOf(p.Weight) }}},
}

// witness counts the alarms outside of the store.
type witness struct {
	rings map[string]*rings // of each tenant, by name
	wrong atomic.Pointer[string]
}

// rings are the counted alarms.
type rings struct{ durable, unknown atomic.Int64 }

func newWitness(n int) *witness {
	w := &witness{rings: make(map[string]*rings, n)}
	for i := range n {
		w.rings[name(i)] = &rings{}
	}
	return w
}

// tenantClass is the class of tenants with a witness for their alarms.
func tenantClass(every time.Duration, bell *witness) dohost.Class {
	return dohost.Bind(tenants, func(ctx context.Context, st *dohost.State) (*tenant, error) {
		t := &tenant{st: st, every: every, bell: bell}
		return t, t.read(ctx)
	}, &dohost.Handlers[tenant]{OnAlarm: (*tenant).ring})
}

// read counts the stored contents.
func (t *tenant) read(ctx context.Context) error {
	s := t.st.Storage()
	counts, err := dohost.GetMany[int](ctx, s, "sum", "rings", "due")
	if err != nil {
		return err
	}
	t.has.Sum, t.has.Rings, t.has.Due = counts["sum"], counts["rings"], int64(counts["due"])
	for row, err := range dohost.All[int](ctx, s, &dohost.ListOptions{Prefix: "row/"}) {
		if err != nil {
			return err
		}
		if t.has.Rows++; row.Value != t.has.Rows {
			return fmt.Errorf("row %d of %v holds %d", t.has.Rows, t.st.ID(), row.Value)
		}
	}
	for row, err := range shelf.All(ctx, s, &dohost.Query[parcel]{Index: "weight"}) {
		if err != nil {
			return err
		}
		t.has.Versions[row.Value.Number] = row.Version
	}
	return nil
}

// look returns the contents.
func (t *tenant) look(context.Context, int) (holding, error) { return t.has, nil }

func (t *tenant) add(ctx context.Context, delta int) (holding, error) {
	t.has.Sum += delta
	return t.has, dohost.Put(ctx, t.st.Storage(), "sum", t.has.Sum)
}

func (t *tenant) append(ctx context.Context, _ int) (holding, error) {
	t.has.Rows++
	return t.has, dohost.Put(ctx, t.st.Storage(), fmt.Sprintf("row/%06d", t.has.Rows), t.has.Rows)
}

// stock writes a row of the collection, at another place in its index each time.
func (t *tenant) stock(ctx context.Context, n int) (holding, error) {
	n %= parcels
	t.has.Versions[n]++
	return t.has, shelf.Put(ctx, t.st.Storage(), parcel{Number: n, Weight: int(t.has.Versions[n]*7) % 13})
}

// clear deletes everything, and writes the counts and the alarm again.
func (t *tenant) clear(ctx context.Context, _ int) (holding, error) {
	s := t.st.Storage()
	if err := s.DeleteAll(ctx); err != nil {
		return t.has, err
	}
	t.has.Rows, t.has.Versions = 0, [parcels]uint64{}
	if err := dohost.PutMany(ctx, s, map[string]int{"sum": t.has.Sum, "rings": t.has.Rings}); err != nil {
		return t.has, err
	}
	return t.has, t.arm(ctx, time.UnixMilli(t.has.Due))
}

// beginning is the first call of a tenant: tenants differ from the start, as they do later.
type beginning struct {
	After time.Duration // the time until its alarm
	Rows  int
}

func (t *tenant) begin(ctx context.Context, b beginning) (holding, error) {
	for range b.Rows {
		if _, err := t.append(ctx, 0); err != nil {
			return t.has, err
		}
	}
	return t.has, t.arm(ctx, time.Now().Add(b.After))
}

// arm sets the alarm, and records its time: now, if due was in the past.
func (t *tenant) arm(ctx context.Context, due time.Time) error {
	if err := t.st.SetAlarm(ctx, due); err != nil {
		return err
	}
	at, _, err := t.st.GetAlarm(ctx)
	if err != nil {
		return err
	}
	t.has.Due = at.UnixMilli()
	return dohost.Put(ctx, t.st.Storage(), "due", t.has.Due)
}

// ring counts the alarm, and sets the next. It reports an alarm that rings and is not the one that is set.
func (t *tenant) ring(ctx context.Context, a dohost.AlarmInfo) error {
	id := t.st.ID()
	if due := a.Scheduled.UnixMilli(); due != t.has.Due {
		t.bell.wrong.Store(new(fmt.Sprintf("the alarm of %v that was due at %d rang, and that of %d is set",
			id, due, t.has.Due)))
	}
	t.has.Rings++
	if err := dohost.Put(ctx, t.st.Storage(), "rings", t.has.Rings); err != nil {
		return err
	}
	if err := t.arm(ctx, time.Now().Add(t.every)); err != nil {
		return err
	}
	rings := t.bell.rings[id.Name]
	return t.st.Emit(ctx, func(err error) {
		if err == nil {
			rings.durable.Add(1)
		} else {
			rings.unknown.Add(1)
		}
	})
}

// rest ends the alarms, and returns the final contents.
func (t *tenant) rest(ctx context.Context, _ int) (holding, error) {
	at, ok, err := t.st.GetAlarm(ctx)
	switch {
	case err != nil:
		return t.has, err
	case !ok || at.UnixMilli() != t.has.Due:
		return t.has, fmt.Errorf("the alarm is set for %v, want %d", at, t.has.Due)
	}
	return t.has, t.st.DeleteAlarm(ctx)
}
