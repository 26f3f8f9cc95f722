package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// board is an object with a collection that watches follow.
type board struct{ store *dohost.Storage }

const boards dohost.Namespace[board] = "board"

// note is a row of a board.
type note struct{ Number int }

var notes = dohost.Collection[note]{
	Name: "notes", Key: func(n note) string { return string(dohost.KeyOf(n.Number)) },
	Feed: &dohost.Feed{Name: "notes", Keep: 10_000, Values: true, Before: true},
}

func (b *board) insert(ctx context.Context, number int) (struct{}, error) {
	return struct{}{}, notes.Insert(ctx, b.store, note{number})
}

func (b *board) count(ctx context.Context) (int, error) { return notes.Count(ctx, b.store, nil) }

// watchCallers is the number of outstanding calls.
const watchCallers = 64

// watchSide is a host with one board and its watches. Callers insert notes in closed loops.
type watchSide struct {
	*dohost.Host
	fs   *objectstore.FS
	dir  string
	next atomic.Int64
	seen []atomic.Int64 // the number of notes that each watch has received

	log    firstSync
	delays chan time.Duration // from log to each watch, with room for one of each; nil: not measured
	ended  <-chan struct{}    // a watch has ended

	running sync.WaitGroup // the watches
	stop    context.CancelFunc
	failed  error // of a watch, after their end
	once    sync.Once
}

// openWatches opens a side. delays may be nil.
func (b *bench) openWatches(ctx context.Context, watches int, delays chan time.Duration) (s *watchSide, err error) {
	s = &watchSide{seen: make([]atomic.Int64, watches), delays: delays}
	if s.dir, err = b.newDir(); err != nil {
		return nil, err
	}
	if err := s.open(); err != nil {
		return nil, err
	}
	ctx, s.stop = context.WithCancel(ctx)
	s.ended = ctx.Done()
	for i := range s.seen {
		s.running.Go(func() {
			if err := s.watch(ctx, &s.seen[i]); ctx.Err() == nil {
				s.once.Do(func() { s.failed = fmt.Errorf("watch %d has ended: %w", i, err) })
				s.stop()
			}
		})
	}
	return s, nil
}

func (s *watchSide) open() (err error) {
	s.fs = objectstore.DiskFS()
	s.fs.OnSynced(s.log.ended)
	s.Host, err = dohost.Open(s.dir, kernel.OnFS(&dohost.Options{IdleAfter: -1}, s.fs), dohost.Bind(boards,
		func(_ context.Context, st *dohost.State) (*board, error) { return &board{st.Storage()}, nil }, nil))
	return err
}

// watch counts the notes that a watch receives, until ctx ends.
func (s *watchSide) watch(ctx context.Context, seen *atomic.Int64) error {
	return boards.Get(s, name(0)).Do(ctx, func(ctx context.Context, b *board) error {
		for d, err := range notes.Watch(ctx, b.store, nil, nil) {
			if err != nil {
				return err
			}
			switch d.Kind {
			case dohost.DeltaReset:
				seen.Store(0)
			case dohost.DeltaEnter:
				seen.Add(1)
				if err := s.delayed(); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// delayed records the delay of a note that a watch has received, if delays are measured.
func (s *watchSide) delayed() error {
	if s.delays == nil {
		return nil
	}
	took, err := delayOf(&s.log)
	if err != nil {
		return err
	}
	select {
	case s.delays <- took:
		return nil
	default:
		return errors.New("a watch has received a note twice")
	}
}

func (s *watchSide) work(ctx context.Context, m *meter) error {
	stub := boards.Get(s, name(0))
	return m.each(watchCallers, func(_ int, w *worker) error {
		for !w.over() {
			began := time.Now()
			if _, err := dohost.Call(ctx, stub, (*board).insert, int(s.next.Add(1))); err != nil {
				return err
			}
			w.did(began)
		}
		return nil
	})
}

// verify waits until each watch has received all notes, and counts them on the disk.
func (s *watchSide) verify(ctx context.Context, done int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the watches have not received all notes within a minute"))
	defer cancel()
	for i := range s.seen {
		for s.seen[i].Load() < done {
			select {
			case <-ctx.Done():
				return fmt.Errorf("watch %d has %d of %d notes: %w", i, s.seen[i].Load(), done, context.Cause(ctx))
			case <-time.After(time.Millisecond):
			}
		}
		if n := s.seen[i].Load(); n != done {
			return fmt.Errorf("watch %d has %d notes, and %d were inserted", i, n, done)
		}
	}
	if err := errors.Join(s.end(), s.Close(), s.open()); err != nil {
		return err
	}
	n, err := dohost.CallNoArg(ctx, boards.Get(s, name(0)), (*board).count)
	if err == nil && int64(n) != done {
		err = fmt.Errorf("the board has %d notes, and %d were inserted", n, done)
	}
	return err
}

// end ends the watches.
func (s *watchSide) end() error {
	s.stop()
	s.running.Wait()
	return s.failed
}

func (s *watchSide) syncs() int64 { return s.fs.Syncs() }

func (s *watchSide) close() error { return errors.Join(s.end(), s.Close()) }

// watchedChanges measures the changes of a collection that is watched.
func watchedChanges(ctx context.Context, b *bench) (err error) {
	var sides []named
	for _, c := range []struct {
		name    string
		watches int
	}{{ours, 64}, {"1 watch", 1}, {"no watch", 0}} {
		s, err := b.openWatches(ctx, c.watches, nil)
		if err != nil {
			return errors.Join(err, closeAll(sides))
		}
		sides = append(sides, named{c.name, s})
	}
	r := Row{ID: "W4", What: "inserts into a collection with 64 watches, one object, 64 outstanding", Unit: "inserts/s"}
	if r.Sides, err = b.compare(ctx, sides...); err != nil {
		return err
	}
	r.Notes = []string{"each watch receives each insert; the figure does not wait for the watches, and the verification does"}
	b.add(r)
	return nil
}
