package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
)

// delaySide inserts notes one after the other: the next one when all watches have received the last one. Its times are those from the sync
// of a note to each watch.
type delaySide struct{ *watchSide }

func (b *bench) openDelays(ctx context.Context, watches int) (delaySide, error) {
	s, err := b.openWatches(ctx, watches, make(chan time.Duration, watches))
	return delaySide{s}, err
}

func (s delaySide) work(ctx context.Context, m *meter) error {
	w := m.worker()
	for over := false; !over; over = w.over() {
		if err := s.one(ctx, w); err != nil {
			return err
		}
		w.ops++
	}
	return nil
}

// one inserts a note, and waits until all watches have received it.
func (s delaySide) one(ctx context.Context, w *worker) error {
	s.log.begin()
	if _, err := dohost.Call(ctx, boards.Get(s, name(0)), (*board).insert, int(s.next.Add(1))); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not all watches have a note within a minute"))
	defer cancel()
	for range s.seen {
		select {
		case took := <-s.delays:
			w.took = append(w.took, took)
		case <-s.ended:
			return errors.New("a watch has ended")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// delayOf returns the time since the sync of the last note, which a watch has received.
func delayOf(log syncedLog) (time.Duration, error) {
	at := log.durable()
	if at.IsZero() {
		return 0, errors.New("a watch has a note before a sync of the log")
	}
	return time.Since(at), nil
}

// watchDelays measures the time from the sync of a commit to the watches of its collection.
func watchDelays(ctx context.Context, b *bench) error {
	var sides []named
	for _, c := range []struct {
		name    string
		watches int
	}{{ours, 1}, {"64 watches", 64}} {
		s, err := b.openDelays(ctx, c.watches)
		if err != nil {
			return errors.Join(err, closeAll(sides))
		}
		sides = append(sides, named{c.name, s})
	}
	r := Row{ID: "W8", What: "from the sync of an insert to 1 watch of its collection, one object, one insert after the other", Unit: "inserts/s"}
	var err error
	if r.Sides, err = b.compare(ctx, sides...); err != nil {
		return fmt.Errorf("W8: %w", err)
	}
	r.Notes = []string{
		"p50 and p99 are from the end of the first sync of the log after the beginning of the call to the delta in the loop of the watch; inserts/s include the sync",
		"64 watches: the times of all watches; their loops run one after the other, since each needs the turn",
	}
	b.add(r)
	return nil
}
