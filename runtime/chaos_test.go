package runtime

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// draw returns a number in [0, 1) for a seed and a point.
func draw(seed uint64, p Point) float64 {
	h := fnv.New64a()
	fmt.Fprint(h, seed, p.ID, p.Incarnation, p.Event, p.Place, p.N)
	return rand.New(rand.NewPCG(h.Sum64(), seed)).Float64()
}

// chaos ends incarnations at random points, in all modes. As a policy it is a pure
// function of the seed and the point; calm ends it.
type chaos struct {
	seed   uint64
	rate   float64
	calm   atomic.Bool
	ends   [4]atomic.Int64 // by mode
	places [eviction.NumPlaces]atomic.Int64
}

func (c *chaos) at(p Point) eviction.EndMode {
	if c.calm.Load() || draw(c.seed, p) >= c.rate {
		return eviction.EndNone
	}
	mode := eviction.EndFence + eviction.EndMode(draw(c.seed+1, p)*3)
	c.ends[mode].Add(1)
	c.places[p.Place].Add(1)
	return mode
}

func (c *chaos) total() int64 { return c.ends[1].Load() + c.ends[2].Load() + c.ends[3].Load() }

func seeds(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64() % 1_000_000
	t.Logf("seed %d", seed)
	return seed
}

// credit adds a transfer to a counter, once. The counters are accounts: a sum that one sends is in
// an outbox until the receiver has it, and the receiver remembers the sums it got.
func credit(ctx context.Context, c *counter, from string, number, amount int) error {
	last, err := c.get(ctx, "last/"+from)
	if err != nil || number <= last {
		return err
	}
	n, err := c.get(ctx, "n")
	if err != nil {
		return err
	}
	return Transaction(ctx, func(ctx context.Context) error {
		return errors.Join(c.put(ctx, "n", n+amount), c.put(ctx, "last/"+from, number))
	})
}

// transfer debits c and notes the debt to another account.
func transfer(ctx context.Context, c *counter, to string, amount int, request int) error {
	done, err := c.get(ctx, fmt.Sprint("request/", request))
	if err != nil || done > 0 {
		return err
	}
	n, err := c.get(ctx, "n")
	if err != nil {
		return err
	}
	number, err := c.get(ctx, "next/"+to)
	if err != nil {
		return err
	}
	err = errors.Join(
		c.put(ctx, "n", n-amount), c.put(ctx, "next/"+to, number+1),
		c.put(ctx, fmt.Sprint("out/", to), amount+1000*(number+1)), c.put(ctx, fmt.Sprint("request/", request), 1),
		c.s.SetAlarm(ctx, time.Now().Add(time.Second)),
	)
	if err != nil {
		return err
	}
	return settle(ctx, c)
}

// settle pays the debts of the outbox.
func settle(ctx context.Context, c *counter) error {
	type debt struct{ to, value int }
	var debts []debt
	for row, err := range c.s.Scan(ctx, objectstore.Bounds{Space: kv, Prefix: []byte("out/")}) {
		if err != nil {
			return err
		}
		var d debt
		if _, err := fmt.Sscan(string(row.Key[len("out/"):]), &d.to); err != nil {
			return err
		}
		d.value = decode(row.Value)
		debts = append(debts, d)
	}
	for _, d := range debts {
		from := c.s.ID().Name
		err := do(ctx, c.s.Host(), fmt.Sprint(d.to), "credit", func(ctx context.Context, c *counter) error {
			return credit(ctx, c, from, d.value/1000, d.value%1000)
		})
		if err != nil {
			return err
		}
		key := fmt.Sprint("out/", d.to)
		now, err := c.get(ctx, key)
		if err != nil {
			return err
		}
		if now == d.value { // not overwritten since; but see the wait in the caller
			if _, err := c.s.Delete(ctx, kv, []byte(key), false); err != nil {
				return err
			}
		}
	}
	return nil
}

