package budget

import (
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var seeds = flag.Int("seeds", 100, "the number of seeds of the random tests")

// TestWaitEndsWhenItsBytesAreFree draws clients that take, move and return bytes. No lease waits while the share of the rule has its bytes, or
// while it is its turn and the reserve has its bytes. A lease with all bytes that were announced does not wait, also after the lent ones have become
// bytes by the rule. The sum of all leases is counted. At the end no bytes are counted, and no object has an entry.
func TestWaitEndsWhenItsBytesAreFree(t *testing.T) {
	waits, lent, converted := 0, 0, 0
	for seed := range uint64(*seeds) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			b := New(1000)
			objects := []Object{first, second, {"class", "third"}, {}}[:1+r.IntN(4)]
			var mu sync.Mutex // guards r and leases
			draw := func(n int64) int64 {
				mu.Lock()
				defer mu.Unlock()
				return r.Int64N(n)
			}
			var all sync.WaitGroup
			var leases []*Lease // also the moved ones
			for i := range 12 {
				l := b.Lease(objects[i%len(objects)])
				mu.Lock()
				leases = append(leases, l)
				mu.Unlock()
				all.Go(func() {
					var moved []*Lease
					held, most := int64(0), int64(0)
					for range 30 {
						quit := make(chan struct{})
						late := time.AfterFunc(time.Duration(1+draw(5000))*time.Millisecond, func() { close(quit) })
						assured, size := l.isAssured(), held+draw(200)
						if most <= held && !assured { // it is complete, and another one follows
							most = held + draw(300)
						}
						ready := l.Take(Free+size, Free+most)
						if ready != nil && assured && size <= most {
							t.Errorf("seed %d: a lease with all of its bytes waits", seed)
						}
						if len(moved) > 0 && draw(2) == 0 { // perhaps while it waits
							time.Sleep(time.Duration(draw(500)) * time.Millisecond)
							moved[0].Release()
							moved = moved[1:]
						}
						if draw(4) == 0 {
							time.Sleep(time.Duration(draw(500)) * time.Millisecond)
							l.Lower(Free+held+draw(100), Free+most)
						}
						if ready != nil {
							_ = l.Wait(ready, quit) // after an error it keeps the bytes that it had
						}
						late.Stop()
						if l.Reserve(nil, Free+l.size(), 0) != nil { // it reads the size without the lock
							t.Errorf("seed %d: a lease loses bytes", seed)
						}
						time.Sleep(time.Duration(draw(500)) * time.Millisecond)
						if draw(4) == 0 {
							m := l.Move(Free + l.size() - draw(20))
							mu.Lock()
							moved, held, most, leases = append(moved, m), 0, 0, append(leases, m)
							mu.Unlock()
						} else {
							held = draw(l.size() + 1)
							l.Lower(Free+held, Free+most)
						}
					}
					for _, m := range append(moved, l) {
						m.Release()
					}
				})
			}
			for range 500 {
				time.Sleep(20 * time.Millisecond)
				synctest.Wait()
				mu.Lock()
				waits += b.check(t, seed, leases)
				mu.Unlock()
				l, c := b.loansOf(leases)
				lent, converted = lent+l, converted+c
			}
			all.Wait()
			if waiting := b.check(t, seed, leases); b.used+b.lent != 0 || waiting != 0 || len(b.waiting) != 0 || b.turns.Len() != 0 || len(b.groups) != 0 {
				t.Errorf("seed %d: %d bytes are counted, %d clients wait, %d objects have an entry", seed, b.used+b.lent, waiting, len(b.groups))
			}
		})
	}
	if waits == 0 || lent == 0 || converted == 0 {
		t.Errorf("clients have waited %d times, the reserve has lent bytes %d times, and %d times they have become bytes by the rule", waits, lent, converted)
	}
}

// TestLeasesThatGrowEnd draws more leases than the budget has bytes for. Each grows up to its size while it keeps its bytes, and waits without
// a time limit; then it is released. All of them end, so they do not wait for each other.
func TestLeasesThatGrowEnd(t *testing.T) {
	for seed := range uint64(*seeds) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			b := New(1000)
			objects := []Object{first, second, {}}[:1+r.IntN(3)]
			var all sync.WaitGroup
			for i := range 40 {
				size, step := r.Int64N(b.reserve+1), 1+r.Int64N(50)
				pause, l := time.Duration(r.IntN(100))*time.Millisecond, b.Lease(objects[i%len(objects)])
				all.Go(func() {
					for n := int64(0); n < size; time.Sleep(pause) {
						n = min(n+step, size)
						if ready := l.Take(Free+n, Free+size); ready != nil {
							<-ready
						}
					}
					l.Release()
				})
			}
			ended := make(chan struct{})
			go func() {
				all.Wait()
				close(ended)
			}()
			select {
			case <-ended:
			case <-time.After(time.Hour):
				t.Fatalf("seed %d: the leases wait for each other: %+v", seed, b.Usage())
			}
			if u := b.Usage(); u.Used != 0 {
				t.Errorf("seed %d: %+v", seed, u)
			}
		})
	}
}

