package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/pool"
	"github.com/dohost/dohost/web"
)

// stillPool are the options of a pool whose sweep does not run during a measurement.
var stillPool = pool.Options{Heartbeat: 30 * time.Second, TTL: 12 * time.Hour, Sweep: 24 * time.Hour, Lease: 12 * time.Hour, Progress: -1}

// beatSide is a pool whose workers send heartbeats. The sends of one worker follow one another.
type beatSide struct {
	poolHost
	send  func(ctx context.Context, m *meter) error
	until []time.Time // the last answer to each worker
	sent  []int64     // by each worker
}

// openBeats opens a pool whose workers send heartbeats in closed loops, with a call of each outstanding.
func (b *bench) openBeats(ctx context.Context, workers, tasks int) (*beatSide, error) {
	s := &beatSide{
		poolHost: poolHost{options: &stillPool, workers: workers, tasks: tasks}, until: make([]time.Time, workers), sent: make([]int64, workers),
	}
	s.send = s.closedLoops
	return s, b.openPool(ctx, &s.poolHost)
}

// one sends a heartbeat of the i-th worker.
func (s *beatSide) one(ctx context.Context, i int) (err error) {
	if s.until[i], err = s.beat(ctx, i); err == nil {
		s.sent[i]++
	}
	return err
}

func (s *beatSide) closedLoops(ctx context.Context, m *meter) error {
	return m.each(s.workers, func(i int, w *worker) error {
		for over := false; !over; over = w.over() {
			began := time.Now()
			if err := s.one(ctx, i); err != nil {
				return err
			}
			w.did(began)
		}
		return nil
	})
}

func (s *beatSide) work(ctx context.Context, m *meter) error { return s.send(ctx, m) }

// verify reads the workers from the disk: each is reachable until the time of the last answer to it.
func (s *beatSide) verify(ctx context.Context, done int64) error {
	if err := errors.Join(s.Close(), s.open()); err != nil {
		return err
	}
	all, err := s.list(ctx)
	if err != nil {
		return err
	}
	at := map[string]pool.Worker{}
	for _, w := range all {
		at[w.Conn] = w
	}
	var sum int64
	for i, want := range s.until {
		w, ok := at[conn(i)]
		if sum += s.sent[i]; s.sent[i] > 0 && (!ok || !w.Until.Equal(want) || !w.Reachable) {
			return fmt.Errorf("the worker %d is %+v, and the last answer to it was %v", i, w, want)
		}
	}
	if len(all) != s.workers || sum != done {
		return fmt.Errorf("the pool has %d workers of %d, which have sent %d heartbeats, and %d were counted", len(all), s.workers, sum, done)
	}
	return s.verifyTasks(ctx)
}

func (s *beatSide) syncs() int64 { return s.fs.Syncs() }

func (s *beatSide) close() error { return s.Close() }

// paced makes operations one after the other, at random times, rate a second on average. Each counts from its due time.
func paced(ctx context.Context, m *meter, seed uint64, rate float64, d time.Duration, one func(ctx context.Context) error) error {
	w, began := m.worker(), time.Now()
	for _, due := range arrivals(seed, rate, d) {
		if err := dohost.Sleep(ctx, time.Until(began.Add(due))); err != nil {
			return err
		}
		if err := one(ctx); err != nil {
			return err
		}
		w.did(began.Add(due))
	}
	return nil
}

// pace is the heartbeats of all workers in a second, with the default options.
func (s *beatSide) pace() float64 { return float64(s.workers) / s.options.Heartbeat.Seconds() }

// atPace sends heartbeats of the workers in turn, at their pace.
func (s *beatSide) atPace(seed uint64, d time.Duration) func(ctx context.Context, m *meter) error {
	next := 0
	return func(ctx context.Context, m *meter) error {
		return paced(ctx, m, seed+uint64(next), s.pace(), d, func(ctx context.Context) error {
			next++
			return s.one(ctx, next%s.workers)
		})
	}
}

// pacedCalls are increments at a pace.
type pacedCalls struct {
	*counting
	rate float64
	d    time.Duration
	seed uint64
}

func (p *pacedCalls) work(ctx context.Context, m *meter) error {
	p.seed++
	return paced(ctx, m, p.seed, p.rate, p.d, func(ctx context.Context) error {
		_, err := dohost.Call(ctx, subjects.Get(p.host, name(0)), p.method, 1)
		return err
	})
}

// overHTTP sends heartbeats over HTTP, by connections that each have a part of the workers.
func (s *beatSide) overHTTP(at string) func(ctx context.Context, m *meter) error {
	return func(ctx context.Context, m *meter) error {
		return m.each(min(connections, s.workers), func(c int, w *worker) error {
			l, err := dial(ctx, at)
			if err != nil {
				return err
			}
			i := c
			for over := false; !over && err == nil; over = w.over() {
				began := time.Now()
				if s.until[i], err = l.beat(i); err == nil {
					s.sent[i]++
					w.did(began)
				}
				if i += connections; i >= s.workers {
					i = c
				}
			}
			return errors.Join(err, l.conn.Close())
		})
	}
}

