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

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/internal/lifecycletest"
	"github.com/dohost/dohost/objectstore"
)

// closing starts a Close in the background.
func closing(h *Host) *later {
	l := &later{done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.err = h.Close()
	}()
	return l
}

// wantClosed checks the error of a call that a closing host refused.
func wantClosed(t *testing.T, what string, err error) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || !errors.Is(err, ErrClosed) || e.Outcome != OutcomeNotRun || e.Retryable {
		t.Errorf("%s: %v", what, err)
	}
}

func TestCloseFinishesRunningEventsAndRefusesNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		var delivered atomic.Int32
		class := Class{Name: "counter", New: newCounter, Alarm: func(context.Context, any, alarm.Info) error { delivered.Add(1); return nil }}
		h := open(t, fs, Options{}, class)
		due := time.Now().Add(5 * time.Second)
		set := func(ctx context.Context, c *counter) error { return c.s.SetAlarm(ctx, due) }
		if err := do(t.Context(), h, "alarm", "set", set); err != nil {
			t.Fatal(err)
		}
		running := goDo(t.Context(), h, "a", "running", func(ctx context.Context, c *counter) error {
			if err := Sleep(ctx, 10*time.Second); err != nil {
				return err
			}
			if err := do(ctx, h, "inside", "inside", increment); err != nil { // the first call to it
				return err
			}
			return errors.Join(increment(ctx, c), c.s.Go(ctx, "task", func(ctx context.Context) error {
				if err := Sleep(ctx, 5*time.Second); err != nil {
					return err
				}
				return increment(ctx, c)
			}))
		})
		holding := goDo(t.Context(), h, "b", "holding", func(context.Context, *counter) error { time.Sleep(time.Second); return nil })
		synctest.Wait()
		queued := goDo(t.Context(), h, "b", "queued", increment)
		synctest.Wait()

		start := time.Now()
		c := closing(h)
		synctest.Wait()
		for _, name := range []string{"a", "b", "new"} {
			wantClosed(t, "a call from outside", do(t.Context(), h, name, "outside", increment))
		}
		if c.ended() {
			t.Error("Close waits for nothing")
		}
		<-c.done
		if took := time.Since(start); c.err != nil || took != 15*time.Second {
			t.Errorf("Close took %v: %v", took, c.err)
		}
		for what, l := range map[string]*later{"running": running, "holding": holding, "queued": queued} {
			if !l.ended() || l.err != nil {
				t.Errorf("%s: %v", what, l.err)
			}
		}
		if delivered.Load() > 0 {
			t.Error("an alarm that was due during Close was delivered")
		}
		h = open(t, fs, Options{}, class)
		for name, want := range map[string]int{"a": 2, "b": 1, "inside": 1, "new": 0} {
			if n, err := add(t.Context(), h, name, 0); n != want || err != nil {
				t.Errorf("%s is %d after reopening, %v", name, n, err)
			}
		}
		pass(time.Second)
		if delivered.Load() != 1 || !h.Store().Clean() {
			t.Errorf("after reopening the alarm was delivered %d times, closed cleanly: %v", delivered.Load(), h.Store().Clean())
		}
	})
}

func TestCloseFencesEventsThatExceedGrace(t *testing.T) {
	for grace, limit := range map[time.Duration]time.Duration{0: 30 * time.Second, 5 * time.Second: 5 * time.Second, -1: 0} {
		synctest.Test(t, func(t *testing.T) {
			fs := objectstore.NewMemFS()
			h := open(t, fs, Options{Grace: grace})
			asleep := goDo(t.Context(), h, "a", "asleep", func(ctx context.Context, c *counter) error {
				return errors.Join(increment(ctx, c), Sleep(ctx, time.Hour), increment(ctx, c))
			})
			synctest.Wait()
			holding := goDo(t.Context(), h, "a", "holding", func(ctx context.Context, _ *counter) error {
				<-ctx.Done()
				return nil
			})
			synctest.Wait()
			queued := goDo(t.Context(), h, "a", "queued", increment)
			synctest.Wait()
			start := time.Now()
			if err := h.Close(); err != nil || time.Since(start) != limit {
				t.Errorf("Close: %v after %v, want %v", err, time.Since(start), limit)
			}
			for what, l := range map[string]*later{"asleep": asleep, "holding": holding} {
				if !l.ended() || !errors.Is(l.err, ErrFenced) || ran(t, l.err) != OutcomeUnknown {
					t.Fatalf("%s: %v", what, l.err)
				}
				if f, ok := errors.AsType[*Fenced](l.err); !ok || f.Reason != ReasonClosing {
					t.Errorf("%s: %v", what, l.err)
				}
			}
			if !queued.ended() {
				t.Fatal("a queued call hangs")
			}
			wantClosed(t, "queued", queued.err)
			h = open(t, fs, Options{})
			if n, err := add(t.Context(), h, "a", 0); n != 1 || err != nil {
				t.Errorf("after reopening: %d, %v", n, err)
			}
		})
	}
}

func TestCloseNamesHandlersThatIgnoreTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{Grace: 5 * time.Second})
		deaf := make(chan struct{})
		var late atomic.Pointer[error]
		ignoring := goDo(t.Context(), h, "a", "ponder", func(ctx context.Context, c *counter) error {
			<-deaf
			err := increment(ctx, c)
			late.Store(&err)
			return err
		})
		goDo(t.Context(), h, "b", "listen", func(ctx context.Context, _ *counter) error { <-ctx.Done(); return nil })
		synctest.Wait()
		start := time.Now()
		closed := h.Close()
		if took := time.Since(start); took != 5*time.Second+unwindTime {
			t.Errorf("Close took %v", took)
		}
		if closed == nil || !strings.Contains(closed.Error(), "counter/a ponder") || strings.Contains(closed.Error(), "listen") {
			t.Errorf("Close: %v", closed)
		}
		if !ignoring.ended() || !errors.Is(ignoring.err, ErrFenced) {
			t.Errorf("its caller got %v", ignoring.err)
		}
		if err := h.Close(); err != closed {
			t.Errorf("a later Close: %v", err)
		}
		close(deaf)
		synctest.Wait()
		if err := late.Load(); err == nil || !errors.Is(*err, ErrFenced) {
			t.Errorf("it wrote after Close: %v", err)
		}
		if z := h.Zombies(); len(z) > 0 {
			t.Errorf("zombies that have ended: %v", z)
		}
	})
}

// Nothing here waits, so no bubble is needed.
func TestCloseReturnsTheSameErrorEachTime(t *testing.T) {
	for range 20 {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{})
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		fs.FailSyncs(errDisk) // also the mark of a clean end
		var errs [10]error
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = h.Close() })
		}
		wg.Wait()
		for _, err := range errs {
			if !errors.Is(err, errDisk) || err != errs[0] {
				t.Fatalf("Close: %v, and %v", errs[0], err)
			}
		}
	}
}

// Callers that continue to call while the host is closed get an answer, or an error with
// OutcomeNotRun, and every answer is kept.
func TestCallsDuringCloseAreAnsweredOrDidNotRun(t *testing.T) {
	for round := range 30 {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{})
		var acked atomic.Int64
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				name := fmt.Sprint(i % 3)
				for {
					err := do(t.Context(), h, "caller "+name, "call", func(ctx context.Context, _ *counter) error {
						return do(ctx, h, name, "add", increment)
					})
					if err != nil {
						wantClosed(t, "call", err)
						return
					}
					if acked.Add(1) == int64(round) {
						wg.Go(func() { h.Close() })
					}
				}
			})
		}
		if round == 0 {
			h.Close()
		}
		wg.Wait()
		if err := h.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		h = open(t, fs, Options{})
		var total int64
		for i := range 3 {
			n, err := add(t.Context(), h, fmt.Sprint(i), 0)
			if err != nil {
				t.Fatal(err)
			}
			total += int64(n)
		}
		if total != acked.Load() {
			t.Errorf("%d acknowledged, %d stored", acked.Load(), total)
		}
	}
}

func TestOpenRefusesASecondHostOnOneDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{})
		for i := 1; i <= 3; i++ {
			second, err := Open("data", Options{Store: objectstore.Options{FS: fs}}, []Class{{Name: "counter", New: newCounter}})
			if second != nil || !errors.Is(err, objectstore.ErrLocked) || !strings.Contains(err.Error(), "data") {
				t.Fatalf("a second host: %v, %v", second, err)
			}
			if n, err := add(t.Context(), h, "a", 1); n != i || err != nil {
				t.Errorf("the first host: %d, %v", n, err)
			}
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		h = open(t, fs, Options{})
		if n, err := add(t.Context(), h, "a", 1); n != 4 || err != nil {
			t.Errorf("after reopening: %d, %v", n, err)
		}
	})
}

// service is a host that starts and closes repeatedly. A start may meet a running Close,
// and calls continue during it.
type service struct {
	t  *testing.T
	fs *objectstore.FS

	mu   sync.Mutex
	host *Host // may be closed, or closing

	opened, acked, unknown atomic.Int64
}

func (s *service) start() {
	s.mu.Lock()
	h := s.host
	if h == nil {
		var err error
		h, err = Open("data", Options{Store: objectstore.Options{FS: s.fs}}, []Class{{Name: "counter", New: newCounter}})
		if err != nil {
			s.t.Error(err)
			s.mu.Unlock()
			return
		}
		s.host = h
		s.opened.Add(1)
	}
	s.mu.Unlock()
	for range 3 {
		_, err := add(s.t.Context(), h, "a", 1)
		switch {
		case err == nil:
			s.acked.Add(1)
		case errors.Is(err, ErrFenced):
			s.unknown.Add(1)
		default:
			wantClosed(s.t, "call", err)
		}
	}
}

