package cluster

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/sharedlog"
)

var (
	simNodes  = flag.Int("cluster.nodes", 6, "nodes of the simulation, at most")
	simCells  = flag.Int("cluster.cells", 16, "cells of the simulation")
	simTime   = flag.Duration("cluster.time", time.Hour, "virtual time of the simulation")
	simTTL    = flag.Duration("cluster.ttl", 3*time.Second, "time to live of the records of members")
	simPause  = flag.Duration("cluster.pause", 20*time.Second, "the longest pause between two failures")
	simRandom = flag.Uint64("cluster.seed", 1, "seed of the simulation; 0 for a random one")
)

// place is a part of the cluster that a process may fail to reach.
type place int

const (
	toTable place = iota
	toLogs
	places
)

// simProcess is a node with its connections.
type simProcess struct {
	simulation *simulation
	node       *Node
	session    simSession
	failOpen   atomic.Bool  // the next open fails
	self       atomic.Value // the id of the node, a string

	mu     sync.Mutex
	heal   [places]chan struct{} // closed when the place can be reached again; nil while it can be reached
	since  [places]time.Time     // of the failure; the zero time if there is none
	killed bool
	left   bool // Drain has returned, or Close was called
	closed bool // Close has returned
	joined time.Time
}

var errKilled = errors.New("the process has ended")