// Counters and transfers between objects are exact after thousands of evictions in
// all modes.
func TestEvictionsAtRandomPointsKeepTransfersExact(t *testing.T) {
	for range 1 {
		synctest.Test(t, func(t *testing.T) {
			const accounts, rounds = 6, 400
			c := &chaos{seed: seeds(t), rate: 0.03}
			class := Class{Name: "counter", New: newCounter, Alarm: func(ctx context.Context, o any, _ alarm.Info) error {
				return Exclusive(ctx, func(ctx context.Context) error { return settle(ctx, o.(*counter)) })
			}}
			h := open(t, objectstore.NewMemFS(), Options{Policy: Policy{At: c.at}}, class)
			retry := func(name, op string, fn func(context.Context, *counter) error) {
				for {
					if err := do(t.Context(), h, name, op, fn); err == nil {
						return
					} else if !errors.Is(err, ErrFenced) && !errors.Is(err, ErrDeadlock) && !errors.Is(err, ErrConstructor) {
						t.Fatalf("%s %s: %v", op, name, err)
					}
					time.Sleep(10 * time.Millisecond)
				}
			}
			var acked [accounts]atomic.Int64
			var wg sync.WaitGroup
			for i := range accounts {
				name := fmt.Sprint(i)
				wg.Go(func() { // pays into other accounts, one payment at a time
					r := rand.New(rand.NewPCG(c.seed, uint64(i)))
					for round := range rounds {
						to := (i + 1 + r.IntN(accounts-1)) % accounts
						amount := r.IntN(100)
						retry(name, "transfer", func(ctx context.Context, c *counter) error {
							pending, err := c.get(ctx, fmt.Sprint("out/", to))
							if err != nil {
								return err
							}
							if pending > 0 {
								if err := settle(ctx, c); err != nil {
									return err
								}
							}
							return transfer(ctx, c, fmt.Sprint(to), amount, round)
						})
					}
				})
				wg.Go(func() { // counts: an answer is a lower bound
					for range rounds {
						var n int
						err := do(t.Context(), h, name, "count", func(ctx context.Context, c *counter) (err error) {
							if n, err = c.get(ctx, "count"); err != nil {
								return err
							}
							n++
							return c.put(ctx, "count", n)
						})
						if err == nil {
							if int64(n) <= acked[i].Load() {
								t.Errorf("account %d counts %d after %d", i, n, acked[i].Load())
							}
							acked[i].Store(int64(n))
						}
					}
				})
			}
			wg.Wait()
			c.calm.Store(true)
			time.Sleep(time.Hour)
			sum := 0
			for i := range accounts {
				retry(fmt.Sprint(i), "audit", func(ctx context.Context, c *counter) error {
					n, err := c.get(ctx, "n")
					if err != nil {
						return err
					}
					sum += n
					count, err := c.get(ctx, "count")
					if int64(count) < acked[i].Load() {
						t.Errorf("account %d: count %d, acknowledged %d", i, count, acked[i].Load())
					}
					for row := range c.s.Scan(ctx, objectstore.Bounds{Space: kv, Prefix: []byte("out/")}) {
						t.Errorf("account %d still owes %s %d", i, row.Key, decode(row.Value))
					}
					return err
				})
			}
			if sum != 0 {
				t.Errorf("the accounts add up to %d", sum)
			}
			if c.total() < 2000 {
				t.Errorf("only %d evictions", c.total())
			}
			t.Logf("%d evictions: %d fence, %d restart, %d crash; by place %v", c.total(), c.ends[1].Load(), c.ends[2].Load(), c.ends[3].Load(), placeCounts(c))
			synctest.Wait() // an answer leaves before its handler's goroutine does
			if z := h.Zombies(); len(z) > 0 || h.active.Load() != 0 {
				t.Errorf("zombies %v, %d active", z, h.active.Load())
			}
		})
	}
}

func placeCounts(c *chaos) map[string]int64 {
	m := map[string]int64{}
	for i := range c.places {
		if n := c.places[i].Load(); n > 0 {
			m[eviction.Place(i).String()] = n
		}
	}
	return m
}

// The policy's function runs on the committer's goroutine at these places.
func TestPolicyGoexitAtARecordLeavesTheHostAlive(t *testing.T) {
	for _, place := range []eviction.Place{eviction.PlaceRecord, eviction.PlaceSync, eviction.PlaceDurable} {
		t.Run(place.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				visits := 0
				h := open(t, objectstore.NewMemFS(), Options{Policy: Policy{At: func(p Point) eviction.EndMode {
					if p.Place == place {
						visits++
						goruntime.Goexit()
					}
					return eviction.EndNone
				}}})
				for want := 1; want <= 3; want++ {
					if n, err := add(t.Context(), h, "a", 1); err != nil || n != want {
						t.Fatalf("add: %d, %v, want %d", n, err, want)
					}
				}
				if visits < 3 {
					t.Errorf("the policy saw %d records", visits)
				}
			})
		})
	}
}

// TestPolicyGoexitAtAStorageOperationReleasesTheTurn ends the goroutine of a handler while it uses the turn.
func TestPolicyGoexitAtAStorageOperationReleasesTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		h := open(t, objectstore.NewMemFS(), Options{Policy: Policy{Trusted: true, At: func(p Point) eviction.EndMode {
			if p.Place == eviction.PlaceStorage && p.Op == "read" && ended.CompareAndSwap(false, true) {
				goruntime.Goexit()
			}
			return eviction.EndNone
		}}})
		read := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return do(ctx, h, "a", "read", func(ctx context.Context, c *counter) error {
				_, err := c.get(ctx, "n")
				return err
			})
		}
		if err := read(); !errors.Is(err, ErrFenced) {
			t.Errorf("the event that was ended: %v", err)
		}
		if err := read(); err != nil {
			t.Errorf("the next event: %v", err)
		}
	})
}
