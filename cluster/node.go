package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost/sharedlog"
)

// Host serves a cell. Its ServeHTTP is called concurrently, and may be called during and after Close. In a program it is a *dohost.Host with an HTTP handler of its own.
type Host interface {
	http.Handler
	// Close refuses new requests, ends the running ones, and releases the lease. It is called once.
	Close() error
	// Failed is closed when the host can serve no more, for instance since its lease is lost.
	Failed() <-chan struct{}
}

// Node is a member of a cluster, and serves the cells that the plan gives to it. Its methods may be called from any goroutine.
type Node struct {
	o        Options
	self     Member
	log      *slog.Logger
	cancel   context.CancelFunc // ends the goroutine of the node
	ended    chan struct{}      // closed when that has ended
	wake     chan struct{}      // holds a hint that a cell has changed
	known    atomic.Pointer[view]
	inFlight requestsInFlight // of its router, and calls of its objects
	calls    calls
	edge     edge // durable sockets of its clients
	cells    []*localCell
	expiry   *time.Timer // calls expire at the deadline of the record

	drain    atomic.Bool
	drained  chan struct{} // closed when a draining node has no cell that another node could have
	draining sync.Once     // closes drained

	unsigned rareLog // requests with a wrong signature

	// mu guards the rest. It is not held during I/O.
	mu      sync.Mutex
	expired bool // the record may have expired
	closing bool // Close was called
	running sync.WaitGroup

	// Of the node's goroutine.
	sent     time.Time // of the last renewal that succeeded
	joined   time.Time // of the first renewal
	rejoined time.Time // of the last renewal of an expired record that began a pause
	failing  bool      // the last tick has failed

	backoffUntil time.Time     // the node gets no cells until then
	backoffTime  time.Duration // the duration of the last such time
}

// Start makes this process a node. While the table returns an error that wraps [sharedlog.ErrUnavailable], Start tries again, six times in
// Options.TTL, until ctx ends. Close ends the node; the end of ctx after the return of Start does not.
//
// Errors: an error for an invalid option, and for a plan with another number of cells; the other errors of the table; the cause of ctx.
func Start(ctx context.Context, o *Options) (*Node, error) {
	options, err := o.check()
	if err != nil {
		return nil, err
	}
	n := &Node{
		o: options, self: Member{ID: rand.Text(), Address: options.Advertise}, log: options.Logger, expired: true,
		ended: make(chan struct{}), wake: make(chan struct{}, 1), drained: make(chan struct{}),
	}
	for i := range options.Cells {
		n.cells = append(n.cells, &localCell{node: n, number: i})
	}
	if err := n.join(ctx); err != nil {
		return nil, err
	}
	ctx, n.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go n.run(ctx)
	return n, nil
}

// join waits until the table is available: its servers may have just started, and elect their leaders.
func (n *Node) join(ctx context.Context) error {
	for {
		err := n.checkPlan(ctx)
		if !errors.Is(err, sharedlog.ErrUnavailable) {
			return err
		}
		n.log.Warn("waiting for the table of the cluster", "err", err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(n.o.TTL / ticks):
		}
	}
}

// checkPlan checks the number of cells before the node is a member, since the planner would give it cells. The first node makes the plan.
func (n *Node) checkPlan(ctx context.Context) error {
	s, err := n.o.Table.Read(ctx)
	if err != nil {
		return err
	}
	if s.Revision == 0 {
		p, err := NewPlan(n.o.Cells)
		if err != nil {
			return err
		}
		if _, err = n.o.Table.Swap(ctx, 0, p); err != nil && !errors.Is(err, ErrConflict) {
			return err
		}
		if s, err = n.o.Table.Read(ctx); err != nil {
			return err
		}
	}
	return n.checkCells(&s)
}

// checkCells returns an error for the plan of another number of cells: its objects are in other cells than the cells of this node.
func (n *Node) checkCells(s *Snapshot) error {
	if got := len(s.Plan.Cells); got != len(n.cells) {
		return fmt.Errorf("cluster: the cluster has %d cells, this node %d: the number cannot be changed", got, len(n.cells))
	}
	return nil
}

