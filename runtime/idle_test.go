package runtime

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/objectstore"
)

// idle returns the policy that package dohost sets.
func idle(i eviction.Idle) Policy {
	return Policy{Idle: func(_ ID, incarnation, events uint64) time.Duration { return i.After(incarnation, events) }}
}

const (
	idleLeast = 70 * time.Second
	idleMost  = 140*time.Second + sweepEvery // limits are checked every second
)

// ends records the ends of incarnations, with their times.
type ends struct {
	mu   sync.Mutex
	byID map[string]Ended
	at   map[string]time.Time
	list []string
}

func (e *ends) listener() Listener {
	e.byID, e.at = map[string]Ended{}, map[string]time.Time{}
	return Listener{Fenced: func(end Ended) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.byID[end.ID.Name], e.at[end.ID.Name] = end, time.Now()
		e.list = append(e.list, end.ID.Name)
	}}
}

// names lists the objects of ended incarnations, in the order of their ends.
func (e *ends) names() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

func (e *ends) of(name string) Ended {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.byID[name]
}

// wantIdle checks that name was evicted for having been idle since from, and returns how
// long it was idle.
func (e *ends) wantIdle(t *testing.T, name string, from time.Time) time.Duration {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	end, ok := e.byID[name]
	idle := e.at[name].Sub(from)
	if !ok || end.Cause.Reason != ReasonIdle || idle < idleLeast || idle > idleMost {
		t.Errorf("%s ended: %v, %v after it had last something to do: %v", name, ok, idle, end.Cause)
	}
	return idle
}

// pass lets d pass, until every goroutine waits.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// touch is a handler that does nothing.
func touch(context.Context, *counter) error { return nil }

func TestIdleEvictionComesAfter70To140Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e ends
		h := open(t, objectstore.NewMemFS(), Options{Policy: idle(eviction.Idle{}), Listener: e.listener()})
		last := map[string]time.Time{}
		for i := range 500 {
			name := fmt.Sprint(i)
			if err := do(t.Context(), h, name, "touch", touch); err != nil {
				t.Fatal(err)
			}
			last[name] = time.Now()
			time.Sleep(37 * time.Millisecond)
		}
		pass(5 * time.Minute)
		if h.Live() != 0 || len(e.names()) != 500 {
			t.Errorf("%d live, %d ended", h.Live(), len(e.names()))
		}
		spread := map[int]int{}
		for name, from := range last {
			spread[int(e.wantIdle(t, name, from)/(10*time.Second))]++
		}
		for tens := 7; tens < 14; tens++ {
			if n := spread[tens]; n < 40 || n > 110 {
				t.Errorf("%d of 500 left after %d0 to %d9 s: %v", n, tens, tens, spread)
			}
		}
		for _, s := range h.all() {
			t.Errorf("%v is still in the table", s.id())
		}
	})
}

func TestIdleTimeRestartsWithEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e ends
		h := open(t, objectstore.NewMemFS(), Options{Policy: idle(eviction.Idle{}), Listener: e.listener()})
		for range 20 {
			if err := do(t.Context(), h, "a", "touch", touch); err != nil {
				t.Fatal(err)
			}
			pass(69 * time.Second)
			if info, _ := h.Inspect(id("a")); info.Idle != 69*time.Second || len(e.names()) > 0 {
				t.Fatalf("idle %v, ended %v", info.Idle, e.names())
			}
		}
		last := time.Now().Add(-69 * time.Second)
		pass(time.Hour)
		e.wantIdle(t, "a", last)
	})
}

