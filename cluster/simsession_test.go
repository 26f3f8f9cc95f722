package cluster

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// simSession is the lease of a process for all of its logs, in a simulation with such a table: it is valid as long as the record of the
// process exists. The mu of the table guards it.
type simSession struct {
	number int       // of the record; another one after each expiry
	until  time.Time // when the record expires
	frozen time.Time // when its leases are invalid: half a second before the record of the last acknowledged renewal expires
}

// TestNodeLeasesSurviveFailures is TestClusterSurvivesFailures with one lease for each node, its record in the table.
func TestNodeLeasesSurviveFailures(t *testing.T) { surviveFailures(t, true) }

// renewSessionLocked extends the session of a process. had reports whether its record had not expired.
func (p *simProcess) renewSessionLocked(sent time.Time, ttl time.Duration, had, acknowledged bool) {
	if !had {
		p.session.number++
	}
	p.session.until = time.Now().Add(ttl)
	if !acknowledged {
		return
	}
	p.session.frozen = sent.Add(ttl - 500*time.Millisecond)
	frozen := p.session.frozen
	time.AfterFunc(time.Until(frozen), func() {
		if p.isFrozen(frozen) {
			p.loseAll()
		}
	})
}

// isFrozen reports whether the session was not renewed since a deadline was set.
func (p *simProcess) isFrozen(deadline time.Time) bool {
	s := p.simulation.table
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.session.frozen.Equal(deadline)
}

// loseAll makes all leases of a process invalid.
func (p *simProcess) loseAll() {
	for _, l := range p.simulation.logs {
		l.mu.Lock()
		if o := l.last; o != nil && o.p == p && !o.invalid {
			o.invalid = true
			close(o.lost)
		}
		l.mu.Unlock()
	}
}

// currentSession returns the number of the process's session, or 0 if its record has expired, or may have expired before the deadline.
func (p *simProcess) currentSession() int {
	s := p.simulation.table
	s.mu.Lock()
	defer s.mu.Unlock()
	if !time.Now().Before(p.session.frozen) {
		return 0
	}
	return p.session.number
}

// hasExpired reports whether the record of a session has expired.
func (p *simProcess) hasExpired(session int) bool {
	s := p.simulation.table
	s.mu.Lock()
	defer s.mu.Unlock()
	return session != p.session.number || !time.Now().Before(p.session.until)
}

// endSessionLocked deletes the record of a process.
func (p *simProcess) endSessionLocked() { p.session.until, p.session.frozen = time.Time{}, time.Time{} }

// TestCloseKeepsTheLease closes a node with a host that needs longer than the record of the node lives. The other cells do not wait for it.
func TestCloseKeepsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSimulation(t, 1)
		w.nodeLeases, w.hostTime = true, time.Millisecond
		w.join()
		w.await(time.Minute, "opening", func() bool { return w.owners() == 0 })
		p := w.processes[0]
		slow := p.node.Host(*simCells - 1).(*simHost)
		slow.slow.Store(int64(20 * *simTTL))
		w.join()
		next := w.processes[1]
		p.leave()
		ended := make(chan error)
		go func() { ended <- p.node.Close(t.Context()) }()
		w.await(10**simTTL, "taking the other cells", func() bool { return len(next.serves()) == *simCells-1 })
		for closing := time.Now(); time.Since(closing) < 5**simTTL; time.Sleep(*simTTL / ticks) {
			if !slow.lease.valid() {
				t.Fatal("the lease has ended before its host is closed")
			}
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		w.await(10**simTTL, "taking the last cell", func() bool { return len(next.serves()) == *simCells })
		w.processes = w.processes[1:]
		w.endAll()
	})
}

// TestPlannerThatClosesPlans closes the planner just after a renewal. Its next renewal does not delay the owners of the cells that it has closed.
func TestPlannerThatClosesPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSimulation(t, 1)
		w.nodeLeases, w.hostTime = true, *simTTL/2
		w.join()
		w.join()
		w.await(time.Hour, "balance", func() bool {
			s := w.table.now()
			return w.owners() == 0 && len(s.Members) == 2 && isBalanced(s.Plan, s.Members)
		})
		slices.SortFunc(w.processes, func(a, b *simProcess) int { return w.table.order(a.id(), b.id()) })
		p, next := w.processes[0], w.processes[1]
		p.node.Host(p.serves()[0]).(*simHost).slow.Store(int64(10 * *simTTL))
		for w.table.left(p.id()) < *simTTL-time.Millisecond {
			time.Sleep(time.Millisecond)
		}
		p.leave()
		ended := make(chan error)
		go func() { ended <- p.node.Close(t.Context()) }()
		time.Sleep(w.hostTime + *simTTL/ticks)
		owned := 0
		for _, owner := range ownersOf(w.table.now().Plan) {
			if owner == next.id() {
				owned++
			}
		}
		if owned < *simCells-1 {
			t.Errorf("the other node owns %d cells, want at least all but the slow one", owned)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		w.processes = w.processes[1:]
		w.endAll()
	})
}

// TestCloseOpensNoCell closes a node that is alone, so that the plan still gives all cells to it.
func TestCloseOpensNoCell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSimulation(t, 1)
		w.nodeLeases, w.hostTime = true, time.Millisecond
		w.join()
		w.await(time.Minute, "opening", func() bool { return w.owners() == 0 })
		p := w.processes[0]
		p.node.Host(0).(*simHost).slow.Store(int64(5 * *simTTL))
		p.leave()
		ended := make(chan error)
		go func() { ended <- p.node.Close(t.Context()) }()
		synctest.Wait()
		for closing := time.Now(); time.Since(closing) < 4**simTTL; time.Sleep(*simTTL / ticks) {
			if cells := p.serves(); len(cells) > 0 {
				t.Fatalf("the node serves the cells %v", cells)
			}
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestCloseOfAllNodesPlansNothing closes both nodes of a cluster, each with a slow host: neither gives its other cells to the other one.
func TestCloseOfAllNodesPlansNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSimulation(t, 1)
		w.nodeLeases, w.hostTime = true, time.Millisecond
		w.join()
		w.join()
		w.await(time.Hour, "balance", func() bool {
			s := w.table.now()
			return w.owners() == 0 && len(s.Members) == 2 && isBalanced(s.Plan, s.Members)
		})
		ended := make(chan error)
		for _, p := range w.processes {
			p.node.Host(p.serves()[0]).(*simHost).slow.Store(int64(10 * *simTTL))
			p.leave()
			go func() { ended <- p.node.Close(t.Context()) }()
		}
		time.Sleep(2 * *simTTL)
		before := w.table.now().Revision
		time.Sleep(5 * *simTTL)
		if after := w.table.now().Revision; after != before {
			t.Errorf("the nodes have written %d plans while they wait", after-before)
		}
		for range w.processes {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}