// beat sends a heartbeat of the i-th worker.
func (l *httpConn) beat(i int) (time.Time, error) {
	var answer pool.HeartbeatResponse
	err := l.postJSON("/objects/pool/bench/beat", pool.HeartbeatRequest{Role: poolRole, Conn: conn(i)}, &answer)
	return answer.Until, err
}

// serve serves the pool over HTTP on loopback.
func (p *poolHost) serve() (at string, stop func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	stop = serveOn(l, web.Handler(p.Host, &web.Options{Classes: []string{string(pool.Pools)}, NewObjects: -1}))
	return l.Addr().String(), stop, nil
}

// servedBeats is a beatSide with an HTTP server, which its verification does not need.
type servedBeats struct {
	*beatSide
	stop func() error
}

func (s *servedBeats) verify(ctx context.Context, done int64) error {
	if err := s.stop(); err != nil {
		return err
	}
	s.stop = func() error { return nil }
	return s.beatSide.verify(ctx, done)
}

func (s *servedBeats) close() error { return errors.Join(s.stop(), s.beatSide.close()) }

// heartbeats measures the heartbeats of a pool.
func heartbeats(ctx context.Context, b *bench) error {
	workers, tasks := b.poolSize()
	return errors.Join(b.manyBeats(ctx, workers, tasks), b.pacedBeats(ctx, workers, tasks), b.servedBeats(ctx, workers, tasks))
}

// manyBeats measures the most heartbeats that a pool accepts, with tasks and without them.
func (b *bench) manyBeats(ctx context.Context, workers, tasks int) (err error) {
	full, err := b.openBeats(ctx, workers, tasks)
	if err != nil {
		return err
	}
	sides := []named{{ours, full}}
	empty, err := b.openBeats(ctx, workers, 0)
	if err != nil {
		return errors.Join(err, closeAll(sides))
	}
	sides = append(sides, named{"no tasks", empty})
	h, err := b.open(dohost.Options{}, nil)
	if err != nil {
		return errors.Join(err, closeAll(sides))
	}
	sides = append(sides, named{"increments", &counting{host: h, objects: 1, callers: workers, method: (*subject).add}})
	r := Row{
		ID: "PB1", Unit: "heartbeats/s",
		What: fmt.Sprintf("heartbeats of a pool with %d workers and %d tasks, a heartbeat of each worker outstanding", workers, tasks),
	}
	if r.Sides, err = b.compare(ctx, sides...); err != nil {
		return err
	}
	r.Notes = []string{
		"a heartbeat reads the pool's row and the worker's, and writes the worker's row and moves it in two indexes",
		sharing(r.Sides),
		fmt.Sprintf("no tasks: a pool with the same workers, at rest otherwise; increments: an object with one key, %d callers", workers),
		fmt.Sprintf("with the default options, %d workers send %s heartbeats in a second", workers, number(float64(workers)/30)),
	}
	b.add(r)
	return nil
}

// sharing describes the operations that share a sync.
func sharing(fs []Figure) string {
	text := ""
	for _, f := range fs {
		if f.Syncs > 0 {
			text += fmt.Sprintf("; %s %s", f.Side, number(1/f.Syncs))
		}
	}
	return "operations for each sync" + text
}

// pacedBeats measures heartbeats at the pace of the default options.
func (b *bench) pacedBeats(ctx context.Context, workers, tasks int) error {
	s, err := b.openBeats(ctx, workers, tasks)
	if err != nil {
		return err
	}
	s.send = s.atPace(b.seed, b.duration)
	h, err := b.open(dohost.Options{}, nil)
	if err != nil {
		return errors.Join(err, s.close())
	}
	calls := &pacedCalls{&counting{host: h, objects: 1, method: (*subject).add}, s.pace(), b.duration, b.seed}
	r := Row{
		ID: "PB2", Unit: "heartbeats/s",
		What: fmt.Sprintf("the same, each worker every %v, at random times", s.options.Heartbeat),
	}
	if r.Sides, err = b.compare(ctx, named{ours, s}, named{"increments", calls}); err != nil {
		return err
	}
	r.Notes = []string{"p50 and p99 are from the due time of a heartbeat", sharing(r.Sides), "increments: an object with one key, at the same pace"}
	b.add(r)
	return nil
}

// servedBeats measures the most heartbeats that a pool accepts over HTTP.
func (b *bench) servedBeats(ctx context.Context, workers, tasks int) error {
	s, err := b.openBeats(ctx, workers, tasks)
	if err != nil {
		return err
	}
	at, stop, err := s.serve()
	if err != nil {
		return errors.Join(err, s.close())
	}
	s.send = s.overHTTP(at)
	r := Row{ID: "PB3", Unit: "heartbeats/s", What: fmt.Sprintf("the same, over HTTP, %d connections", min(connections, workers))}
	if r.Sides, err = b.compare(ctx, named{ours, &servedBeats{s, stop}}); err != nil {
		return err
	}
	r.Notes = []string{"the clients share the process and the machine with the server", sharing(r.Sides)}
	b.add(r)
	return nil
}