func TestPinKeepsItsObjectInMemoryAndIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e ends
		h := open(t, objectstore.NewMemFS(), Options{Policy: idle(eviction.Idle{}), Listener: e.listener()})
		var socket, lease func()
		if err := do(t.Context(), h, "a", "pin", func(_ context.Context, c *counter) error {
			socket, lease = c.s.Pin("socket"), c.s.Pin("lease")
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		pins := func() string {
			synctest.Wait()
			info, ok := h.Inspect(id("a"))
			slices.SortFunc(info.Pins, func(a, b Pin) int { return strings.Compare(a.Reason, b.Reason) })
			if info.Idle > 0 {
				t.Errorf("idle for %v", info.Idle)
			}
			return fmt.Sprint(ok, info.Pins)
		}
		pass(time.Hour)
		if got := pins(); got != "true [{lease 1h0m0s} {socket 1h0m0s}]" {
			t.Errorf("pins: %s", got)
		}
		socket()
		socket() // changes nothing, and does not count for the other
		pass(time.Hour)
		if got := pins(); got != "true [{lease 2h0m0s}]" || len(e.names()) > 0 {
			t.Errorf("pins: %s, ended %v", got, e.names())
		}
		lease()
		from := time.Now()
		pass(time.Hour)
		e.wantIdle(t, "a", from)
	})
}

func TestIdleEvictionSparesObjectsWithWork(t *testing.T) {
	const busy = 10 * time.Minute
	for what, start := range map[string]func(t *testing.T, h *Host){
		"event running": func(t *testing.T, h *Host) {
			goDo(t.Context(), h, "a", "running", func(context.Context, *counter) error { time.Sleep(busy); return nil })
		},
		"event asleep": func(t *testing.T, h *Host) {
			goDo(t.Context(), h, "a", "asleep", func(ctx context.Context, _ *counter) error { return Sleep(ctx, busy) })
		},
		"event calling": func(t *testing.T, h *Host) {
			goDo(t.Context(), h, "a", "calling", func(ctx context.Context, _ *counter) error {
				return do(ctx, h, "callee", "slow", func(ctx context.Context, _ *counter) error { return Sleep(ctx, busy) })
			})
		},
		"task later": func(t *testing.T, h *Host) {
			goDo(t.Context(), h, "a", "start", func(ctx context.Context, c *counter) error {
				return c.s.Go(ctx, "later", func(ctx context.Context) error { return Sleep(ctx, busy) })
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var e ends
				h := open(t, objectstore.NewMemFS(), Options{Policy: idle(eviction.Idle{}), Listener: e.listener()})
				start(t, h)
				pass(busy - time.Second)
				info, ok := h.Inspect(id("a"))
				if !ok || len(info.Pins) != 1 || info.Pins[0].Reason != what || info.Idle > 0 || len(e.names()) > 0 {
					t.Errorf("in memory: %v, %+v, ended %v", ok, info, e.names())
				}
				pass(time.Second)
				from := time.Now()
				pass(time.Hour)
				e.wantIdle(t, "a", from)
			})
		})
	}
}

func TestIdleEvictionSparesObjectsWithUndurableWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e ends
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{Policy: idle(eviction.Idle{}), Listener: e.listener(), MaxLive: 1})
		release := fs.HoldSyncs()
		held := goDo(t.Context(), h, "a", "write", increment)
		pass(10 * time.Minute)
		info, ok := h.Inspect(id("a"))
		if !ok || len(info.Pins) != 1 || info.Pins[0].Reason != "writes not durable yet" || held.ended() || len(e.names()) > 0 {
			t.Errorf("in memory: %v, %+v, ended %v", ok, info, e.names())
		}
		release()
		if !held.ended() || held.err != nil {
			t.Errorf("the answer: %v", held.err)
		}
		pass(idleMost)
		if h.Live() != 0 || e.of("a").Cause.Reason != ReasonIdle {
			t.Errorf("%d live, ended %v", h.Live(), e.of("a").Cause)
		}
	})
}