// size returns the bytes of the lease that are counted.
func (l *Lease) size() int64 {
	l.of.budget.mu.Lock()
	defer l.of.budget.mu.Unlock()
	return l.total
}

// isAssured reports whether the lease has all bytes that were announced.
func (l *Lease) isAssured() bool {
	l.of.budget.mu.Lock()
	defer l.of.budget.mu.Unlock()
	return l.assured
}

// check compares the sums of the clients' bytes with the limit, and returns the number of clients that wait.
func (b *Budget) check(t *testing.T, seed uint64, leases []*Lease) (waiting int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	sums, lent, waits := map[*group]int64{}, map[*group]int64{}, map[*group]int{}
	totals := map[*client]int64{}
	for _, l := range leases {
		if l != nil {
			totals[l.of] += l.total
		}
	}
	for c, total := range totals {
		if total != c.used+c.lent() {
			t.Errorf("seed %d: the leases of a client have %d bytes, and %d by the rule and %d lent ones are counted", seed, total, c.used, c.lent())
		}
		if c.group == nil {
			if c.used != 0 || c.lent() != 0 || c.ready != nil {
				t.Errorf("seed %d: a client without a group has %d bytes", seed, c.used)
			}
			continue
		}
		if c.object != (Object{}) && b.groups[c.object] != c.group {
			t.Errorf("seed %d: a client is in another group than its object", seed)
		}
		sums[c.group] += c.used
		if c.lent() > 0 && lent[c.group] > 0 {
			t.Errorf("seed %d: two clients of an object have lent bytes", seed)
		}
		lent[c.group] += c.lent()
		if 3*c.used > b.share {
			t.Errorf("seed %d: a client has %d bytes", seed, c.used)
		}
		if c.ready == nil {
			continue
		}
		waiting++
		waits[c.group]++
		if b.used+c.group.used+c.used+3*c.more <= b.share {
			t.Errorf("seed %d: a client waits for %d bytes in addition to %d; its object has %d, and all have %d", seed, c.more, c.used, c.group.used, b.used)
		}
	}
	all, allLent, unnamed := int64(0), int64(0), 0
	for g, sum := range sums {
		all += sum
		allLent += lent[g]
		if g.lent() != lent[g] || (g.turn != nil) != (b.borrowerLocked(g) != nil) {
			t.Errorf("seed %d: an object has %d lent bytes, %d are counted, and has a turn: %t", seed, lent[g], g.lent(), g.turn != nil)
		}
		if g.used != sum || 2*sum > b.share || len(g.waiting) != waits[g] {
			t.Errorf("seed %d: %d bytes are counted for an object that has %d", seed, g.used, sum)
		}
	}
	for c := range totals {
		if c.group != nil && c.object == (Object{}) {
			unnamed++
		}
	}
	loans := 0
	for g := range sums {
		if o := g.loan; o != nil {
			loans++
			if need, _ := o.need(); b.used+need <= b.share || o.bytes <= 0 || o.bytes > o.lease.total {
				t.Errorf("seed %d: %d bytes are lent; by the rule there are %d in use", seed, o.bytes, b.used)
			}
		}
	}
	if loans != len(b.loans) {
		t.Errorf("seed %d: %d objects have lent bytes, and %d are counted", seed, loans, len(b.loans))
	}
	if e := b.turns.Front(); e != nil {
		if c := b.borrowerLocked(e.Value.(*group)); b.lent+c.rest <= b.reserve {
			t.Errorf("seed %d: a client waits for %d bytes of the reserve, which has lent %d of %d", seed, c.rest, b.lent, b.reserve)
		}
	}
	if allLent != b.lent || b.lent < 0 || b.lent > b.reserve {
		t.Errorf("seed %d: %d bytes are lent, want %d", seed, b.lent, allLent)
	}
	if all != b.used || b.used < 0 || b.used > b.share || len(b.waiting) != len(waits) || len(b.groups)+unnamed != len(sums) {
		t.Errorf("seed %d: %d bytes are counted, want %d; %d objects wait, want %d; %d have an entry", seed, b.used, all, len(b.waiting), len(waits), len(b.groups))
	}
	return waiting
}

// loansOf returns how many leases have lent bytes, and how many have all of their bytes by the rule after the reserve has lent some.
func (b *Budget) loansOf(leases []*Lease) (lent, converted int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range leases {
		switch {
		case l == nil:
		case l.loanLocked() != nil:
			lent++
		case l.assured:
			converted++
		}
	}
	return lent, converted
}
