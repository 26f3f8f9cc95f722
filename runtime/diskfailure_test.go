package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/objectstore"
)

var errDisk = errors.New("disk on fire")

// remains are the possible states of fs for the next host: after a power cut, with or
// without unsynced writes, and after the end of the process.
func remains(fs *objectstore.FS) map[string]*objectstore.FS {
	return map[string]*objectstore.FS{
		"a power cut": fs.Crash(0, 1), "a torn write": fs.Crash(50, 1), "a lucky power cut": fs.Crash(100, 1),
		"the end of the process": fs,
	}
}

// wantUnacknowledged checks the error of a call that a failed store has cut off.
func wantUnacknowledged(t *testing.T, what string, err error) Outcome {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok || e.Outcome == OutcomeRan:
		t.Errorf("%s: %v", what, err)
	case e.Outcome == OutcomeUnknown && !errors.Is(err, ErrFenced), e.Outcome == OutcomeNotRun && !errors.Is(err, ErrClosed) && !errors.Is(err, errDisk):
		t.Errorf("%s, which ran: %v, got %v", what, e.Outcome, err)
	}
	return e.Outcome
}

// increment is a handler that only adds one.
func increment(ctx context.Context, c *counter) error {
	_, err := c.add(ctx, 1)
	return err
}

func TestSyncFailureAcknowledgesNothingAndEndsIncarnations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		var reports atomic.Int32
		var mu sync.Mutex
		var ended, written []string
		h := open(t, fs, Options{Listener: Listener{
			StoreFailed: func(error) { reports.Add(1) },
			Fenced: func(e Ended) {
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, e.ID.Name)
				if e.Cause.Reason != ReasonStore || !errors.Is(e.Cause, errDisk) {
					t.Errorf("%v ended: %v", e.ID, e.Cause)
				}
			},
		}})
		for _, name := range []string{"a", "b", "idle"} {
			if _, err := add(t.Context(), h, name, 10); err != nil {
				t.Fatal(err)
			}
		}
		fs.OnWrite(func(op, path string, _ int64) error {
			mu.Lock()
			defer mu.Unlock()
			written = append(written, op+" "+path)
			return nil
		})
		fs.FailSyncs(errDisk)
		release := fs.HoldSyncs()
		calls, frames := outstanding(t, h)
		release()
		synctest.Wait()
		select {
		case <-h.Failed():
		default:
			t.Fatal("the host has not failed")
		}
		for what, l := range calls {
			if !l.ended() {
				t.Fatalf("%s hangs", what)
			}
			if r := wantUnacknowledged(t, what, l.err); what == "queued behind it" && r != OutcomeNotRun {
				t.Errorf("%s ran: %v", what, r)
			}
		}
		if len(*frames) != 1 || !errors.Is((*frames)[0], ErrFenced) {
			t.Errorf("frames: %v", *frames)
		}
		slices.Sort(ended)
		if got := fmt.Sprint(ended); got != "[a b idle suspended]" || h.Live() != 0 {
			t.Errorf("incarnations ended: %s, and %d live", got, h.Live())
		}
		if !errors.Is(h.Err(), errDisk) || reports.Load() != 1 {
			t.Errorf("Err: %v, told %d times", h.Err(), reports.Load())
		}

		for _, name := range []string{"a", "idle", "new"} {
			if r := wantUnacknowledged(t, "a later call", do(t.Context(), h, name, "late", increment)); r != OutcomeNotRun {
				t.Errorf("a later call ran: %v", r)
			}
		}
		for range 2 {
			if err := h.Close(); !errors.Is(err, errDisk) || !strings.Contains(err.Error(), errDisk.Error()) {
				t.Errorf("Close: %v", err)
			}
		}
		time.Sleep(time.Hour)
		// The record in flight, and nothing more.
		if len(written) != 2 || !strings.HasPrefix(written[0], "write ") || !strings.HasPrefix(written[1], "sync ") {
			t.Errorf("written: %q", written)
		}
		fs.OnWrite(nil)
		fs.FailSyncs(nil)
		for what, fs := range remains(fs) {
			h := open(t, fs, Options{})
			a, err := add(t.Context(), h, "a", 0)
			b, err2 := add(t.Context(), h, "b", 0)
			if (a != 10 && a != 11) || b != 10 || errors.Join(err, err2) != nil {
				t.Errorf("after %s: a = %d, b = %d, %v", what, a, b, errors.Join(err, err2))
			}
			if n, err := add(t.Context(), h, "a", 5); n != a+5 || err != nil {
				t.Errorf("after %s: adding 5 to %d: %d, %v", what, a, n, err)
			}
		}
	})
}

