package dohost_test

import (
	"context"
	"fmt"
	goruntime "runtime"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// costObject is an object with an operation of each kind that has a bounded cost.
type costObject struct {
	store *dohost.Storage
	calls int
}

const costObjects dohost.Namespace[costObject] = "priced"

var costClass = dohost.Bind(costObjects, func(_ context.Context, st *dohost.State) (*costObject, error) {
	return &costObject{store: st.Storage()}, nil
}, &dohost.Handlers[costObject]{
	OnAlarm: func(p *costObject, _ context.Context, _ dohost.AlarmInfo) error {
		p.calls++
		return nil
	},
})

var things = dohost.Collection[int]{
	Name:    "things",
	Key:     func(v int) string { return fmt.Sprintf("%04d", v) },
	Indexes: []dohost.Index[int]{{Name: "tenth", Of: func(v int) dohost.Key { return dohost.KeyOf(fmt.Sprint(v % 10)) }}},
}

// seventh is the key of a tenth of the things.
var seventh = dohost.KeyOf("7")

// Fill writes n rows and n things.
func (p *costObject) Fill(ctx context.Context, n int) (int, error) {
	for i := range n {
		if err := dohost.Put(ctx, p.store, fmt.Sprintf("row/%04d", i), i); err != nil {
			return 0, err
		}
		if err := things.Insert(ctx, p.store, i); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// Touch counts in memory.
func (p *costObject) Touch(_ context.Context, n int) (int, error) {
	p.calls += n
	return p.calls, nil
}

func (p *costObject) Get(ctx context.Context, _ int) (int, error) {
	n, _, err := dohost.Get[int](ctx, p.store, "n")
	return n, err
}

func (p *costObject) Put(ctx context.Context, n int) (int, error) {
	return n, dohost.Put(ctx, p.store, "n", n)
}

func (p *costObject) Add(ctx context.Context, delta int) (int, error) {
	n, err := p.Get(ctx, 0)
	if err != nil {
		return 0, err
	}
	return p.Put(ctx, n+delta)
}

func (p *costObject) Await(ctx context.Context, n int) (int, error) {
	return n, dohost.Await(ctx, func(context.Context) error { return nil })
}

func (p *costObject) AwaitValue(ctx context.Context, n int) (int, error) {
	return dohost.AwaitValue(ctx, func(context.Context) (int, error) { return n, nil })
}

// AwaitDurable waits for a write.
func (p *costObject) AwaitDurable(ctx context.Context, n int) (int, error) {
	if err := dohost.Put(ctx, p.store, "n", n); err != nil {
		return 0, err
	}
	return n, dohost.AwaitDurable(ctx)
}

// List counts the first n rows.
func (p *costObject) List(ctx context.Context, n int) (int, error) {
	rows, err := dohost.List[int](ctx, p.store, &dohost.ListOptions{Prefix: "row/", Limit: n})
	return len(rows), err
}

// Query counts the first n things of a tenth of them.
func (p *costObject) Query(ctx context.Context, n int) (int, error) {
	rows, err := things.List(ctx, p.store, &dohost.Query[int]{Index: "tenth", Equal: seventh, Limit: n})
	return len(rows), err
}

// lines are those of a log, which are written once.
var lines = dohost.Collection[int]{
	Name: "lines", Key: func(n int) string { return string(dohost.KeyOf(n)) }, Blind: true,
}

// Log appends a line to the log.
func (p *costObject) Log(ctx context.Context, n int) (int, error) {
	p.calls += n
	return p.calls, lines.Put(ctx, p.store, p.calls)
}

// Enter is Log in a collection that reads the old row.
func (p *costObject) Enter(ctx context.Context, n int) (int, error) {
	looking := lines
	looking.Name, looking.Blind = "entries", false
	p.calls += n
	return p.calls, looking.Put(ctx, p.store, p.calls)
}

// cost is the cost of one operation for the whole process, all goroutines included.
type cost struct {
	allocs float64
	syncs  float64
	gets   float64 // look-ups in the engine
	steps  float64 // entries that the engine's iterators visited
}

// costMeter measures the costs of a host.
type costMeter struct {
	fs    *objectstore.FS
	reads objectstore.Reads
}

// open opens a host of costObjects.
func (b *costMeter) open(t *testing.T) *dohost.Host {
	t.Helper()
	b.fs = objectstore.NewMemFS()
	o := &dohost.Options{}
	kernel.Tune(o, func(ro *runtime.Options) { ro.Store.Reads = &b.reads })
	return openOn(t, b.fs, o, costClass)
}

// perOperation returns the cost of one of the n operations that do makes.
func (b *costMeter) perOperation(n int, do func()) cost {
	now := func() cost {
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return cost{float64(m.Mallocs), float64(b.fs.Syncs()), float64(b.reads.Gets.Load()), float64(b.reads.Steps.Load())}
	}
	from := now()
	do()
	to := now()
	per := func(from, to float64) float64 { return (to - from) / float64(n) }
	return cost{per(from.allocs, to.allocs), per(from.syncs, to.syncs), per(from.gets, to.gets), per(from.steps, to.steps)}
}

// TestCallCosts checks the cost of a call of an object with a thousand rows, one call at a time. The pools
// for calls are full: there is no garbage collection.
func TestCallCosts(t *testing.T) {
	n := 2000
	if invariants.Enabled {
		n = 200
	}
	for _, c := range []struct {
		name  string
		m     func(*costObject, context.Context, int) (int, error)
		arg   int
		evict bool
		want  cost
	}{
		{"in memory", (*costObject).Touch, 1, false, cost{allocs: 2}},
		{"await", (*costObject).Await, 1, false, cost{allocs: 4}},
		{"await a value", (*costObject).AwaitValue, 1, false, cost{allocs: 4}},
		{"await a write", (*costObject).AwaitDurable, 1, false, cost{allocs: 7, syncs: 1}},
		{"get", (*costObject).Get, 0, false, cost{allocs: 3, gets: 1}},
		{"put", (*costObject).Put, 7, false, cost{allocs: 5, syncs: 1}},
		{"increment", (*costObject).Add, 1, false, cost{allocs: 7, syncs: 1}},
		{"list of 20 rows", (*costObject).List, 20, false, cost{allocs: 58, steps: 20}},
		{"query for 20 rows", (*costObject).Query, 20, false, cost{allocs: 121, gets: 20, steps: 20}},
		{"append a row", (*costObject).Enter, 1, false, cost{allocs: 12, syncs: 1, gets: 1}},
		{"append a row blindly", (*costObject).Log, 1, false, cost{allocs: 12, syncs: 1}},
		{"wake", (*costObject).Touch, 1, true, cost{allocs: 11}},
		{"wake and get", (*costObject).Get, 0, true, cost{allocs: 13, gets: 1}},
		{"wake and list 20 rows", (*costObject).List, 20, true, cost{allocs: 67, steps: 20}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b costMeter
			h := b.open(t)
			s := costObjects.Get(h, "a")
			call := func(m func(*costObject, context.Context, int) (int, error), arg int) {
				if _, err := dohost.Call(t.Context(), s, m, arg); err != nil {
					t.Fatal(err)
				}
			}
			calls := func(n int) {
				for range n {
					if c.evict && !h.Evict(s.ID(), dohost.EndFence) {
						t.Fatal("there was nothing to wake")
					}
					call(c.m, c.arg)
				}
			}
			call((*costObject).Put, 7)
			call((*costObject).Fill, 1000) // more rows than a busy object keeps in memory
			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			calls(100)
			got := b.perOperation(n, func() { calls(n) })
			t.Logf("%+v", got)
			// Work of other goroutines is less than half an allocation a call.
			if d := got.allocs - c.want.allocs; !invariants.Enabled && (d > 0.5 || d < -0.5) {
				t.Errorf("%.2f allocations, want %v", got.allocs, c.want.allocs)
			}
			if got.allocs = c.want.allocs; got != c.want {
				t.Errorf("cost %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestSyncIsSharedByConcurrentCalls makes a hundred calls. The disk is busy with the first one when the others arrive.
func TestSyncIsSharedByConcurrentCalls(t *testing.T) {
	for _, objects := range []int{1, 100} {
		t.Run(fmt.Sprint(objects, " objects"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b costMeter
				h := b.open(t)
				before := b.fs.Syncs()
				release := b.fs.HoldSyncs()
				var wg sync.WaitGroup
				for i := range 100 {
					wg.Go(func() {
						s := costObjects.Get(h, fmt.Sprint(i%objects))
						if _, err := dohost.Call(t.Context(), s, (*costObject).Add, 1); err != nil {
							t.Error(err)
						}
					})
					synctest.Wait()
				}
				release()
				wg.Wait()
				if n := b.fs.Syncs() - before; n != 2 {
					t.Errorf("100 calls cost %d syncs, want 2", n)
				}
			})
		})
	}
}

// TestAlarmCostsOneSyncToSetAndOneToFire fires alarms one by one, of objects that are not in memory.
func TestAlarmCostsOneSyncToSetAndOneToFire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		var b costMeter
		h := b.open(t)
		synctest.Wait() // the scheduler has looked for alarms
		at := time.Now().Add(time.Hour)
		set := b.perOperation(n, func() {
			for i := range n {
				id := costObjects.Get(h, fmt.Sprint(i)).ID()
				if err := h.SetAlarm(t.Context(), id, at.Add(time.Duration(i)*time.Second)); err != nil {
					t.Fatal(err)
				}
			}
		})
		time.Sleep(30 * time.Minute)
		if h.LiveCount() > 0 {
			t.Fatalf("%d objects need not be woken", h.LiveCount())
		}
		fire := b.perOperation(n, func() {
			time.Sleep(time.Hour)
			synctest.Wait()
		})
		set.allocs, fire.allocs = 0, 0
		if want := (cost{syncs: 1, gets: 1}); set != want {
			t.Errorf("to set an alarm costs %+v, want %+v", set, want)
		}
		if want := (cost{syncs: 1, steps: 1}); fire != want { // it is read whole, once
			t.Errorf("to fire one costs %+v, want %+v", fire, want)
		}
	})
}
