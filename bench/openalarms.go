package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// alarmOpenings is the number of times that each of two stores of alarms is opened.
const alarmOpenings = 9

// openingWithAlarms measures the time to open a store of very many alarms, and the host's memory then, compared with a
// store that has a hundredth of them.
func openingWithAlarms(ctx context.Context, b *bench) error {
	const fewSide = "1 % of them"
	all, err := b.storeAlarms(10 * b.objects)
	if err != nil {
		return err
	}
	few, err := b.storeAlarms(all.n / 100)
	if err != nil {
		return err
	}
	stores := []*storedAlarms{all, few}
	for n := range alarmOpenings {
		b.progress("opening %d of %d", n+1, alarmOpenings)
		for i := range stores {
			if err := stores[(i+n)%len(stores)].open(); err != nil { // no store is always first
				return err
			}
		}
	}
	for _, s := range stores {
		b.progress("counting %d alarms", s.n)
		if err := s.verify(ctx, b); err != nil {
			return fmt.Errorf("no figure: %w", err)
		}
	}
	sides := func(of func(*storedAlarms) []float64) []Figure {
		return []Figure{
			{Side: ours, Value: median(of(all)), Rounds: of(all), Checked: int64(all.n)},
			{Side: fewSide, Value: median(of(few)), Rounds: of(few), Checked: int64(few.n)},
		}
	}
	target := Target{Text: "≤ 1.5 of that with 1 %", Reference: fewSide, MaxRatio: 1.5}
	bare := Figure{Side: limit, Value: median(all.bare), Rounds: all.bare}
	b.add(Row{
		ID: "P11", What: fmt.Sprintf("opening a store with %d alarms in the future", all.n), Unit: "ms",
		Sides: append(sides(func(s *storedAlarms) []float64 { return s.ms }), bare), Target: target,
		Notes: []string{
			"limit: pebble.Open of the same files, with all alarms",
			"until Open returns; the alarms that are due next are read after that",
			"each alarm is of an object of its own, and due within a year", "the files are in the system's cache",
		},
	})
	b.add(Row{
		ID: "P11m", What: "the same: heap of the host that was opened", Unit: "MiB",
		Sides: sides(func(s *storedAlarms) []float64 { return s.heaps }), Target: target,
		Notes: []string{
			"memory in use before is not counted, nor the memory of Pebble outside of the heap",
			"a host reads some thousands of alarms, those that are due next; of a store with fewer it reads all",
		},
	})
	return nil
}

// storedAlarms is a store of objects that have only an alarm each.
type storedAlarms struct {
	dir   string
	n     int
	seed  uint64
	first time.Time // the earliest due time
	ms    []float64 // of openings
	bare  []float64 // of openings by Pebble alone
	heaps []float64 // in MiB, after them
}

// due is the time of the i-th object's alarm.
func (s *storedAlarms) due(i int) time.Time {
	const year = 365 * 24 * time.Hour
	draw := rand.New(rand.NewPCG(s.seed, uint64(i)))
	return s.first.Add(time.Duration(draw.Int64N(int64(year)))).Truncate(time.Millisecond)
}

func (s *storedAlarms) id(i int) dohost.ID { return dohost.ID{Class: string(subjects), Name: name(i)} }

// commitResult receives the result when earlier commits are durable.
type commitResult chan error

// Release implements objectstore.Output. The channel has room for all outputs.
func (l commitResult) Release(err error) { l <- err }

// storeAlarms makes a store of n alarms. It commits the slots to the store as a host does; the calls of a host would
// take most of the time.
func (b *bench) storeAlarms(n int) (s *storedAlarms, err error) {
	s = &storedAlarms{n: n, seed: b.seed, first: time.Now().Add(1000 * time.Hour)}
	if s.dir, err = b.newDir(); err != nil {
		return nil, err
	}
	store, err := objectstore.Open(s.dir, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	const group = 4096
	committed := make(commitResult, 2)
	for range cap(committed) {
		committed <- nil // bounds the groups in flight
	}
	for i := range n {
		r, e := store.Range(s.id(i)), store.NewEpoch()
		r.Begin(e)
		batch := r.NewBatch(e)
		batch.SetSlot(objectstore.Slot{Due: s.due(i), Generation: store.NewAlarmGeneration()})
		if (i+1)%group == 0 {
			if err := <-committed; err != nil {
				return nil, err
			}
			batch.Emit(committed)
			b.progress("storing: %d of %d alarms", i+1, n)
		}
		if err := r.Commit(batch); err != nil {
			return nil, err
		}
	}
	return s, nil // Close waits for the last commits
}

// open opens a host on the store and closes it.
func (s *storedAlarms) open() error {
	if err := quietly(s.dir); err != nil {
		return err
	}
	bare, err := timed(s.dir, openBare)
	if err != nil {
		return err
	}
	s.bare = append(s.bare, bare)
	before, _ := heapAfterGC()
	began := time.Now()
	h, err := openIn(s.dir, dohost.Options{}, nil)
	took := time.Since(began)
	if err != nil {
		return err
	}
	h.awaitAlarms()
	after, _ := heapAfterGC()
	s.ms = append(s.ms, float64(took.Nanoseconds())/1e6)
	s.heaps = append(s.heaps, (after-before)/(1<<20))
	return h.Close()
}

// verify counts the entries in the index of a host that was opened again, and reads some of the objects.
func (s *storedAlarms) verify(ctx context.Context, b *bench) (err error) {
	h, err := openIn(s.dir, dohost.Options{}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	found, err := indexed(ctx, h)
	if err == nil && found != s.n {
		err = fmt.Errorf("%d alarms are in the index, want %d", found, s.n)
	}
	if err != nil {
		return err
	}
	draw := rand.New(rand.NewPCG(b.seed, uint64(s.n)))
	for range 1000 {
		i := draw.IntN(s.n)
		info, err := h.Inspect(ctx, s.id(i))
		if err == nil && !info.Alarm.Equal(s.due(i)) {
			err = fmt.Errorf("the alarm of %v is due at %v, want %v", info.ID, info.Alarm, s.due(i))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// indexed counts the entries of the class's alarm index, and returns an error if an entry occurs twice.
func indexed(ctx context.Context, h *host) (n int, err error) {
	sn, err := kernel.OfHost(h).Store().Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer sn.Close()
	const page = 10_000
	var at objectstore.AlarmPos
	for {
		found, last, err := sn.Alarms(string(subjects), at, page)
		n, at = n+len(found), last
		if err != nil || len(found) < page {
			return n, err
		}
	}
}