func TestMaxLiveEvictsLeastRecentlyUsedIdleObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e ends
		h := open(t, objectstore.NewMemFS(), Options{MaxLive: 6, Listener: e.listener()})
		var names []string
		for i := range 14 {
			names = append(names, fmt.Sprint(i))
		}
		end := make(chan struct{})
		goDo(t.Context(), h, names[0], "busy", func(context.Context, *counter) error { <-end; return nil })
		goDo(t.Context(), h, names[1], "suspended", func(ctx context.Context, _ *counter) error { return Sleep(ctx, time.Hour) })
		if err := do(t.Context(), h, names[2], "pin", func(_ context.Context, c *counter) error { c.s.Pin("pin"); return nil }); err != nil {
			t.Fatal(err)
		}
		// Within a second, so that the sweeper finds all of them.
		for _, name := range append(names[3:], names[4], names[3]) {
			time.Sleep(time.Millisecond)
			if err := do(t.Context(), h, name, "touch", touch); err != nil {
				t.Fatal(err)
			}
		}
		pass(5 * time.Second)
		// Used last: 3, 4 and 13.
		if got, want := fmt.Sprint(e.names()), fmt.Sprint(names[5:13]); got != want || h.Live() != 6 {
			t.Errorf("shed %s, want %s; %d live", got, want, h.Live())
		}
		for _, name := range e.names() {
			if end := e.of(name); end.Cause.Reason != ReasonPressure {
				t.Errorf("%s: %v", name, end.Cause)
			}
		}
		close(end)
	})
}

func TestMaxLiveSparesBusyAndPinnedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{MaxLive: 1})
		var unpin []func()
		for i := range 10 {
			goDo(t.Context(), h, fmt.Sprint("busy", i), "busy", func(ctx context.Context, _ *counter) error { return Sleep(ctx, 5*time.Minute) })
			if err := do(t.Context(), h, fmt.Sprint("pinned", i), "pin", func(_ context.Context, c *counter) error {
				unpin = append(unpin, c.s.Pin("pin"))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Minute)
		if h.Live() != 20 {
			t.Errorf("%d live of 20", h.Live())
		}
		for _, u := range unpin {
			u()
		}
		pass(5 * time.Second)
		if h.Live() != 10 {
			t.Errorf("%d live of 10 busy", h.Live())
		}
		pass(5 * time.Minute)
		if h.Live() != 1 {
			t.Errorf("%d live", h.Live())
		}
	})
}

func TestShedIsCalledOnceASecondAndEvictsIdleObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e ends
		var mu sync.Mutex
		var asked []int
		var at []time.Time
		shed := func(live int) int {
			mu.Lock()
			defer mu.Unlock()
			asked, at = append(asked, live), append(at, time.Now())
			if len(asked) < 5 {
				return 0
			}
			return 3
		}
		h := open(t, objectstore.NewMemFS(), Options{Policy: Policy{Shed: shed}, Listener: e.listener()})
		// Pinned rather than busy: only Shed makes the sweeper check.
		if err := do(t.Context(), h, "pinned", "pin", func(_ context.Context, c *counter) error { c.s.Pin("pin"); return nil }); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if err := do(t.Context(), h, fmt.Sprint(i), "touch", touch); err != nil {
				t.Fatal(err)
			}
		}
		pass(9500 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		if got := fmt.Sprint(asked); got != "[11 11 11 11 11 8 5 2 1]" {
			t.Errorf("asked about %s", got)
		}
		for i := range len(at) - 1 {
			if d := at[i+1].Sub(at[i]); d != time.Second {
				t.Errorf("asked again after %v", d)
			}
		}
		for _, name := range e.names() {
			if end := e.of(name); end.Cause.Reason != ReasonPressure || name == "pinned" {
				t.Errorf("%s: %v", name, end.Cause)
			}
		}
	})
}