const (
	renewals = 3 // in the time to live of a record
	ticks    = 6 // likewise
	tries    = 5 // to change the plan, in one tick
	patience = 4 // times to live, for the acquisition of a log, in addition to ReleaseTime
	steady   = 2 // times to live between two pauses after expired records, so that a node with a bad connection plans

	firstBackoff   = 5 // times the wait for a log, so that other nodes without logs give the cells back before this one gets them again
	longestBackoff = 50
)

// run is the node's goroutine.
func (n *Node) run(ctx context.Context) {
	defer close(n.ended)
	ticker := time.NewTicker(n.o.TTL / ticks)
	defer ticker.Stop()
	for {
		n.note(ctx, n.tick(ctx))
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-n.wake:
		case <-n.o.Table.Changed():
		}
	}
}

// note logs the first failure of several, and the end of them.
func (n *Node) note(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && !n.failing:
		n.failing = true
		n.log.Error("the table of the cluster cannot be used", "err", err)
	case err == nil && n.failing:
		n.failing = false
		n.log.Info("the table of the cluster can be used again")
	}
}

// tick renews the record, reads the table, reports the cells, plans if this node is the planner, and opens and closes cells.
func (n *Node) tick(ctx context.Context) error {
	if time.Since(n.sent) >= n.o.TTL/renewals {
		if err := n.renew(ctx); err != nil {
			return err
		}
	}
	s, err := n.agree(ctx)
	if err != nil {
		return err
	}
	n.learn(newView(&s))
	for i, c := range n.cells {
		c.want(ctx, s.Plan.Cells[i])
	}
	n.checkDrained(&s)
	return nil
}

// renew writes the record. The node closes its cells if that does not succeed for five sixths of the time to live.
func (n *Node) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.o.TTL/renewals)
	defer cancel()
	sent := time.Now()
	if err := n.o.Table.Renew(ctx, n.self); err != nil {
		return err
	}
	n.sent = sent
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.expiry == nil:
		n.joined = time.Now()
	case n.expired && time.Since(n.rejoined) > steady*n.o.TTL:
		n.rejoined = time.Now()
	}
	left := n.o.TTL*(ticks-1)/ticks - time.Since(sent)
	n.expired = left <= 0
	if n.expiry == nil {
		n.expiry = time.AfterFunc(left, n.expire)
	} else {
		n.expiry.Reset(left)
	}
	return nil
}

// expire closes the cells, since other nodes may not count this one as a member any more.
func (n *Node) expire() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expired = true
	n.stopLocked()
}

// stopLocked makes the goroutines of all cells end.
func (n *Node) stopLocked() {
	for _, c := range n.cells {
		c.stopLocked()
	}
}

// agree returns a snapshot that has the reports of this node, and its plan if it is the planner. The next renewal is due after a third of
// the time to live, and does not wait longer than a sixth for a slow table.
func (n *Node) agree(ctx context.Context) (s Snapshot, err error) {
	ctx, cancel := context.WithDeadline(ctx, n.sent.Add(n.o.TTL/renewals+n.o.TTL/ticks))
	defer cancel()
	cells := n.states()
	backsOff := n.backsOff(cells)
	for range tries {
		if s, err = n.o.Table.Read(ctx); err != nil {
			return s, err
		}
		if s.Revision == 0 { // the table has lost it
			if s.Plan, err = NewPlan(len(n.cells)); err != nil {
				return s, err
			}
		}
		if err = n.checkCells(&s); err != nil {
			n.expire()
			return s, err
		}
		if !s.othersStay(n.self.ID) { // they would give back the cells of this node, too
			keep(cells)
		}
		p := s.Plan.report(n.self.ID, cells, n.drain.Load(), backsOff)
		if n.plans(&s) {
			p = Next(p, s.Members)
		}
		if s.Revision != 0 && p.Equal(s.Plan) {
			return s, nil
		}
		revision, err := n.o.Table.Swap(ctx, s.Revision, p)
		if err == nil {
			s.Plan, s.Revision = p, revision
			return s, nil
		}
		if !errors.Is(err, ErrConflict) {
			return s, err
		}
	}
	return s, fmt.Errorf("%w, %d times", ErrConflict, tries)
}

