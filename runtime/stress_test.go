package runtime

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	goruntime "runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// The random runs of this file take more seeds with -args -stress-seeds=n; .ci/run does that.
var (
	stressSeeds = flag.Int("stress-seeds", 1, "number of random runs of each stress test")
	stressFirst = flag.Uint64("stress-first", 1, "seed of the first of them")
)

// stressObject is an object with randomly drawn code.
type stressObject struct {
	s    *State
	busy atomic.Int32 // open regions: one at most
	in   *stressRun
}

// stressRun is one run with stress objects.
type stressRun struct {
	t      *testing.T
	h      *Host
	seed   uint64
	steps  atomic.Int64
	alarms atomic.Int64
	left   atomic.Int64 // goroutines that outlive their handlers
}

var errStress = errors.New("wild")

// region runs f, which does not give up the turn.
func (w *stressObject) region(f func()) {
	if !w.busy.CompareAndSwap(0, 1) {
		w.in.t.Error("two events hold the turn of one object")
		return
	}
	f()
	w.busy.Store(0)
}

// program runs random steps. The ctx may hold a turn or not.
func (w *stressObject) program(ctx context.Context, r *rand.Rand, depth int, mayDie bool) error {
	for range 1 + r.IntN(4) {
		w.in.steps.Add(1)
		err := w.step(ctx, r, mayDie)
		if depth > 0 {
			sub := rand.New(rand.NewPCG(r.Uint64(), 1))
			err = errors.Join(err, w.nested(ctx, r.IntN(14), sub, func(ctx context.Context) error {
				return w.program(ctx, sub, depth-1, mayDie)
			}))
		}
		if errors.Is(err, ErrFenced) {
			return err
		}
	}
	return nil
}

// step runs one step that calls no other code of the object.
func (w *stressObject) step(ctx context.Context, r *rand.Rand, mayDie bool) error {
	s, key := w.s, []byte{byte('a' + r.IntN(5))}
	switch k := r.IntN(24); {
	case k < 6:
		return s.Put(ctx, objectstore.SpaceKV, key, []byte("x"), r.IntN(4) == 0)
	case k < 8:
		_, _, err := s.Get(ctx, nil, objectstore.SpaceKV, key)
		return err
	case k == 8:
		_, err := s.Delete(ctx, objectstore.SpaceKV, key, false)
		return err
	case k < 11:
		return Sleep(ctx, time.Duration(r.IntN(300))*time.Microsecond)
	case k == 11:
		return s.EmitOutput(ctx, 1, func(error) {})
	case k == 12:
		draw := r.Uint64() // f runs on a goroutine of its own
		return s.Emit(ctx, func(error) { w.die(draw, mayDie) })
	case k < 15:
		return Sync(ctx)
	case k == 15:
		return s.SetAlarm(ctx, time.Now().Add(time.Duration(r.IntN(20))*time.Millisecond))
	case k == 16 && r.IntN(5) == 0:
		return s.DeleteAlarm(ctx)
	case k == 17 && r.IntN(5) == 0:
		return s.DeleteAll(ctx)
	case k == 18:
		return s.Chunk(ctx, 1, func(error) {}, func(context.Context) error { return nil })
	case k == 19 && r.IntN(20) == 0:
		time.AfterFunc(time.Duration(r.IntN(int(time.Millisecond))), s.Pin("x"))
	case k == 20 && mayDie && r.IntN(6) == 0:
		return s.Abort(ctx, errStress, r.IntN(2) == 0)
	case k == 21:
		w.die(r.Uint64(), mayDie)
	}
	return nil
}

// die sometimes panics or ends its goroutine.
func (w *stressObject) die(draw uint64, may bool) {
	switch {
	case !may:
	case draw%8 == 0:
		panic("wild")
	case draw%8 == 1:
		goruntime.Goexit()
	}
}

// nested runs one step that runs further steps.
func (w *stressObject) nested(ctx context.Context, k int, r *rand.Rand, more func(context.Context) error) error {
	switch k {
	case 0, 1:
		return Await(ctx, func(ctx context.Context) error {
			time.Sleep(time.Duration(r.IntN(300)) * time.Microsecond)
			if r.IntN(2) == 0 {
				_ = HoldTurn(ctx, more)
			}
			return more(ctx)
		})
	case 2:
		return Exclusive(ctx, more)
	case 3:
		return Transaction(ctx, func(ctx context.Context) error {
			if err := more(ctx); err != nil || r.IntN(2) == 0 {
				return errors.Join(err, errStress)
			}
			return nil
		})
	case 4:
		return w.s.Go(ctx, "task", more)
	case 5:
		return w.s.GoImmediately(ctx, "task", more)
	case 6:
		return w.in.h.Do(ctx, stressID(r), Call{Op: "in", Handler: Func(func(ctx context.Context, o any) error {
			return o.(*stressObject).program(ctx, r, 1, false)
		})})
	case 7: // outlives its handler; a panic on it would end the process
		w.in.left.Add(1)
		go func() {
			defer w.in.left.Add(-1)
			_ = w.program(ctx, r, 1, false)
		}()
	}
	return nil
}

func stressID(r *rand.Rand) ID { return ID{Class: "wild", Name: strconv.Itoa(r.IntN(8))} }