func TestRestartModeKeepsBatchesThatCrashModeLoses(t *testing.T) {
	for mode, want := range map[eviction.EndMode]int{eviction.EndFence: 111, eviction.EndRestart: 111, eviction.EndCrash: 11} {
		synctest.Test(t, func(t *testing.T) {
			var e ends
			fs := objectstore.NewMemFS()
			h := open(t, fs, Options{Listener: e.listener()})
			if _, err := add(t.Context(), h, "a", 1); err != nil {
				t.Fatal(err)
			}
			release := fs.HoldSyncs()
			put := func(n int) *later {
				l := goDo(t.Context(), h, "a", "put", func(ctx context.Context, c *counter) error { _, err := c.add(ctx, n); return err })
				synctest.Wait()
				return l
			}
			inFlight, filling := put(10), put(100)
			if !h.Evict(id("a"), mode) || h.Evict(id("a"), mode) {
				t.Errorf("mode %d: not evicted, or twice", mode)
			}
			if kept := !filling.ended(); kept != (want == 111) || inFlight.ended() {
				t.Errorf("mode %d: what is in no record yet was kept: %v", mode, kept)
			}
			release()
			synctest.Wait()
			if got := e.of("a"); got.Mode != mode || got.Cause.Reason != ReasonEvicted {
				t.Errorf("mode %d is reported as %d, %v", mode, got.Mode, got.Cause)
			}
			if inFlight.err != nil || errors.Is(filling.err, ErrFenced) != (want == 11) {
				t.Errorf("mode %d: %v, %v", mode, inFlight.err, filling.err)
			}
			if n, err := add(t.Context(), h, "a", 0); n != want || err != nil {
				t.Errorf("mode %d leaves %d, %v; want %d", mode, n, err, want)
			}
		})
	}
}

// small is the smallest possible object: all further cost is the runtime's.
type small struct{ s *State }

func TestObjectThatIsIdleCostsAFewHundredBytesOnly(t *testing.T) {
	objects := 100_000
	if invariants.Enabled {
		objects = 10_000 // ten times as slow
	}
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{Policy: idle(eviction.Idle{})}, Class{
			Name: "counter", New: func(_ context.Context, s *State) (any, error) { return &small{s}, nil },
		})
		wake := func(from, to int) (bytes uint64, goroutines int) {
			for i := from; i < to; i++ {
				if err := h.Do(t.Context(), id(fmt.Sprint(i)), Call{Op: "touch", Handler: Func(func(context.Context, any) error { return nil })}); err != nil {
					t.Fatal(err)
				}
			}
			pass(5 * time.Second) // the sweeper files them
			goruntime.GC()
			goruntime.GC()
			var m goruntime.MemStats
			goruntime.ReadMemStats(&m)
			return m.HeapAlloc, goruntime.NumGoroutine()
		}
		one, before := wake(0, 1)
		all, after := wake(1, objects)
		if h.Live() != objects || after > before+maxIdle {
			t.Errorf("%d live objects, %d goroutines; with one object %d", h.Live(), after, before)
		}
		if n := timersSampled(); n > 3 {
			t.Errorf("the heap profile has %d samples of timers", n)
		}
		each := float64(all-one) / float64(objects-1)
		t.Logf("%.0f bytes for each of %d idle objects", each, objects)
		if each > 300 && !invariants.Enabled { // 24 of them are this test's
			t.Error("that is too much")
		}
		for i := range objects {
			h.Evict(id(fmt.Sprint(i)), eviction.EndFence)
		}
		pass(10 * time.Minute) // the sweeper reaches their second in the wheel
		none, _ := wake(0, 0)
		left := float64(int64(none)-int64(one)) / float64(objects)
		t.Logf("%.1f bytes for each when they have been evicted", left)
		if h.Live() != 0 || left > 8 && !invariants.Enabled {
			t.Errorf("%d live objects, %.1f bytes left of each", h.Live(), left)
		}
	})
}

// timersSampled returns the number of timers in use in the heap profile, which samples one
// for each 512 KiB of them: about 20 if 100,000 objects had one each.
func timersSampled() (n int64) {
	records := make([]goruntime.MemProfileRecord, 1<<14)
	found, _ := goruntime.MemProfile(records, false)
	for _, r := range records[:min(found, len(records))] {
		frames := goruntime.CallersFrames(r.Stack())
		for frame, more := frames.Next(); more; frame, more = frames.Next() {
			if strings.HasPrefix(frame.Function, "time.New") || strings.HasPrefix(frame.Function, "time.After") {
				n += r.InUseObjects()
				break
			}
		}
	}
	return n
}

