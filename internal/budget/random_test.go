package budget

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestWaitEndsWhenItsBytesAreFree draws clients that take, move and return bytes. No lease waits while the budget has its bytes.
// At the end no bytes are counted, and no object has an entry.
func TestWaitEndsWhenItsBytesAreFree(t *testing.T) {
	waits := 0
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			b := New(1000)
			objects := []Object{first, second, {"class", "third"}, {}}[:1+r.IntN(4)]
			var mu sync.Mutex // guards r
			draw := func(n int64) int64 {
				mu.Lock()
				defer mu.Unlock()
				return r.Int64N(n)
			}
			var all sync.WaitGroup
			leases := make([]*Lease, 12)
			for i := range leases {
				l := b.Lease(objects[i%len(objects)])
				leases[i] = l
				all.Go(func() {
					var moved []*Lease
					held := int64(0)
					for range 30 {
						quit := make(chan struct{})
						late := time.AfterFunc(time.Duration(1+draw(5000))*time.Millisecond, func() { close(quit) })
						ready := l.Take(Free + held + draw(200))
						if len(moved) > 0 && draw(2) == 0 { // perhaps while it waits
							time.Sleep(time.Duration(draw(500)) * time.Millisecond)
							moved[0].Release()
							moved = moved[1:]
						}
						if draw(4) == 0 {
							time.Sleep(time.Duration(draw(500)) * time.Millisecond)
							l.Lower(Free + held + draw(100))
						}
						if ready != nil {
							_ = l.Wait(ready, quit) // after an error it keeps the bytes that it had
						}
						late.Stop()
						time.Sleep(time.Duration(draw(500)) * time.Millisecond)
						if draw(4) == 0 {
							moved, held = append(moved, l.Move()), 0
						} else {
							held = draw(l.size() + 1)
							l.Lower(Free + held)
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
				waits += b.check(t, seed, leases)
			}
			all.Wait()
			if waiting := b.check(t, seed, leases); b.used != 0 || waiting != 0 || len(b.waiting) != 0 || len(b.groups) != 0 {
				t.Errorf("seed %d: %d bytes are counted, %d clients wait, %d objects have an entry", seed, b.used, waiting, len(b.groups))
			}
		})
	}
	if waits == 0 {
		t.Error("no client has waited")
	}
}

// size returns the bytes of the lease that are counted.
func (l *Lease) size() int64 {
	l.of.budget.mu.Lock()
	defer l.of.budget.mu.Unlock()
	return l.held
}

// check compares the sums of the clients' bytes with the limit, and returns the number of clients that wait.
func (b *Budget) check(t *testing.T, seed uint64, leases []*Lease) (waiting int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	sums, waits := map[*group]int64{}, map[*group]int{}
	for _, l := range leases {
		c := l.of
		if c.group == nil {
			if c.used != 0 || c.ready != nil {
				t.Errorf("seed %d: a client without a group has %d bytes", seed, c.used)
			}
			continue
		}
		if c.object != (Object{}) && b.groups[c.object] != c.group {
			t.Errorf("seed %d: a client is in another group than its object", seed)
		}
		sums[c.group] += c.used
		if 3*c.used > b.limit {
			t.Errorf("seed %d: a client has %d bytes", seed, c.used)
		}
		if c.ready == nil {
			continue
		}
		waiting++
		waits[c.group]++
		if b.used+c.group.used+c.used+3*c.more <= b.limit {
			t.Errorf("seed %d: a client waits for %d bytes in addition to %d; its object has %d, and all have %d", seed, c.more, c.used, c.group.used, b.used)
		}
	}
	all, unnamed := int64(0), 0
	for g, sum := range sums {
		all += sum
		if g.used != sum || 2*sum > b.limit || len(g.waiting) != waits[g] {
			t.Errorf("seed %d: %d bytes are counted for an object that has %d", seed, g.used, sum)
		}
	}
	for _, l := range leases {
		if l.of.group != nil && l.of.object == (Object{}) {
			unnamed++
		}
	}
	if all != b.used || b.used > b.limit || len(b.waiting) != len(waits) || len(b.groups)+unnamed != len(sums) {
		t.Errorf("seed %d: %d bytes are counted, want %d; %d objects wait, want %d; %d have an entry", seed, b.used, all, len(b.waiting), len(waits), len(b.groups))
	}
	return waiting
}