func (in *stressRun) open(fs *objectstore.FS, grace time.Duration) {
	class := Class{Name: "wild", New: func(ctx context.Context, s *State) (any, error) {
		w, r := &stressObject{s: s, in: in}, rand.New(rand.NewPCG(s.Epoch().Incarnation, in.seed))
		if r.IntN(200) == 0 {
			return nil, errStress
		}
		if r.IntN(8) == 0 {
			return w, w.program(ctx, r, 2, false)
		}
		return w, nil
	}, Alarm: func(ctx context.Context, o any, _ alarm.Info) error {
		return o.(*stressObject).program(ctx, rand.New(rand.NewPCG(uint64(in.alarms.Add(1)), in.seed)), 2, true)
	}}
	in.h = open(in.t, fs, Options{Grace: grace, MaxAge: -1, Limits: Limits{Exclusive: 2 * time.Second, Alarm: 2 * time.Second}}, class)
}

// call calls a stress object, and checks that it answers.
func (in *stressRun) call(r *rand.Rand, patience time.Duration) error {
	sub := rand.New(rand.NewPCG(r.Uint64(), 2))
	ctx, cancel := context.WithTimeout(in.t.Context(), patience)
	defer cancel()
	err := in.h.Do(ctx, stressID(r), Call{Op: "out", Handler: Func(func(ctx context.Context, o any) error {
		w := o.(*stressObject)
		w.region(func() { _, _, _ = w.s.Get(ctx, nil, objectstore.SpaceKV, []byte("n")) })
		return w.program(ctx, sub, 2, true)
	})})
	if patience > time.Second && errors.Is(err, context.DeadlineExceeded) {
		in.t.Errorf("a call got no answer in %v: %v", patience, err)
	}
	return err
}

// closed closes the host, and checks that nothing remains.
func (in *stressRun) closed() {
	began := time.Now()
	err := in.h.Close()
	if took := time.Since(began); took > 20*time.Second {
		in.t.Errorf("Close took %v: %v", took, err)
	}
	time.Sleep(10 * time.Second)
	synctest.Wait()
	if a, l, z := in.h.active.Load(), in.left.Load(), in.h.Zombies(); a != 0 || l != 0 || len(z) > 0 {
		in.t.Errorf("active %d, left behind %d, zombies %v", a, l, z)
	}
	for _, o := range in.h.all() {
		o.mu.Lock()
		if o.count != 0 || o.bytes != 0 || o.waiting.head != nil {
			in.t.Errorf("%v: count %d, bytes %d, events waiting %v", o.id(), o.count, o.bytes, o.waiting.head != nil)
		}
		o.mu.Unlock()
	}
}

// stressRunOf runs f in a bubble for each of factor * -stress-seeds seeds.
func stressRunOf(t *testing.T, factor int, f func(t *testing.T, in *stressRun, r *rand.Rand)) {
	for seed := range uint64(factor * *stressSeeds) {
		seed += *stressFirst
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := &stressRun{t: t, seed: seed}
				f(t, in, rand.New(rand.NewPCG(seed, 99)))
				t.Logf("%d steps, %d alarms", in.steps.Load(), in.alarms.Load())
			})
		})
	}
}

// TestStressOfEverything runs random programs in random incarnations that are evicted at random.
func TestStressOfEverything(t *testing.T) {
	stressRunOf(t, 1, func(t *testing.T, in *stressRun, r *rand.Rand) {
		in.open(objectstore.NewMemFS(), 5*time.Second)
		end := time.Now().Add(40 * time.Millisecond)
		var clients sync.WaitGroup
		for c := range uint64(16) {
			clients.Go(func() {
				r := rand.New(rand.NewPCG(in.seed, c))
				for time.Now().Before(end) {
					patience := 20 * time.Second
					if r.IntN(5) == 0 {
						patience = time.Duration(1+r.IntN(2000)) * time.Microsecond
					}
					_ = in.call(r, patience)
					time.Sleep(time.Microsecond) // or fake time would not pass
				}
			})
		}
		for time.Now().Before(end) {
			time.Sleep(time.Duration(r.IntN(5000)) * time.Microsecond)
			mode := eviction.EndFence
			if r.IntN(3) == 0 {
				mode = eviction.EndCrash
			}
			in.h.Evict(stressID(r), mode)
		}
		clients.Wait()
		in.closed()
		if err := in.h.Err(); err != nil {
			t.Errorf("the store failed: %v", err)
		}
	})
}

// TestStressOfClose closes hosts in the middle of such programs, some of them with a disk that fails.
func TestStressOfClose(t *testing.T) {
	stressRunOf(t, 20, func(t *testing.T, in *stressRun, r *rand.Rand) {
		fs := objectstore.NewMemFS()
		in.open(fs, time.Duration(2*r.IntN(2)-1)*20*time.Millisecond)
		var clients sync.WaitGroup
		for c := range uint64(12) {
			clients.Go(func() {
				r := rand.New(rand.NewPCG(in.seed, c))
				for !errors.Is(in.call(r, 20*time.Second), ErrClosed) && !t.Failed() {
					time.Sleep(time.Microsecond)
				}
			})
		}
		time.Sleep(time.Duration(r.IntN(40)) * time.Millisecond)
		if r.IntN(3) == 0 {
			fs.FailSyncs(errors.New("bad disk"))
			time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
		}
		in.closed()
		clients.Wait()
	})
}