// hasOpenedSince reports whether the node has a host that it has opened after a time.
func (n *Node) hasOpenedSince(t time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.cells, func(c *localCell) bool { return c.host() != nil && c.changed.After(t) })
}

// states returns the states of the cells on this node.
func (n *Node) states() []localState {
	list := make([]localState, len(n.cells))
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, c := range n.cells {
		switch {
		case c.phase == serving:
			list[i] = held
		case c.isStuckLocked(n.o.wait()):
			list[i] = stuck
		case n.closing && c.stop == nil:
			list[i] = closed
		}
	}
	return list
}

// backsOff reports whether the node cannot acquire logs. It then gets no cells for a while that others can serve.
func (n *Node) backsOff(cells []localState) bool {
	now := time.Now()
	switch {
	case slices.Contains(cells, stuck) && now.After(n.backoffUntil):
		n.backoffTime = min(max(2*n.backoffTime, firstBackoff*n.o.wait()), longestBackoff*n.o.wait())
		n.backoffUntil = now.Add(n.backoffTime)
		n.log.Error("the logs of cells cannot be acquired; this node gets no cells for a while", "time", n.backoffTime)
	case n.hasOpenedSince(n.backoffUntil.Add(-n.backoffTime)):
		n.backoffUntil, n.backoffTime = time.Time{}, 0
	}
	return now.Before(n.backoffUntil)
}

// Drain gives the cells to other nodes, one after the other, and returns when this node has none, when all nodes drain, or when ctx ends.
// No cell moves while the other nodes cannot acquire logs, or while a cell is not served by its owner. The node remains a member that gets
// no cells. Drain returns nil if Close is called, and the cause of ctx if ctx ends first.
func (n *Node) Drain(ctx context.Context) error {
	n.drain.Store(true)
	n.hint()
	select {
	case <-n.drained:
		return nil
	case <-n.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// checkDrained ends Drain if this node has no cell, or if all nodes drain. It waits for a node that backs off: that may get cells later.
func (n *Node) checkDrained(s *Snapshot) {
	if !slices.Contains(s.Plan.Draining, n.self.ID) {
		return
	}
	has := slices.ContainsFunc(s.Plan.Cells, func(c Cell) bool { return c.Owner == n.self.ID || c.Holder == n.self.ID })
	if !has || !s.othersStay(n.self.ID) {
		n.draining.Do(func() { close(n.drained) })
	}
}

// Close closes the durable sockets of the clients of this node with 1012, for 5 s at most. Then it closes all cells, waits without a limit
// until their hosts are closed, and deletes the record of the node. Until then it renews the record, on which the leases of the hosts may
// depend, and gives each cell back when its host is closed, if another node does not drain. ctx and the time to live bound only the deletion.
// Close may be called more than once.
//
// Errors: the error of Table.Leave.
func (n *Node) Close(ctx context.Context) error {
	n.drain.Store(true)
	n.mu.Lock()
	n.closing = true
	n.mu.Unlock()
	n.edge.close()
	n.mu.Lock()
	n.stopLocked() // the record has not expired: the planner does not pause
	n.mu.Unlock()
	n.running.Wait()
	n.cancel()
	<-n.ended
	n.mu.Lock()
	if n.expiry != nil {
		n.expiry.Stop()
	}
	n.mu.Unlock()
	n.calls.close()
	ctx, cancel := context.WithTimeout(ctx, n.o.TTL)
	defer cancel()
	return n.o.Table.Leave(ctx, n.self.ID)
}

// hint makes the node's goroutine tick.
func (n *Node) hint() {
	select {
	case n.wake <- struct{}{}:
	default: // it has a hint
	}
}

// Host returns the host of a cell that this node serves, or nil.
func (n *Node) Host(cell int) Host {
	if cell < 0 || cell >= len(n.cells) {
		return nil
	}
	return n.cells[cell].host()
}
