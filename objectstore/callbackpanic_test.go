package objectstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	goruntime "runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// ends are the ways to leave a function without returning.
var ends = map[string]func(){"panic": func() { panic("bad") }, "goexit": goruntime.Goexit}

// brokenOutput is an output with a Release that does not return.
type brokenOutput struct{ end func() }

func (o brokenOutput) Release(error) { o.end() }

func TestOutputPanicDelaysNoOtherOutput(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		a, b := s.live("c", "a"), s.live("c", "b")
		broken := brokenOutput{ends["panic"]}
		a.Emit(broken) // released by this goroutine
		a.Emit(entry{j, "free"})
		a.commitBatch(t)
		release := fs.HoldSyncs()
		a.put(t, "n", "1") // and now by the committer
		a.Emit(broken)
		a.Emit(entry{j, "committed"})
		a.commitBatch(t)
		synctest.Wait()
		b.put(t, "n", "1")
		b.Emit(broken)
		b.Emit(entry{j, "dropped"})
		b.commitBatch(t)
		b.FenceDropping()
		release()
		j.want(t, "free", "dropped!", "committed")
		if !a.Clean() || !b.Clean() {
			t.Errorf("clean after the releases: a %v, b %v", a.Clean(), b.Clean())
		}
		if err := s.Err(); err != nil {
			t.Errorf("the store failed: %v", err)
		}
	})
}

func TestCommitterPanicOrGoexitFailsStore(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			failed := make(chan error, 1)
			o := Options{OnFail: func(err error) { failed <- err }, OnAlarms: func([]AlarmChange) { end() }}
			held(t, o, func(t *testing.T, s *Store, _ *FS, j *releaseLog) {
				a := s.live("c", "a")
				a.put(t, "n", "1")
				a.SetSlot(Slot{Due: due(1)})
				a.Emit(entry{j, "lost"})
				a.commitBatch(t)
				j.want(t, "lost!")
				if err := <-failed; err == nil || s.Err() == nil {
					t.Errorf("OnFail got %v, and Err is %v", err, s.Err())
				}
				a.put(t, "n", "2")
				if err := a.Commit(a.Batch); !errors.Is(err, ErrFenced) {
					t.Errorf("a hand-over after the failure: %v", err)
				}
				if err := s.Close(); !errors.Is(err, s.Err()) {
					t.Errorf("Close: %v, want %v", err, s.Err())
				}
			})
		})
	}
}

func TestHookGoexitFailsStore(t *testing.T) {
	for _, stage := range []Stage{StageTake, StageSync, StageDurable} {
		t.Run(fmt.Sprint(stage), func(t *testing.T) {
			var opened atomic.Bool // Open syncs a record, too, on its caller's goroutine
			hook := func(s Stage, _ iter.Seq[ID]) {
				if s == stage && opened.Load() {
					goruntime.Goexit()
				}
			}
			held(t, Options{Hook: hook}, func(t *testing.T, s *Store, _ *FS, j *releaseLog) {
				a := s.live("c", "a")
				opened.Store(true)
				a.put(t, "n", "1")
				a.Emit(entry{j, "out"})
				a.commitBatch(t)
				j.want(t, "out!")
				if s.Err() == nil {
					t.Error("the store has not failed")
				}
				if err := s.Close(); !errors.Is(err, s.Err()) {
					t.Errorf("Close: %v, want %v", err, s.Err())
				}
			})
		})
	}
}

func TestOutputGoexitInCommitterFailsStore(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		a, b, first := s.live("c", "a"), s.live("c", "b"), s.live("c", "first")
		release := fs.HoldSyncs()
		first.put(t, "n", "1")
		first.commitBatch(t)
		synctest.Wait() // until the committer syncs first: both others get into the next record
		for _, l := range []live{a, b} {
			l.put(t, "n", "1")
			l.Emit(brokenOutput{ends["goexit"]})
			l.Emit(entry{j, "next"})
			l.commitBatch(t)
		}
		release()
		j.want(t, "next", "next")
		if s.Err() == nil {
			t.Error("the store has not failed, and has no committer")
		}
		if !a.Clean() || !b.Clean() {
			t.Errorf("clean after the releases: a %v, b %v", a.Clean(), b.Clean())
		}
	})
}

// slowly is an AsyncOutput that waits for the test to release it.
type slowly struct {
	entry
	done chan func()
}

func (o slowly) ReleaseAsync(done func()) {
	o.j.note(o.name + "...")
	o.done <- done
}

func TestOutputAsyncDelaysOnlyItsObject(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		a, b := s.live("c", "a"), s.live("c", "b")
		slow := slowly{entry{j, "slow"}, make(chan func(), 1)}
		for _, write := range []bool{false, true} { // released by this goroutine, and by the committer
			if write {
				a.put(t, "n", "1")
			}
			a.Emit(entry{j, "before"})
			a.Emit(slow)
			a.Emit(entry{j, "behind"})
			a.commitBatch(t)
			j.want(t, "before", "slow...")
			a.put(t, "n", "2")
			a.Emit(entry{j, "later"})
			a.commitBatch(t)
			b.put(t, "n", "1")
			b.Emit(entry{j, "other"})
			b.commitBatch(t)
			j.want(t, "other")
			if a.Clean() {
				t.Error("the range is clean while an output waits")
			}
			(<-slow.done)()
			j.want(t, "behind", "later")
			if !a.Clean() {
				t.Error("the range is not clean after its last output was released")
			}
		}
		release := fs.HoldSyncs()
		b.put(t, "n", "1")
		b.commitBatch(t)
		synctest.Wait()
		a.put(t, "n", "1")
		a.Emit(slow)
		a.Emit(entry{j, "behind"})
		a.commitBatch(t)
		a.FenceDropping()
		j.want(t, "slow!", "behind!")
		release()
	})
}

func TestStoreSurvivesCallbacksThatDoNotReturn(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			o := Options{
				Logger: slog.New(brokenHandler{end}), OnFail: func(error) { end() }, OnSpace: func(DiskSpace) { end() },
			}
			if name == "panic" { // for Goexit, see TestHookGoexitFailsStore
				o.Hook = func(Stage, iter.Seq[ID]) { end() }
			}
			held(t, o, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
				a := s.live("c", "a")
				a.put(t, "n", "0")
				a.Emit(entry{j, "kept"})
				a.commitBatch(t)
				j.want(t, "kept")
				fs.SetFree(0)
				s.space.measure()
				fs.SetFree(1 << 40)
				s.space.measure()
				fs.FailSyncs(errDisk)
				a.put(t, "n", "1")
				a.Emit(entry{j, "lost"})
				a.commitBatch(t)
				j.want(t, "lost!")
				if err := s.Close(); !errors.Is(err, errDisk) {
					t.Errorf("Close: %v", err)
				}
			})
		})
	}
}

type brokenHandler struct{ end func() }

func (h brokenHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (h brokenHandler) Handle(context.Context, slog.Record) error { h.end(); return nil }
func (h brokenHandler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h brokenHandler) WithGroup(string) slog.Handler             { return h }