// TestWheelIsCompactedAfterEvictions inspects the wheel, which keeps an entry for each idle object
// until it is due, here for a day: after evictions by Shed, and by Evict, it may have no
// more entries of evicted objects than of live ones.
func TestWheelIsCompactedAfterEvictions(t *testing.T) {
	for _, shed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			o := Options{Policy: Policy{Idle: func(_ ID, _, _ uint64) time.Duration { return 24 * time.Hour }}}
			if shed {
				o.MaxLive = 10
			}
			h := open(t, objectstore.NewMemFS(), o)
			for i := range 2000 {
				if err := do(t.Context(), h, fmt.Sprint(i), "touch", touch); err != nil {
					t.Fatal(err)
				}
				if i%100 == 0 {
					pass(3 * time.Second)
				}
			}
			pass(time.Minute)
			for i := range 1990 {
				if !shed {
					h.Evict(id(fmt.Sprint(i)), eviction.EndFence)
				}
			}
			pass(time.Minute)
			filed, gone := 0, 0
			for _, os := range h.sweeper.wheel {
				filed += len(os)
				for _, o := range os {
					if o.state == objectRemoved {
						gone++
					}
				}
			}
			if len(h.all()) != 10 || filed != gone+10 || gone > 10 {
				t.Errorf("shed %v: %d objects in the table, %d in the wheel, %d of them gone", shed, len(h.all()), filed, gone)
			}
			if h.sweeper.filed != filed || h.sweeper.stale.Load() != int64(gone) {
				t.Errorf("shed %v: counted %d and %d, want %d and %d", shed, h.sweeper.filed, h.sweeper.stale.Load(), filed, gone)
			}
		})
	}
}

// TestIdleTimeMayBeShortened shortens the idle time of objects from a day to an hour. Their
// entries for the day are stale: compact removes them when they are half of the wheel, and
// the sweeper skips them when they come due.
func TestIdleTimeMayBeShortened(t *testing.T) {
	for _, evicted := range []int{0, 1} { // with an evicted one more than half are stale
		synctest.Test(t, func(t *testing.T) {
			var after atomic.Int64
			after.Store(int64(24 * time.Hour))
			o := Options{Policy: Policy{Idle: func(ID, uint64, uint64) time.Duration { return time.Duration(after.Load()) }}}
			h := open(t, objectstore.NewMemFS(), o)
			const n = 10
			all := func() {
				for i := range n {
					if err := do(t.Context(), h, fmt.Sprint(i), "touch", touch); err != nil {
						t.Fatal(err)
					}
				}
				pass(3 * time.Second)
			}
			wheel := func(filed, gone int) {
				t.Helper()
				h.sweeper.mu.Lock() // the sweeper locks it before it changes them again
				defer h.sweeper.mu.Unlock()
				if h.sweeper.filed != filed || int(h.sweeper.stale.Load()) != gone {
					t.Errorf("%d evicted: %d in the wheel, %d of them nothing, want %d and %d",
						evicted, h.sweeper.filed, h.sweeper.stale.Load(), filed, gone)
				}
			}
			all()
			wheel(n, 0)
			after.Store(int64(time.Hour))
			all()
			wheel(2*n, n)
			for i := range evicted {
				h.Evict(id(fmt.Sprint(i)), eviction.EndFence)
			}
			pass(3 * time.Second)
			wheel(2*n-evicted*(n+1), n*(1-evicted))
			pass(time.Hour)
			if live := len(h.all()); live != 0 {
				t.Errorf("%d evicted: %d are left", evicted, live)
			}
			pass(24 * time.Hour)
			wheel(0, 0)
		})
	}
}