// outstanding starts calls that a held sync stops at every stage, on a, b and an object
// that is suspended. Only the first is in the record in flight.
func outstanding(t *testing.T, h *Host) (calls map[string]*later, frames *[]error) {
	calls, frames = map[string]*later{}, new([]error)
	start := func(name, what string, fn func(context.Context, *counter) error) {
		calls[what] = goDo(t.Context(), h, name, what, fn)
		if calls[what].ended() {
			t.Fatalf("%s has ended before the sync: %v", what, calls[what].err)
		}
	}
	never := func(context.Context) error { t.Error("something has left an object"); return nil }
	start("a", "in flight", func(ctx context.Context, c *counter) error {
		return errors.Join(increment(ctx, c), c.s.Emit(ctx, func(err error) { *frames = append(*frames, err) }))
	})
	start("a", "filling", increment)
	start("b", "filling of another", increment)
	start("a", "reading", func(ctx context.Context, c *counter) error { _, err := c.get(ctx, "n"); return err })
	start("a", "failing", func(ctx context.Context, c *counter) error { return errors.Join(increment(ctx, c), errors.New("no")) })
	start("a", "starting a task", func(ctx context.Context, c *counter) error {
		return errors.Join(increment(ctx, c), c.s.Go(ctx, "task", never))
	})
	start("a", "at the gate", func(ctx context.Context, _ *counter) error { return Await(ctx, never) })
	start("a", "calling", func(ctx context.Context, _ *counter) error {
		return do(ctx, h, "callee", "callee", func(ctx context.Context, _ *counter) error { return never(ctx) })
	})
	start("suspended", "suspended", func(ctx context.Context, _ *counter) error { return Sleep(ctx, time.Hour) })
	start("a", "syncing", func(ctx context.Context, c *counter) error { return errors.Join(increment(ctx, c), Sync(ctx)) })
	start("a", "queued", increment)
	start("b", "running", func(ctx context.Context, c *counter) error {
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, errDisk) || !errors.Is(cause, ErrFenced) {
			t.Errorf("a handler's context ends with %v", cause)
		}
		if err := increment(ctx, c); !errors.Is(err, ErrFenced) || !errors.Is(err, errDisk) {
			t.Errorf("a write after the failure: %v", err)
		}
		return nil
	})
	start("b", "queued behind it", increment)
	return calls, frames
}

// For every failing sync, and although the disk works again after it, the stored counts are
// those acknowledged, plus some of the calls that failed with an unknown outcome.
func TestSyncFailureAtAnySyncLosesNoAcknowledgedCall(t *testing.T) {
	for k := range int64(30) {
		synctest.Test(t, func(t *testing.T) {
			const objects, callers = 4, 5
			fs := objectstore.NewMemFS()
			h := open(t, fs, Options{})
			var syncs, late atomic.Int64
			fs.OnWrite(func(op, path string, _ int64) error {
				switch log := strings.HasSuffix(path, ".log"); {
				case log && op == "sync" && syncs.Add(1) == k+1:
					return errDisk
				case log && op == "write" && syncs.Load() > k:
					late.Add(1)
				}
				return nil
			})
			var acked, unknown [objects]atomic.Int64
			var wg sync.WaitGroup
			for i := range objects * callers {
				o := i % objects
				wg.Go(func() {
					for range 1000 {
						_, err := add(t.Context(), h, fmt.Sprint(o), 1)
						if err == nil {
							acked[o].Add(1)
							continue
						}
						if wantUnacknowledged(t, "add", err) == OutcomeUnknown {
							unknown[o].Add(1)
						}
						return
					}
				})
			}
			wg.Wait()
			if err := h.Close(); !errors.Is(err, errDisk) {
				t.Fatalf("sync %d failed, Close: %v", k+1, err)
			}
			if late.Load() > 0 {
				t.Errorf("sync %d failed, and %d writes came after it", k+1, late.Load())
			}
			fs.OnWrite(nil)
			for what, fs := range remains(fs) {
				h := open(t, fs, Options{})
				for o := range objects {
					n, err := add(t.Context(), h, fmt.Sprint(o), 0)
					low := int(acked[o].Load())
					if err != nil || n < low || n > low+int(unknown[o].Load()) {
						t.Errorf("sync %d failed: %d acknowledged, %d unknown, and after %s %d stored, %v",
							k+1, low, unknown[o].Load(), what, n, err)
					}
				}
			}
		})
	}
}

