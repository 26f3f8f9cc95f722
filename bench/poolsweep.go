package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/pool"
)

// beatsPerSweep are the heartbeats of a worker between two sweeps, with the default options.
const beatsPerSweep = 4

// sweepEvery is the time between two sweeps of a measurement. The schedule's own deleted rows are read by later ones, so there are few.
func (b *bench) sweepEvery() time.Duration {
	return min(500*time.Millisecond, max(b.duration/4, 20*time.Millisecond))
}

// sweepEnd is the end of a sweep.
type sweepEnd struct {
	took  time.Duration
	reads int64 // of the host so far
}

// sweepSide is a pool that sweeps, and does nothing else.
type sweepSide struct {
	poolHost

	mu      sync.Mutex // guards the fields below
	ends    []sweepEnd
	removed int64 // workers

	rounds  []sweepRound
	counted int64 // reads of the host up to the end of the last round
	early   int64 // workers that were removed up to then
	lapse   lapse
}

// sweepRound has the mean of the sweeps of a round.
type sweepRound struct{ reads, allocs, syncs float64 }

// lapse is the removal of all workers of a pool.
type lapse struct {
	reads, workers int64 // reads in addition to those of the same number of sweeps that find nothing
	took           time.Duration
}

// openSweeps opens a pool whose workers are reachable for ttl.
func (b *bench) openSweeps(ctx context.Context, workers, tasks int, ttl time.Duration) (*sweepSide, error) {
	s := &sweepSide{poolHost: poolHost{workers: workers, tasks: tasks}}
	s.options = &pool.Options{Heartbeat: ttl / 2, TTL: ttl, Sweep: b.sweepEvery(), Lease: 12 * time.Hour, Acknowledged: 12 * time.Hour, Progress: -1}
	s.listener = dohost.Listener{EventEnded: s.ended, Service: s.reported}
	return s, b.openPool(ctx, &s.poolHost)
}

// ended records the end of a sweep.
func (s *sweepSide) ended(e dohost.EndedEvent) {
	if e.Op != "schedule sweep" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(s.ends, sweepEnd{e.Took, s.readSoFar()})
}

func (s *sweepSide) readSoFar() int64 { return s.reads.Gets.Load() + s.reads.Steps.Load() }

// reported records the workers that a sweep has removed.
func (s *sweepSide) reported(_ dohost.ID, event string, attrs ...slog.Attr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range attrs {
		if event == "pool:swept" && a.Key == "workers" {
			s.removed += a.Value.Int64()
		}
	}
}