func (s *service) stop() {
	s.mu.Lock()
	h := s.host
	s.mu.Unlock()
	if h == nil {
		return
	}
	if err := h.Close(); err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.host == h {
		s.host = nil
	}
}

func TestOpenAndCloseUnderStress(t *testing.T) {
	s := &service{t: t, fs: objectstore.NewMemFS()}
	lifecycletest.Stress(t, s.start, s.stop)
	if s.host != nil || s.opened.Load() < 10 || s.acked.Load() == 0 {
		t.Errorf("opened %d times, %d calls acknowledged, host %v", s.opened.Load(), s.acked.Load(), s.host)
	}
	h := open(t, s.fs, Options{})
	n, err := add(t.Context(), h, "a", 0)
	if low := int(s.acked.Load()); err != nil || n < low || n > low+int(s.unknown.Load()) {
		t.Errorf("%d acknowledged, %d unknown, %d stored, %v", low, s.unknown.Load(), n, err)
	}
	t.Logf("opened %d times, %d calls acknowledged, %d unknown", s.opened.Load(), s.acked.Load(), s.unknown.Load())
}

// A constructor that panics, or exits its goroutine, has failed like any other: all waiting
// callers get the error, the next attempt waits, and other objects do not notice.
func TestConstructorPanicFailsItsObjectOnly(t *testing.T) {
	for name, exit := range map[string]func(){"panic": func() { panic("oh") }, "Goexit": goruntime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var mu sync.Mutex
				var births []time.Duration
				var e ends
				class := Class{Name: "counter", New: func(_ context.Context, s *State) (any, error) {
					if s.ID() == id("bad") {
						mu.Lock()
						births = append(births, time.Since(start))
						mu.Unlock()
						time.Sleep(50 * time.Millisecond)
						exit()
					}
					return &counter{s: s}, nil
				}}
				h := open(t, objectstore.NewMemFS(), Options{Listener: e.listener()}, class)
				if _, err := add(t.Context(), h, "good", 1); err != nil {
					t.Fatal(err)
				}
				for time.Since(start) < time.Second {
					var waiting []*later
					for range 5 {
						waiting = append(waiting, goDo(t.Context(), h, "bad", "add", increment))
					}
					pass(50 * time.Millisecond)
					for _, l := range waiting {
						if !l.ended() {
							t.Fatal("a call hangs")
						}
						p, ok := errors.AsType[*PanicError](l.err)
						if !ok || (p.Value == "oh") != (name == "panic") || !errors.Is(l.err, ErrConstructor) || ran(t, l.err) != OutcomeNotRun {
							t.Errorf("a call: %v", l.err)
						}
					}
				}
				if _, err := add(t.Context(), h, "good", 1); err != nil {
					t.Errorf("the other object: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				ms := time.Millisecond
				// 50 ms for the attempt, then 100, 200 and 400 ms of waiting.
				if want := []time.Duration{0, 150 * ms, 400 * ms, 850 * ms}; !slices.Equal(births, want) {
					t.Errorf("constructors at %v, want %v", births, want)
				}
				if got := fmt.Sprint(e.names()); got != "[bad bad bad bad]" || e.of("bad").Cause.Reason != ReasonConstructor {
					t.Errorf("ended: %s, the last: %v", got, e.of("bad").Cause)
				}
			})
		})
	}
}

func TestPanicEndsItsOwnObjectOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e ends
		h := open(t, objectstore.NewMemFS(), Options{Listener: e.listener()})
		other := goDo(t.Context(), h, "other", "asleep", func(ctx context.Context, c *counter) error {
			return errors.Join(increment(ctx, c), Sleep(ctx, time.Minute), increment(ctx, c))
		})
		synctest.Wait()
		// The panic is in a callee; its caller, an object too, gets an error and continues.
		err := do(t.Context(), h, "caller", "call", func(ctx context.Context, c *counter) error {
			err := do(ctx, h, "bad", "panic", func(context.Context, *counter) error { panic("oh") })
			if !errors.Is(err, ErrFenced) || c.s.incarnation().cause() != nil {
				t.Errorf("the caller of a panic: %v", err)
			}
			return increment(ctx, c)
		})
		if err != nil {
			t.Errorf("the caller's caller: %v", err)
		}
		pass(time.Minute)
		if !other.ended() || other.err != nil {
			t.Errorf("the other object: %v", other.err)
		}
		if n, err := add(t.Context(), h, "bad", 1); n != 1 || err != nil {
			t.Errorf("the object that panicked: %d, %v", n, err)
		}
		if got := fmt.Sprint(e.names()); got != "[bad]" {
			t.Errorf("ended: %s", got)
		}
	})
}