func TestDiskFullRefusesWritesAndEndsNoIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		var ended atomic.Int32
		h := open(t, fs, Options{
			Store:    objectstore.Options{ReserveBytes: 1000},
			Listener: Listener{Fenced: func(Ended) { ended.Add(1) }},
		})
		var epoch objectstore.Epoch
		for range 3 {
			if _, err := add(t.Context(), h, "a", 1); err != nil {
				t.Fatal(err)
			}
		}
		look := func(ctx context.Context, c *counter) error { epoch = c.s.Epoch(); return nil }
		if err := do(t.Context(), h, "a", "look", look); err != nil {
			t.Fatal(err)
		}
		born := epoch
		fs.SetFree(999)
		time.Sleep(2 * time.Second)
		for _, name := range []string{"other", "a", "new"} { // the first detects the failed disk
			_, err := add(t.Context(), h, name, 1)
			if !errors.Is(err, objectstore.ErrNoSpace) || errors.Is(err, ErrFenced) || ran(t, err) != OutcomeRan {
				t.Errorf("a write to %s: %v", name, err)
			}
		}
		if err := do(t.Context(), h, "a", "get", func(ctx context.Context, c *counter) error {
			epoch = c.s.Epoch()
			if n, err := c.get(ctx, "n"); n != 3 || err != nil {
				return fmt.Errorf("n is %d, %w", n, err)
			}
			_, err := c.s.Delete(ctx, kv, []byte("absent"), false)
			return err
		}); err != nil {
			t.Errorf("reading and deleting: %v", err)
		}
		fs.SetFree(1000)
		time.Sleep(100 * time.Millisecond)
		if n, err := add(t.Context(), h, "a", 1); n != 4 || err != nil {
			t.Errorf("with room again: %d, %v", n, err)
		}
		if h.Err() != nil || ended.Load() != 0 || epoch != born || h.Live() != 3 {
			t.Errorf("store: %v; %d incarnations ended, %d live, incarnation %v and %v", h.Err(), ended.Load(), h.Live(), born, epoch)
		}
		if n := durable(t, fs, "a"); n != 4 {
			t.Errorf("%d durable", n)
		}
	})
}

// TestDiskStallFencesWaitingEvents makes a sync take five minutes. The committed batch
// is history, and its caller waits for it; code that waits fails after 30 s.
func TestDiskStallFencesWaitingEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{Store: objectstore.Options{MaxHostBytes: 1000}, Limits: Limits{Turn: -1}})
		release := fs.HoldSyncs()
		begun := time.Now()
		waits := func(name string, fn func(context.Context, *counter) error) {
			go func() {
				err := do(t.Context(), h, name, "wait", fn)
				f, ok := errors.AsType[*Fenced](err)
				if at := time.Since(begun); !ok || f.Reason != ReasonStall || at < 30*time.Second || at > 35*time.Second {
					t.Errorf("%s: %v after %v", name, err, at)
				}
			}()
		}
		answered := make(chan error, 1)
		go func() {
			_, err := add(t.Context(), h, "answered", 1)
			answered <- err
		}()
		synctest.Wait()
		waits("awaiting", func(ctx context.Context, c *counter) error {
			err := c.s.Put(ctx, kv, []byte("large"), make([]byte, 900), false)
			return errors.Join(err, Await(ctx, func(context.Context) error { return nil }))
		})
		synctest.Wait()
		waits("throttled", func(ctx context.Context, c *counter) error { return c.put(ctx, "n", 1) })
		time.Sleep(5 * time.Minute)
		if len(answered) > 0 {
			t.Error("answered while the disk stalls")
		}
		release()
		if err := <-answered; err != nil {
			t.Error(err)
		}
	})
}

// slowOutput is an output that takes 3 s to release.
type slowOutput struct{}

func (slowOutput) Release(error) { time.Sleep(3 * time.Second) }

func TestStoreFailureReleasesTasksOfAnApparentlyIdleObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{})
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		fs.FailSyncs(errors.New("bad disk"))
		began := time.Now()
		err := do(t.Context(), h, "a", "x", func(ctx context.Context, c *counter) error {
			if err := c.put(ctx, "k", 1); err != nil {
				return err
			}
			c.s.incarnation().batch.Emit(slowOutput{})
			return c.s.Go(ctx, "task", func(context.Context) error { return nil })
		})
		if !errors.Is(err, ErrFenced) {
			t.Errorf("the call returned %v, want ErrFenced", err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the call took %v, want 3s: the sweeper was to look at the object while its outputs are released", took)
		}
		<-h.Failed()
		if err := h.Close(); err == nil || h.active.Load() != 0 {
			t.Errorf("Close returned %v, with %d events active", err, h.active.Load())
		}
	})
}
