package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost/sharedlog"
)

// localCell is a cell as this node has it. While the node should have the cell, a goroutine acquires its log, and serves it.
type localCell struct {
	node   *Node
	number int
	serves atomic.Pointer[Host] // nil if the node does not serve the cell

	// Guarded by the mu of the node.
	stop    context.CancelFunc // ends the goroutine; nil if there is none
	phase   phase
	changed time.Time // when the phase began; later, if another node has reported to serve the cell since then
}

// phase is the phase of a cell whose goroutine runs.
type phase uint8

const (
	acquiring phase = iota // it waits for the log, or pauses after a failure
	opening                // it has the log, and opens a host
	refused                // the last Open has failed
	serving                // a host is open, or is being closed
)

// host returns the host that serves the cell here, or nil.
func (c *localCell) host() Host {
	if h := c.serves.Load(); h != nil {
		return *h
	}
	return nil
}

// want starts the goroutine, or makes it end, as the plan says. If the former one has not ended yet, a later tick starts the next one.
func (c *localCell) want(ctx context.Context, plan Cell) {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if plan.Owner != n.self.ID {
		c.stopLocked()
		return
	}
	if c.stop != nil && c.phase == acquiring && plan.Holder != "" && plan.Holder != n.self.ID {
		c.changed = time.Now() // that node has the log
	}
	if c.stop != nil || n.expired || n.closing {
		return
	}
	ctx, stop := context.WithCancel(ctx)
	c.stop, c.phase, c.changed = stop, acquiring, time.Now()
	n.running.Go(func() { c.run(ctx) })
}

// stopLocked makes the goroutine end.
func (c *localCell) stopLocked() {
	if c.stop != nil {
		c.stop()
	}
}

// isStuckLocked reports whether the node cannot acquire the log. A host that is opened for long, or cannot be opened, is another case:
// another node would need as long, and the directory may have records that the log has lost.
func (c *localCell) isStuckLocked(limit time.Duration) bool {
	return c.stop != nil && c.phase == acquiring && time.Since(c.changed) > limit
}

// enter begins a phase. Another attempt to acquire the log does not begin it anew.
func (c *localCell) enter(p phase) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	if c.phase != p {
		c.phase, c.changed = p, time.Now()
	}
}

// The pauses before a cell is acquired again after a failure.
const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// run serves the cell until ctx ends, also after failures of its host.
func (c *localCell) run(ctx context.Context) {
	n := c.node
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		begun := time.Now()
		err := c.serve(ctx)
		if ctx.Err() != nil {
			if err != nil && !errors.Is(err, context.Canceled) {
				n.log.Error("a cell was closed with an error", "cell", c.number, "err", err)
			}
			break
		}
		if time.Since(begun) > longestPause {
			pause = firstPause
		}
		n.log.Error("a cell has failed; it will be acquired again", "cell", c.number, "err", err, "pause", pause)
		sleep(ctx, pause)
	}
	n.mu.Lock()
	c.stop = nil
	n.mu.Unlock()
	n.hint()
}

// errFailed is the error of a host that has failed without one of its own.
var errFailed = errors.New("cluster: the host has failed")

// serve acquires the log and serves the cell, until ctx ends or the host fails.
func (c *localCell) serve(ctx context.Context) error {
	n := c.node
	c.enter(acquiring)
	log, err := n.o.Log(ctx, c.number)
	if err != nil {
		return err
	}
	lease, err := log.Acquire(ctx)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return c.release(ctx, lease)
	}
	c.enter(opening)
	host, err := n.o.Open(c.number, lease, n)
	if err != nil {
		c.enter(refused)
		return errors.Join(fmt.Errorf("cluster: opening cell %d: %w", c.number, err), c.release(ctx, lease))
	}
	n.log.Info("serving a cell", "cell", c.number, "generation", lease.Generation())
	c.enter(serving)
	c.serves.Store(&host)
	n.hint()
	select {
	case <-ctx.Done():
		err = nil
	case <-host.Failed():
		err = errFailed
	}
	c.serves.Store(nil)
	n.hint()
	err = errors.Join(err, host.Close())
	c.enter(acquiring)
	n.log.Info("closed a cell", "cell", c.number)
	return err
}

// release releases a log that no host has got, also after the end of ctx. It takes at most the time to live: if the log cannot be reached, the node
// notices that when it acquires the log again, and gives the cell back.
func (c *localCell) release(ctx context.Context, lease sharedlog.Lease) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.node.o.TTL)
	defer cancel()
	return lease.Release(ctx)
}

// sleep waits, at most until the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
