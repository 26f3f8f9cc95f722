package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dohost/dohost/objectstore"
)

// addition is an operation for the checker: the added number and, if the outcome is
// unknown, its rank among such operations of the same number, in the order of their calls.
type addition struct{ n, rank int }

// summed is the state of the checker: the sum, and how many operations of each number with
// an unknown outcome have had their effect.
type summed struct {
	sum     int
	unknown [3]int
}

// sums is the model of a counter: an operation adds, and returns the new value, or -1 if
// its caller got the end of the incarnation.
var sums = porcupine.Model{
	Init: func() any { return summed{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, got := state.(summed), input.(addition), output.(int)
		s.sum += in.n
		if got >= 0 {
			return got == s.sum, s
		}
		s.unknown[in.n]++
		return s.unknown[in.n] == in.rank, s
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("add(%v) = %v", input, output) },
}

// check reports whether a history is linearizable. Operations with an unknown outcome may
// happen at any time after their call. If two of them add the same number, check takes them
// in the order of their calls: swapping them gives any other order. Without that, the
// number of orders to check would be the number of subsets of them.
func check(ops []porcupine.Operation) porcupine.CheckResult {
	ops = slices.Clone(ops)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var unknown [3]int
	for i, o := range ops {
		in := addition{n: o.Input.(int)}
		if o.Output.(int) < 0 {
			unknown[in.n]++
			in.rank = unknown[in.n]
		}
		ops[i].Input = in
	}
	return porcupine.CheckOperationsTimeout(sums, ops, 20*time.Second)
}

// history is one counter as its callers saw it. A store that fails is opened again.
type history struct {
	t     *testing.T
	clock atomic.Int64

	mu  sync.Mutex
	ops []porcupine.Operation

	lock  chan struct{} // capacity 1; guards the rest, and is held while time passes
	h     *Host
	fs    *objectstore.FS
	opts  Options
	fails int
}

func (x *history) host() *Host {
	x.lock <- struct{}{}
	defer func() { <-x.lock }()
	if x.h == nil || x.h.Err() != nil {
		if x.h != nil {
			_ = x.h.Close() // its error is the failure
			x.fs = x.fs.Crash(50, uint64(x.fails))
			x.fails++
		}
		x.opts.Store.FS = x.fs
		h, err := Open("data", x.opts, []Class{{Name: "counter", New: newCounter}})
		if err != nil {
			x.t.Error(err)
			return x.h
		}
		x.h = h
	}
	return x.h
}

// do is one operation, by the client of that number.
func (x *history) do(client, add int, op func(ctx context.Context, h *Host, add int) (int, error)) {
	call := x.clock.Add(1)
	got, err := op(x.t.Context(), x.host(), add)
	o := porcupine.Operation{ClientId: client, Input: add, Output: got, Call: call, Return: x.clock.Add(1)}
	if err != nil {
		e, ok := errors.AsType[*Error](err)
		if !ok {
			x.t.Error(err)
		}
		if ok && e.Outcome == OutcomeNotRun {
			return
		}
		if !errors.Is(err, ErrFenced) {
			x.t.Error(err)
		}
		o.Output, o.Return = -1, 1<<40 // it may happen at any later time, or never
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ops = append(x.ops, o)
}

// record makes a history of one counter, with callers that add, and read by adding zero,
// under evictions of all modes and failed syncs.
func record(t *testing.T, seed uint64, op func(ctx context.Context, h *Host, add int) (int, error)) (ops []porcupine.Operation, evictions int64, fails int) {
	const callers, each = 8, 10
	synctest.Test(t, func(t *testing.T) {
		c := &chaos{seed: seed, rate: 0.03}
		x := &history{t: t, lock: make(chan struct{}, 1), fs: objectstore.NewMemFS(), opts: Options{Policy: Policy{At: c.at}, Grace: -1}}
		x.host()
		var wg, faults sync.WaitGroup
		stop := make(chan struct{})
		faults.Go(func() { // faults of the disk
			r := rand.New(rand.NewPCG(seed, 99))
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(r.IntN(4000)) * time.Microsecond):
				}
				x.lock <- struct{}{}
				x.fs.FailSyncs(errors.New("disk on fire"))
				<-x.lock
			}
		})
		for client := range callers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(client)))
				for range each {
					time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
					x.do(client, r.IntN(3), op)
				}
			})
		}
		wg.Wait()
		close(stop)
		faults.Wait()
		c.calm.Store(true)
		x.fs.FailSyncs(nil)
		x.do(callers, 0, addAtOnce)
		_ = x.host().Close()
		ops, evictions, fails = x.ops, c.total(), x.fails
	})
	return ops, evictions, fails
}

func addAtOnce(ctx context.Context, h *Host, n int) (int, error) { return add(ctx, h, "a", n) }

// addAndWait adds, and answers after an Await.
func addAndWait(ctx context.Context, h *Host, n int) (int, error) {
	var total int
	err := do(ctx, h, "a", "add", func(ctx context.Context, c *counter) (err error) {
		if total, err = c.add(ctx, n); err != nil {
			return err
		}
		return Await(ctx, func(context.Context) error { time.Sleep(time.Microsecond); return nil })
	})
	if err != nil {
		return 0, err
	}
	return total, nil
}

// addCarelessly reads, gives up the turn, and writes: updates are lost.
func addCarelessly(ctx context.Context, h *Host, n int) (int, error) {
	var total int
	err := do(ctx, h, "a", "add", func(ctx context.Context, c *counter) (err error) {
		old, err := c.get(ctx, "n")
		if err != nil {
			return err
		}
		if err := Sleep(ctx, time.Microsecond); err != nil {
			return err
		}
		total = old + n
		return c.put(ctx, "n", total)
	})
	if err != nil {
		return 0, err
	}
	return total, nil
}

// In spite of fences and disk failures, an object looks from outside as if its events ran
// one after another, each at one moment between call and answer.
func TestHistoriesAreLinearizable(t *testing.T) {
	seed := seeds(t)
	var evictions int64
	fails := 0
	for i := range uint64(60) {
		op := addAtOnce
		if i%2 == 1 {
			op = addAndWait
		}
		ops, e, f := record(t, seed+i, op)
		evictions, fails = evictions+e, fails+f
		if e == 0 || f == 0 {
			t.Errorf("seed %d: %d evictions and %d failed syncs", seed+i, e, f)
		}
		if got := check(ops); got != porcupine.Ok {
			t.Fatalf("seed %d: %v\n%v", seed+i, got, ops)
		}
	}
	t.Logf("%d evictions, %d failed syncs", evictions, fails)
}

func TestHistoriesWithALostUpdateAreRefused(t *testing.T) {
	seed := seeds(t)
	for i := range uint64(50) {
		ops, _, _ := record(t, seed+i, addCarelessly)
		if check(ops) == porcupine.Illegal {
			return
		}
	}
	t.Error("50 histories with lost updates pass")
}