// beatAll sends a heartbeat of each worker.
func (s *sweepSide) beatAll(ctx context.Context) error {
	return together(min(fillers, s.workers), func(c int) error {
		for i := c; i < s.workers; i += fillers {
			if _, err := s.beat(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// took returns the sweeps since the last call, and begins to count again.
func (s *sweepSide) took() (ends []sweepEnd, removed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ends, s.ends = s.ends, nil
	return ends, s.removed
}

// work sends the heartbeats that come between two sweeps, and waits while the pool sweeps. It counts from the end of the first sweep on.
func (s *sweepSide) work(ctx context.Context, m *meter) error {
	for range beatsPerSweep {
		if err := s.beatAll(ctx); err != nil {
			return err
		}
	}
	s.took()
	if err := s.await(ctx, func(ends int) bool { return ends > 0 }); err != nil {
		return err
	}
	s.took()
	before, syncs, began := mallocs(), s.syncs(), s.readSoFar()
	if err := s.await(ctx, func(ends int) bool { return ends > 1 && !time.Now().Before(m.until) }); err != nil {
		return err
	}
	allocs := mallocs() - before
	ends, early := s.took()
	w, n := m.worker(), float64(len(ends))
	for _, e := range ends {
		w.ops++
		w.took = append(w.took, e.took)
	}
	s.early, s.counted = early, ends[len(ends)-1].reads
	s.rounds = append(s.rounds, sweepRound{float64(s.counted-began) / n, float64(allocs) / n, float64(s.syncs()-syncs) / n})
	return nil
}

// await waits for sweeps.
func (s *sweepSide) await(ctx context.Context, enough func(ends int) bool) error {
	for end := time.Now().Add(time.Minute); ; {
		s.mu.Lock()
		n := len(s.ends)
		s.mu.Unlock()
		switch {
		case enough(n):
			return nil
		case time.Now().After(end):
			return fmt.Errorf("the pool has swept %d times within a minute", n)
		}
		if err := dohost.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// mallocs returns the allocations of the process so far.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// verify returns an error unless the sweeps have removed no worker in the rounds, and remove each when it has lapsed. The tasks remain.
func (s *sweepSide) verify(ctx context.Context, _ int64) error {
	if s.early > 0 {
		return fmt.Errorf("%d workers were removed before they have lapsed", s.early)
	}
	for end := time.Now().Add(2*s.options.TTL + time.Minute); s.gone() < int64(s.workers); {
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d workers were removed within a minute after all have lapsed", s.gone(), s.workers)
		}
		if err := dohost.Sleep(ctx, s.options.Sweep); err != nil {
			return err
		}
	}
	if err := dohost.Sleep(ctx, 2*s.options.Sweep); err != nil { // the last sweep has ended
		return err
	}
	ends, removed := s.took()
	before, usual := s.counted, int64(s.usual().reads)
	for _, e := range ends {
		s.lapse.reads += max(0, e.reads-before-usual)
		s.lapse.took = max(s.lapse.took, e.took)
		before = e.reads
	}
	if s.lapse.workers = removed; removed != int64(s.workers) {
		return fmt.Errorf("%d workers were removed, of %d", removed, s.workers)
	}
	all, err := s.list(ctx)
	if err == nil && len(all) > 0 {
		err = fmt.Errorf("the pool has %d workers that have lapsed", len(all))
	}
	return errors.Join(err, s.verifyTasks(ctx))
}

// usual returns the medians of the rounds, without the first one.
func (s *sweepSide) usual() (r sweepRound) {
	var reads, allocs, syncs []float64
	for _, r := range s.rounds[1:] {
		reads, allocs, syncs = append(reads, r.reads), append(allocs, r.allocs), append(syncs, r.syncs)
	}
	return sweepRound{median(reads), median(allocs), median(syncs)}
}

// gone returns the workers that were removed so far.
func (s *sweepSide) gone() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removed
}

func (s *sweepSide) syncs() int64 { return s.fs.Syncs() }

func (s *sweepSide) close() error { return s.Close() }

// sweepTTL returns how long workers are reachable: longer than all rounds take, and the filling of a pool.
func (b *bench) sweepTTL(sides, tasks int) time.Duration {
	round := max(b.duration, 4*b.sweepEvery()) + time.Duration(tasks)*time.Millisecond/20 + 100*time.Millisecond
	return time.Duration(sides*(b.rounds+1))*round + time.Duration(tasks)*time.Millisecond
}

// keepReachable sends heartbeats for a time, and last at its end. In the first TTL after a start of the host no sweep looks at workers.
func keepReachable(ctx context.Context, all []*sweepSide, ttl time.Duration) error {
	for end, over := time.Now().Add(ttl), false; !over; {
		over = time.Now().After(end)
		for _, s := range all {
			if err := s.beatAll(ctx); err != nil {
				return err
			}
		}
		if err := dohost.Sleep(ctx, min(ttl/8, max(0, time.Until(end)))); err != nil {
			return err
		}
	}
	return nil
}

// sweeps measures the sweep of a large pool, compared with that of a small one.
func sweeps(ctx context.Context, b *bench) (err error) {
	workers, tasks := b.poolSize()
	few := max(1, workers/100)
	ttl := b.sweepTTL(3, tasks)
	var sides []named
	var all []*sweepSide
	for _, c := range []struct {
		name           string
		workers, tasks int
	}{{ours, workers, tasks}, {fmt.Sprintf("%d tasks", few), workers, few}, {fmt.Sprintf("%d workers", few), few, few}} {
		s, err := b.openSweeps(ctx, c.workers, c.tasks, ttl)
		if err != nil {
			return errors.Join(err, closeAll(sides))
		}
		sides, all = append(sides, named{c.name, s}), append(all, s)
	}
	b.progress("waiting for %v, until sweeps look at workers", ttl)
	if err := keepReachable(ctx, all, ttl); err != nil {
		return errors.Join(err, closeAll(sides))
	}
	r := Row{
		ID: "PS1", Unit: "rows and entries read by a sweep",
		What: fmt.Sprintf("the sweep of a pool with %d workers and %d tasks when nothing has lapsed", workers, tasks),
	}
	if r.Sides, err = b.compare(ctx, sides...); err != nil {
		return err
	}
	for i := range r.Sides {
		f, usual := &r.Sides[i], all[i].usual()
		f.Value, f.Allocs, f.Syncs, f.Rounds = usual.reads, usual.allocs, usual.syncs, nil
		for _, round := range all[i].rounds[1:] {
			f.Rounds = append(f.Rounds, round.reads)
		}
	}
	r.Notes = []string{
		fmt.Sprintf("the comparisons have %d workers and %d tasks, and %d workers and %d tasks", workers, few, few, few),
		fmt.Sprintf("before a round each worker sends %d heartbeats, as between two sweeps with the default options; each moves the worker in an "+
			"index, and reads of the index visit the deleted entry until the memtable is flushed", beatsPerSweep),
		"p50 and p99 are the time of the sweep's event, without its alarm and its commits; reads, syncs and allocations include them",
	}
	b.add(r)
	b.addLapse(all, r.Sides)
	return nil
}

// addLapse adds the row of the sweeps that removed all workers.
func (b *bench) addLapse(all []*sweepSide, of []Figure) {
	r := Row{ID: "PS2", Unit: "rows and entries read for each", What: fmt.Sprintf("the sweeps after all %d workers have lapsed", all[0].workers)}
	for i, s := range all {
		value := float64(s.lapse.reads) / float64(s.lapse.workers)
		f := Figure{Side: of[i].Side, Value: value, Rounds: []float64{value}, Checked: s.lapse.workers}
		r.Sides = append(r.Sides, f)
		r.Notes = append(r.Notes, fmt.Sprintf("%s: the longest sweep took %s", f.Side, duration(s.lapse.took)))
	}
	r.Notes = append(r.Notes, "the tasks of the workers are under leases that have not lapsed")
	b.add(r)
}
