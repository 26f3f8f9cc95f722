package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// simTable is a Table in memory. A read may be old, the answer to a write may be lost, and so may be a hint.
type simTable struct {
	t   *testing.T
	ttl time.Duration

	mu       sync.Mutex
	r        *rand.Rand
	records  map[string]simRecord
	plan     Plan
	revision uint64
	older    Snapshot // of some earlier time
	hints    map[*simProcess]chan struct{}
	swaps    int
	moves    int  // of cells whose owner had not ended
	loses    bool // some answers; several in succession end all leases of a node
	exact    bool // no read is old
}

type simRecord struct {
	Member
	until time.Time
}

func newSimTable(t *testing.T, ttl time.Duration, seed uint64) *simTable {
	return &simTable{t: t, ttl: ttl, r: rand.New(rand.NewPCG(seed, 1)), records: map[string]simRecord{}, hints: map[*simProcess]chan struct{}{}}
}

func (s *simTable) membersLocked() (list []Member) {
	for id, r := range s.records {
		if time.Now().Before(r.until) {
			list = append(list, r.Member)
		} else {
			delete(s.records, id)
		}
	}
	slices.SortFunc(list, func(a, b Member) int { return s.order(a.ID, b.ID) })
	return list
}

func (s *simTable) order(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (s *simTable) snapshotLocked() Snapshot {
	return Snapshot{Members: s.membersLocked(), Plan: s.plan.clone(), Revision: s.revision}
}

func (s *simTable) hintLocked() {
	for _, c := range s.hints {
		if s.r.IntN(10) == 0 {
			continue
		}
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// tableOf is the table as one process reaches it.
type tableOf struct {
	*simTable
	p *simProcess
}

var errLost = errors.New("the answer is lost")

func (s tableOf) Renew(ctx context.Context, m Member) error {
	sent := time.Now()
	if err := s.p.reach(ctx, toTable); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.p.self.Store(m.ID)
	_, had := s.records[m.ID]
	had = had && time.Now().Before(s.records[m.ID].until)
	s.records[m.ID] = simRecord{m, time.Now().Add(s.ttl)}
	if !had {
		s.hintLocked()
	}
	lost := s.loses && s.r.IntN(50) == 0
	s.p.renewSessionLocked(sent, s.ttl, had, !lost)
	if lost {
		return errLost
	}
	return nil
}

func (s tableOf) Leave(ctx context.Context, id string) error {
	if err := s.p.reach(ctx, toTable); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, id)
	s.p.endSessionLocked()
	s.hintLocked()
	return nil
}

func (s tableOf) Read(ctx context.Context) (Snapshot, error) {
	if err := s.p.reach(ctx, toTable); err != nil {
		return Snapshot{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.exact && s.older.Revision > 0 && s.r.IntN(20) == 0 {
		return Snapshot{slices.Clone(s.older.Members), s.older.Plan.clone(), s.older.Revision}, nil
	}
	now := s.snapshotLocked()
	if s.r.IntN(10) == 0 {
		s.older = now
	}
	return now, nil
}

func (s tableOf) Swap(ctx context.Context, revision uint64, p Plan) (uint64, error) {
	if err := s.p.reach(ctx, toTable); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision != s.revision {
		return 0, fmt.Errorf("%w: %d", ErrConflict, s.revision)
	}
	s.checkLocked(s.p, p)
	s.plan, s.revision = p.clone(), s.revision+1
	s.swaps++
	s.hintLocked()
	if s.loses && s.r.IntN(50) == 0 {
		return 0, errLost
	}
	return s.revision, nil
}

func (s tableOf) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hints[s.p]
}

// checkLocked compares a new plan with the one before, by the rules for all nodes.
func (s *simTable) checkLocked(by *simProcess, p Plan) {
	if s.revision == 0 {
		return
	}
	self, unsettled, moved := by.id(), 0, 0
	for i, c := range p.Cells {
		before := s.plan.Cells[i]
		if c.Holder != before.Holder && c.Holder != "" && (c.Holder != self || before.Owner != self) {
			s.t.Errorf("%s has written the holder of cell %d: %v after %v", self, i, c, before)
		}
		if c.Holder == "" && before.Holder != "" && before.Holder != self && by.simulation.good(before.Holder, 2*s.ttl) {
			s.t.Errorf("%s has removed the holder of cell %d: %v after %v", self, i, c, before)
		}
		if before.Owner == self && c.Owner != self && c.Avoid == self && by.isGood(simWait()) {
			s.t.Errorf("%s has had no failure, and gives back cell %d: %v after %v", self, i, c, before)
		}
		switch {
		case before.Owner != c.Owner && by.simulation.good(before.Owner, 2*s.ttl):
			moved++
		case !c.isServed():
			unsettled++
		}
	}
	if moved > 1 || moved == 1 && unsettled > 0 {
		s.t.Errorf("%s moves %d cells, while %d have no holder: %v after %v", self, moved, unsettled, p, s.plan)
	}
	s.moves += moved
}
