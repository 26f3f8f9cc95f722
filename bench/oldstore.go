package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/engine"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// oldStore is a host with many deletions in its store, and its one object that stays.
type oldStore struct {
	*host
	reads     objectstore.Reads
	alarms    *alarmTimes
	remaining dohost.Stub[subject]
	due       time.Time // its alarm
}

// readsOfOldStore deletes the rows and alarms of very many objects, and counts the entries that reads visit afterwards,
// compared with a new store.
func readsOfOldStore(ctx context.Context, b *bench) (err error) {
	n := b.objects
	a := &oldStore{alarms: newAlarmTimes(n), due: time.Now().Add(1000 * time.Hour).Truncate(time.Second)}
	var o dohost.Options
	kernel.Tune(&o, func(ro *runtime.Options) { ro.Store.Reads = &a.reads })
	if a.host, err = b.open(o, a.alarms.fired); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.host.Close()) }()
	a.remaining = subjects.Get(a.host, name(n))
	if _, err := dohost.Call(ctx, a.remaining, (*subject).arm, a.due); err != nil {
		return err
	}
	if _, err := dohost.Call(ctx, a.remaining, (*subject).appendMany, wakeRows); err != nil {
		return err
	}
	time.Sleep(b.rest) // its memory of the object is released
	young, err := a.countEntries(ctx)
	if err != nil {
		return err
	}
	if err := a.fireAlarms(ctx, b, n); err != nil {
		return err
	}
	fired, err := a.countEntries(ctx)
	if err != nil {
		return err
	}
	if err := fill(ctx, b, a.host, n, (*subject).add, 1); err != nil {
		return err
	}
	a.evictAll(n)
	if err := fill(ctx, b, a.host, n, (*subject).wipe, 0); err != nil {
		return err
	}
	a.evictAll(n)
	wiped, err := a.countEntries(ctx)
	if err != nil {
		return err
	}
	for i := range fired {
		fired[i] = max(fired[i], wiped[i])
	}
	a.report(b, young, fired)
	return nil
}

// lookups are the reads that countEntries makes.
var lookups = [...]string{"finding the next alarm", "waking an object", "listing a class"}

// report adds the rows to the results.
func (a *oldStore) report(b *bench, young, most [len(lookups)]int64) {
	const first = "at first"
	n := b.objects
	const dead = 4 * engine.MemTable / (2 << 10) // the limit of docs/decisions/0006
	targets := [len(lookups)]Target{
		{Text: "at most the deleted entries that a memtable may hold", MaxValue: dead},
		{Text: "≤ 1.1 of at first", Reference: first, MaxRatio: 1.1},
		{Text: "at most the deleted entries that a memtable may hold", MaxValue: dead},
	}
	for i, what := range lookups {
		b.add(Row{
			ID: fmt.Sprint("A", i+1), Unit: "entries",
			What: fmt.Sprintf("%s, after %d fired alarms, evictions and DeleteAlls: entries that the engine reads", what, n),
			Sides: []Figure{
				{Side: ours, Value: float64(most[i]), Rounds: []float64{float64(most[i])}, Checked: int64(n)},
				{Side: first, Value: float64(young[i]), Rounds: []float64{float64(young[i])}},
			},
			Target: targets[i],
			Notes: []string{fmt.Sprintf("after the alarms, or after the DeleteAlls; the engine reads deleted entries "+
				"until the memtable of %d MiB is flushed for it", engine.MemTable>>20)},
		})
	}
}

// fireAlarms fires an alarm of each object, each exactly once.
func (a *oldStore) fireAlarms(ctx context.Context, b *bench, n int) error {
	if err := fill(ctx, b, a.host, n, (*subject).arm, time.Now()); err != nil {
		return err
	}
	b.progress("waiting for %d alarms", n)
	if err := a.alarms.wait(ctx, 10*time.Minute); err != nil {
		return err
	}
	for w := kernel.OfHost(a).Work(); w.Events > 0 || w.Undurable > 0; w = kernel.OfHost(a).Work() { // until all is durable
		time.Sleep(time.Millisecond)
	}
	return nil
}

// countEntries reads, and counts the entries that the engine visits.
func (a *oldStore) countEntries(ctx context.Context) (entries [len(lookups)]int64, err error) {
	for i, read := range [len(lookups)]func(context.Context) error{a.nextAlarm, a.wake, a.list} {
		from := a.reads.Steps.Load() + a.reads.Gets.Load()
		if err := read(ctx); err != nil {
			return entries, fmt.Errorf("%s: %w", lookups[i], err)
		}
		entries[i] = a.reads.Steps.Load() + a.reads.Gets.Load() - from
	}
	return entries, nil
}

func (a *oldStore) nextAlarm(ctx context.Context) error {
	sn, err := kernel.OfHost(a).Store().Snapshot(ctx)
	if err != nil {
		return err
	}
	defer sn.Close()
	found, _, err := sn.Alarms(a.remaining.ID().Class, objectstore.AlarmPos{}, 1)
	if err == nil && (len(found) != 1 || found[0].ID != a.remaining.ID() || !found[0].Due.Equal(a.due)) {
		err = fmt.Errorf("found %v, want that of %v", found, a.remaining.ID())
	}
	return err
}

func (a *oldStore) wake(ctx context.Context) error {
	a.Evict(a.remaining.ID(), dohost.EndFence)
	got, err := dohost.Call(ctx, a.remaining, (*subject).first, 0)
	if err == nil && got != wakeRows {
		err = fmt.Errorf("%v holds %d rows, want %d", a.remaining.ID(), got, wakeRows)
	}
	return err
}

// list checks that the class lists only the one object that was not deleted.
func (a *oldStore) list(ctx context.Context) error {
	var found []dohost.ID
	for id, err := range a.Objects(ctx, string(subjects), "") {
		if err != nil {
			return err
		}
		found = append(found, id)
	}
	if len(found) != 1 || found[0] != a.remaining.ID() {
		return fmt.Errorf("found %d objects, want %v alone", len(found), a.remaining.ID())
	}
	return nil
}