// TestInspectListsAConstructorThatRuns inspects an object while its constructor runs.
func TestInspectListsAConstructorThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class := Class{Name: "counter", New: func(ctx context.Context, s *State) (any, error) {
			time.Sleep(10 * time.Second)
			return newCounter(ctx, s)
		}}
		h := open(t, objectstore.NewMemFS(), Options{}, class)
		go do(t.Context(), h, "a", "touch", touch)
		time.Sleep(2 * time.Second)
		info, ok := h.Inspect(id("a"))
		if want := (Pin{Reason: "constructor", For: 2 * time.Second}); !ok || !slices.Contains(info.Pins, want) {
			t.Errorf("%+v, %v", info, ok)
		}
		time.Sleep(time.Minute)
		if info, ok := h.Inspect(id("a")); !ok || len(info.Pins) != 0 {
			t.Errorf("after it has returned: %+v, %v", info, ok)
		}
	})
}

// TestIdleTimeOfOneObjectMayBeShortened has one stale entry, which compact does not remove: the sweeper counts it until it comes due.
func TestIdleTimeOfOneObjectMayBeShortened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var after atomic.Int64
		after.Store(int64(24 * time.Hour))
		h := open(t, objectstore.NewMemFS(), Options{Policy: Policy{Idle: func(ID, uint64, uint64) time.Duration { return time.Duration(after.Load()) }}})
		use := func(n int) {
			for i := range n {
				if err := do(t.Context(), h, fmt.Sprint(i), "touch", touch); err != nil {
					t.Fatal(err)
				}
			}
			pass(3 * time.Second)
		}
		wheel := func(filed, stale int) {
			t.Helper()
			h.sweeper.mu.Lock() // the sweeper locks it before it changes them again
			defer h.sweeper.mu.Unlock()
			if n := h.sweeper.stale.Load(); h.sweeper.filed != filed || n != int64(stale) {
				t.Errorf("%d in the wheel, %d of them stale, want %d and %d", h.sweeper.filed, n, filed, stale)
			}
		}
		use(10)
		after.Store(int64(time.Hour))
		use(1)
		wheel(11, 1)
		pass(2 * time.Hour)
		wheel(10, 1)
		pass(24 * time.Hour)
		wheel(0, 0)
	})
}

func TestMaxLiveAppliesAfterPinsAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{MaxLive: 1})
		var unpin []func()
		for i := range 10 {
			err := do(t.Context(), h, fmt.Sprint(i), "pin", func(_ context.Context, c *counter) error {
				unpin = append(unpin, c.s.Pin("pin"))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		for _, f := range unpin {
			f()
		}
		time.Sleep(3 * time.Second)
		if h.Live() > 1 {
			t.Errorf("%d live", h.Live())
		}
	})
}

// TestIdleTimeBeginsAfterOutputsAreReleased makes the disk take ten minutes.
func TestIdleTimeBeginsAfterOutputsAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		minute := Policy{Idle: func(_ ID, _, _ uint64) time.Duration { return time.Minute }}
		h := open(t, fs, Options{Policy: minute, Limits: Limits{Stall: -1}})
		release := fs.HoldSyncs()
		go add(t.Context(), h, "a", 1)
		time.Sleep(10 * time.Minute)
		release()
		time.Sleep(30 * time.Second)
		if h.Live() != 1 {
			t.Error("evicted at once")
		}
		time.Sleep(time.Minute)
		if h.Live() != 0 {
			t.Error("not evicted")
		}
	})
}

// TestCallCancelledBeforeDeliveryLeavesNoObject delivers a call after its caller has gone.
func TestCallCancelledBeforeDeliveryLeavesNoObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		ev := h.newCall(t.Context(), Call{Op: "x", Handler: Func(func(context.Context, any) error { return nil })})
		ev.answer(nil)
		if err := h.send(id("a"), ev); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := len(h.all()); n > 0 {
			t.Errorf("%d objects in the table", n)
		}
	})
}