// reach waits until the process reaches the place.
func (p *simProcess) reach(ctx context.Context, at place) error {
	for {
		p.mu.Lock()
		heal, killed := p.heal[at], p.killed
		p.mu.Unlock()
		switch {
		case killed:
			return errKilled
		case heal == nil:
			return ctx.Err()
		}
		select {
		case <-heal:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// silent is the time since the process has not reached the place.
func (p *simProcess) silent(at place) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since[at].IsZero() {
		return 0
	}
	return time.Since(p.since[at])
}

func (p *simProcess) cut(list ...place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range list {
		if p.heal[at] == nil {
			now := time.Now()
			p.heal[at], p.since[at] = make(chan struct{}), now
			if at == toLogs && !p.simulation.nodeLeases {
				time.AfterFunc(simLeaseTime-500*time.Millisecond, func() { p.expire(now) })
			}
		}
	}
}

// endFailures ends the failures. Leases that have ended until then are lost.
func (p *simProcess) endFailures() {
	for _, l := range p.simulation.logs {
		l.mu.Lock()
		if l.last != nil && l.last.p == p && l.last.isFreeLocked() {
			l.last.endLocked()
		}
		l.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, heal := range p.heal {
		if heal != nil {
			close(heal)
			p.heal[at], p.since[at] = nil, time.Time{}
		}
	}
	p.joined = time.Now()
}

func (p *simProcess) kill() {
	p.cut(toTable, toLogs)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = true
	for _, heal := range p.heal {
		close(heal)
	}
}

// leave notes that the process ends, and gives back its cells.
func (p *simProcess) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = true
}

func (p *simProcess) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

func (p *simProcess) id() string { return p.self.Load().(string) }

func (p *simProcess) isGood(d time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.killed && !p.left && p.heal[toTable] == nil && p.heal[toLogs] == nil && time.Since(p.joined) >= d
}

// simulation is a cluster with its failures.
type simulation struct {
	t     *testing.T
	r     *rand.Rand
	table *simTable
	logs  []*simLog

	nodeLeases bool // a process has one lease for all logs, which is its record in the table

	hostTime time.Duration // if it is not zero, each host needs it to open and to close

	mu        sync.Mutex
	processes []*simProcess
	leaving   []*simProcess // that drain or close
	byID      map[string]*simProcess
	ending    sync.WaitGroup
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	w := &simulation{t: t, r: rand.New(rand.NewPCG(seed, 0)), table: newSimTable(t, *simTTL, seed), byID: map[string]*simProcess{}}
	for i := range *simCells {
		w.logs = append(w.logs, &simLog{cell: i})
	}
	return w
}

// good reports whether a process has had no failure for so long.
func (w *simulation) good(id string, d time.Duration) bool {
	w.mu.Lock()
	p := w.byID[id]
	w.mu.Unlock()
	return p != nil && p.isGood(d)
}

func (w *simulation) goodOnes() (list []*simProcess) {
	for _, p := range w.processes {
		if p.isGood(0) {
			list = append(list, p)
		}
	}
	return list
}

func (w *simulation) join() {
	p := &simProcess{simulation: w, joined: time.Now()}
	w.table.mu.Lock()
	w.table.hints[p] = make(chan struct{}, 1)
	w.table.mu.Unlock()
	n, err := Start(context.Background(), &Options{
		Table: tableOf{w.table, p}, TTL: *simTTL, Cells: *simCells, Advertise: "http://node", Secret: []byte(testSecret),
		ReleaseTime: simRelease, Open: p.open,
		Log: func(_ context.Context, cell int) (sharedlog.Log, error) { return logOf{w.logs[cell], p}, nil },
	})
	if errors.Is(err, errLost) {
		return // a later event starts another one
	}
	if err != nil {
		w.t.Fatal(err)
	}
	p.node = n
	w.mu.Lock()
	defer w.mu.Unlock()
	w.processes = append(w.processes, p)
	w.byID[n.self.ID] = p
}

// end removes a process after it has been killed, or drains it.
func (w *simulation) end(p *simProcess, drain bool) {
	for i, other := range w.processes {
		if other == p {
			w.processes = append(w.processes[:i:i], w.processes[i+1:]...)
		}
	}
	if drain {
		w.leaving = append(w.leaving, p)
	} else {
		p.kill()
	}
	w.ending.Go(func() {
		if drain {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute+longestBackoff*simWait())
			defer cancel()
			if err := p.node.Drain(ctx); err != nil {
				w.t.Errorf("draining: %v", err)
			}
			p.leave()
		}
		err := p.node.Close(context.Background())
		if drain && err != nil {
			w.t.Errorf("closing: %v", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.closed = true
	})
}

func (s *simTable) now() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshotLocked()
}

// event makes one random change, and returns its name.
func (w *simulation) event() string {
	good := w.goodOnes()
	if len(w.processes) < *simNodes && (len(good) < 2 || w.r.IntN(3) == 0) {
		w.join()
		return "join"
	}
	if len(good) == 0 {
		w.endAllFailures()
		return "the failures end"
	}
	p := good[w.r.IntN(len(good))]
	switch w.r.IntN(7) {
	case 0:
		w.end(p, false)
		return "kill"
	case 1:
		if len(good) == 1 {
			return "nothing"
		}
		w.end(p, true)
		return "drain"
	case 2:
		if w.nodeLeases { // the logs and the table are in one place
			p.cut(toTable, toLogs)
		}
		p.cut(toTable)
		return "no table"
	case 3:
		if w.nodeLeases {
			p.cut(toTable, toLogs)
		}
		p.cut(toLogs)
		return "no logs"
	case 4:
		p.cut(toTable, toLogs)
		return "freeze"
	case 5:
		p.failOpen.Store(true)
		return "failing open"
	}
	w.endAllFailures()
	return "the failures end"
}

func (w *simulation) endAllFailures() {
	for _, p := range w.processes {
		p.endFailures()
	}
}

// owners checks that a cell has at most one valid owner, and returns the number of cells without one.
func (w *simulation) owners() (without int) {
	w.leaving = slices.DeleteFunc(w.leaving, (*simProcess).isClosed)
	processes := slices.Concat(w.processes, w.leaving)
	for cell := range *simCells {
		valid, live := 0, 0
		for _, p := range processes {
			h, ok := p.node.Host(cell).(*simHost)
			if !ok {
				continue
			}
			select {
			case <-h.closed:
				if p.node.Host(cell) == Host(h) { // otherwise the node has closed it after Host
					w.t.Errorf("cell %d is served by a closed host", cell)
				}
			default:
			}
			if h.lease.valid() {
				valid++
				if p.isGood(0) {
					live++
				}
			}
		}
		if valid > 1 {
			w.t.Errorf("cell %d has %d valid owners", cell, valid)
		}
		if live == 0 {
			without++
		}
	}
	return without
}

// limit is the time until all cells have owners again. Each node without logs may have a cell before a good node gets it.
func (w *simulation) limit() time.Duration {
	broken := len(w.processes) - len(w.goodOnes())
	return 5*simSlowest + 2**simTTL + simLeaseTime + 3*time.Second + time.Duration(broken)*(simSlowest+simLeaseTime+2**simTTL+simWait())
}

// await waits until a condition is true.
func (w *simulation) await(limit time.Duration, name string, done func() bool) {
	for begun := time.Now(); !done(); time.Sleep(*simTTL / ticks) {
		if time.Since(begun) > limit {
			s := w.table.now()
			w.t.Fatalf("%s: not after %v, with %d good nodes of %d: %d members, plan %v", name, limit, len(w.goodOnes()), len(w.processes), len(s.Members), s.Plan)
		}
	}
}

// TestClusterSurvivesFailures has nodes that join, end, drain, and lose the table or the logs, in virtual time. After each event all cells
// soon have an owner, as long as a node has no failure. In the end they are balanced.
func TestClusterSurvivesFailures(t *testing.T) { surviveFailures(t, false) }

func surviveFailures(t *testing.T, nodeLeases bool) {
	t.Helper()
	seed := *simRandom
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-cluster.seed=%d", seed)
	synctest.Test(t, func(t *testing.T) {
		w := newSimulation(t, seed)
		w.nodeLeases, w.table.loses = nodeLeases, true
		events, begun := map[string]int{}, time.Now()
		var slowest time.Duration
		for time.Since(begun) < *simTime {
			event := w.event()
			events[event]++
			changed := time.Now()
			if len(w.goodOnes()) > 0 && w.r.IntN(4) > 0 { // otherwise the next event comes first
				w.await(w.limit(), event, func() bool { return w.owners() == 0 })
				slowest = max(slowest, time.Since(changed))
			}
			time.Sleep(time.Duration(w.r.Int64N(int64(*simPause))))
			w.owners()
		}
		w.endAllFailures()
		w.await(time.Duration(*simCells)*(2*simSlowest+*simTTL)+longestBackoff*simWait(), "balance", func() bool {
			s := w.table.now()
			return w.owners() == 0 && len(s.Members) == len(w.processes) && isBalanced(s.Plan, s.Members)
		})
		t.Logf("%v; all cells had owners after %v at most; %d plans, %d moves", events, slowest, w.table.swaps, w.table.moves)
		if len(events) < 7 || w.table.moves == 0 {
			t.Error("the simulation has not had each event")
		}
		w.endAll()
		if s := w.table.now(); len(s.Members) != 0 {
			t.Errorf("the table has %d members after the end of all nodes", len(s.Members))
		}
	})
}
