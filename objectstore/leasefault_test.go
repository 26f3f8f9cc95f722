package objectstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/sharedlog"
	"github.com/dohost/dohost/sharedlog/logtest"
)

// userLease is a lease with other methods.
type userLease struct {
	sharedlog.Lease
	onAppend  func(context.Context, uint64) error // if set, its error is that of Append
	onValid   func()
	onRelease func(context.Context)
	onRead    func(context.Context) error // if set, its error ends each sequence of Read
}

func (l *userLease) Read(ctx context.Context, from uint64) iter.Seq2[[]byte, error] {
	if l.onRead == nil {
		return l.Lease.Read(ctx, from)
	}
	return func(yield func([]byte, error) bool) { yield(nil, l.onRead(ctx)) }
}

func (l *userLease) Append(ctx context.Context, number uint64, record []byte) error {
	if l.onAppend != nil {
		if err := l.onAppend(ctx, number); err != nil {
			return err
		}
	}
	return l.Lease.Append(ctx, number, record)
}

func (l *userLease) Valid() bool {
	if l.onValid != nil {
		l.onValid()
	}
	return l.Lease.Valid()
}

func (l *userLease) Release(ctx context.Context) error {
	if l.onRelease != nil {
		l.onRelease(ctx)
	}
	return l.Lease.Release(ctx)
}

// userLeased returns options with such a lease.
func userLeased(t *testing.T, log *logtest.Log) (Options, *userLease) {
	o := leased(t, log)
	l := &userLease{Lease: o.Shared.Lease}
	o.Shared.Lease = l
	return o, l
}

// closesWithin fails the test if Close takes longer.
func closesWithin(t *testing.T, s *Store, limit time.Duration) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.Close() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(limit):
		t.Errorf("Close has not returned after %v", limit)
		s.Abandon()
		return <-ended
	}
}

// TestLossOfTheLeaseEndsAnAppend has a log that does not answer before the context ends.
func TestLossOfTheLeaseEndsAnAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, failed, j := &logtest.Log{}, make(chan error, 1), new(releaseLog)
		o, l := userLeased(t, log)
		o.OnFail = func(err error) { failed <- err }
		s := open(t, NewMemFS(), o)
		l.onAppend = func(ctx context.Context, _ uint64) error { <-ctx.Done(); return ctx.Err() }
		a := s.live("c", "a")
		a.put(t, "n", "1")
		a.Emit(entry{j, "write"})
		a.commitBatch(t)
		time.Sleep(time.Minute)
		j.want(t)
		log.Expire()
		time.Sleep(time.Second)
		j.want(t, "write!")
		select {
		case err := <-failed:
			if !errors.Is(err, ErrFenced) {
				t.Errorf("failed with %v", err)
			}
		default:
			t.Error("the store has not failed")
		}
	})
}

// TestCloseGivesUpARecordWhenTheLogDoesNotAnswer closes a store with a record in flight.
func TestCloseGivesUpARecordWhenTheLogDoesNotAnswer(t *testing.T) {
	for name, answer := range map[string]func(context.Context, uint64) error{
		"unavailable": func(context.Context, uint64) error { return sharedlog.ErrUnavailable },
		"blocked":     func(ctx context.Context, _ uint64) error { <-ctx.Done(); return ctx.Err() },
	} {
		synctest.Test(t, func(t *testing.T) {
			log, j := &logtest.Log{}, new(releaseLog)
			o, l := userLeased(t, log)
			s := open(t, NewMemFS(), o)
			l.onAppend = answer
			a := s.live("c", "a")
			a.put(t, "n", "1")
			a.Emit(entry{j, "write"})
			a.commitBatch(t)
			begun := time.Now()
			err := closesWithin(t, s, time.Minute)
			if took := time.Since(begun); err == nil || took < leaseHostTime || took > 2*leaseHostTime {
				t.Errorf("%s: Close after %v: %v", name, took, err)
			}
			j.want(t, "write!")
			if l.Valid() {
				t.Errorf("%s: the lease was not released", name)
			}
		})
	}
}

// TestFailureKeepsItsFirstCause has an output that finds the lease invalid while the outcome of an append is unknown.
func TestFailureKeepsItsFirstCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, failed := &logtest.Log{Linger: time.Hour}, make(chan error, 1)
		o := leased(t, log)
		o.OnFail = func(err error) { failed <- err }
		s := open(t, NewMemFS(), o)
		log.OnAppend = func(logtest.Append) logtest.Fault { return logtest.FaultLost }
		a, b := s.live("c", "a"), s.live("c", "b")
		a.put(t, "n", "1")
		a.commitBatch(t)
		synctest.Wait()
		log.Expire()
		b.Emit(entry{new(releaseLog), "read"})
		b.commitBatch(t)
		if err := s.Err(); !errors.Is(err, errLeaseLost) {
			t.Errorf("the store has failed with %v", err)
		}
		if err := <-failed; !errors.Is(err, errLeaseLost) {
			t.Errorf("OnFail: %v", err)
		}
		if err := s.Close(); !errors.Is(err, errLeaseLost) {
			t.Errorf("Close: %v", err)
		}
	})
}

// TestAbandonDuringAnAppendIsNoFailure abandons a store whose log does not answer.
func TestAbandonDuringAnAppendIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, l := userLeased(t, &logtest.Log{})
		o.OnFail = func(err error) { t.Errorf("OnFail: %v", err) }
		s, j := open(t, NewMemFS(), o), new(releaseLog)
		l.onAppend = func(ctx context.Context, _ uint64) error { <-ctx.Done(); return ctx.Err() }
		a := s.live("c", "a")
		a.put(t, "n", "1")
		a.Emit(entry{j, "write"})
		a.commitBatch(t)
		synctest.Wait()
		s.Abandon()
		j.want(t, "write!")
		if err := s.Err(); err != nil {
			t.Errorf("the store has failed with %v", err)
		}
		synctest.Wait()
	})
}

// TestPanicOfALeaseFailsTheStore has each method of a lease that a running store calls panic.
func TestPanicOfALeaseFailsTheStore(t *testing.T) {
	for name, set := range map[string]func(*userLease, func()){
		"Append":  func(l *userLease, f func()) { l.onAppend = func(context.Context, uint64) error { f(); return nil } },
		"Valid":   func(l *userLease, f func()) { l.onValid = f },
		"Release": func(l *userLease, f func()) { l.onRelease = func(context.Context) { f() } },
	} {
		for _, write := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				o, l := userLeased(t, &logtest.Log{})
				s, j := open(t, NewMemFS(), o), new(releaseLog)
				set(l, func() { panic("by the test") })
				a := s.live("c", "a")
				if write {
					a.put(t, "n", "1")
				}
				a.Emit(entry{j, "output"})
				a.commitBatch(t)
				synctest.Wait()
				want, text := "output!", name+": panic: by the test"
				if name == "Valid" {
					text = errLeaseLost.Error()
				}
				if name == "Release" || name == "Append" && !write {
					want = "output"
				}
				j.want(t, want)
				if err := closesWithin(t, s, time.Minute); err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("panic in %s, a write %v: Close: %v", name, write, err)
				}
			})
		}
	}
}

// TestBackupWithALeaseWhileFlushesFail has a disk that takes the engine's log, and no tables.
func TestBackupWithALeaseWhileFlushesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := NewMemFS()
		s := open(t, disk, leased(t, &logtest.Log{}))
		a := s.live("c", "a")
		a.put(t, "n", "1")
		a.commit(t)
		disk.OnWrite(func(_, path string, _ int64) error {
			if strings.HasSuffix(path, ".sst") {
				return errors.New("by the test")
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Backup(ctx, "/copy"); err != nil {
			t.Fatal(err)
		}
		b, err := Open("/copy", &Options{FS: disk.Crash(0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Abandon()
		b.live("c", "a").want(t, "n", "1")
	})
}

// TestLeaseThatWasUsedIsRefused opens a directory with a lease that an earlier Open had, and with one that is not valid any more. Neither is a
// damage of the log.
func TestLeaseThatWasUsedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, log := NewMemFS(), &logtest.Log{}
		open(t, disk, leased(t, log)).Abandon()
		former, used := leased(t, log), leased(t, log)
		open(t, disk, used).Abandon()
		for text, o := range map[string]Options{"another Open has used the lease": used, "the lease on the shared log has ended": former} {
			o.FS = disk
			s, err := Open(dir, &o)
			if err == nil {
				s.Abandon()
			}
			if !errors.Is(err, ErrFenced) || !strings.Contains(err.Error(), text) {
				t.Errorf("Open: %v, want ErrFenced with %q", err, text)
			}
		}
		if n := len(log.Records()); n != 2 {
			t.Errorf("the log has %d records, want 2", n)
		}
		open(t, disk, leased(t, log))
	})
}

// TestLossOfTheLeaseEndsAnOpen has a log whose records do not arrive before the context ends.
func TestLossOfTheLeaseEndsAnOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, log := NewMemFS(), &logtest.Log{}
		open(t, disk, leased(t, log)).Abandon()
		o, l := userLeased(t, log)
		l.onRead = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		time.AfterFunc(time.Minute, log.Expire)
		o.FS = disk
		if s, err := Open(dir, &o); !errors.Is(err, errLeaseLost) {
			t.Errorf("Open: %v", err)
			if err == nil {
				s.Abandon()
			}
		}
		open(t, disk, leased(t, log))
	})
}

// TestLeaseCallThatEndedNamesItsCauseOnce has a call of a lease that returns the cause of its context, as it may.
func TestLeaseCallThatEndedNamesItsCauseOnce(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	stop(errLeaseLost)
	l := &leaseLog{ctx: ctx}
	for _, err := range []error{context.Cause(ctx), fmt.Errorf("append: %w: %w", sharedlog.ErrUnknown, context.Cause(ctx)), sharedlog.ErrUnknown} {
		got := l.failure(err)
		if !errors.Is(got, ErrFenced) || repeatable(got) || strings.Count(got.Error(), errLeaseLost.Error()) != 1 {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// TestLeaseContextEndsAfterRelease has a lease that keeps the context of Release.
func TestLeaseContextEndsAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, l := userLeased(t, &logtest.Log{})
		var kept context.Context
		l.onRelease = func(ctx context.Context) { kept = ctx }
		o.FS = NewMemFS()
		s, err := Open(dir, &o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil || kept == nil || kept.Err() == nil {
			t.Errorf("closed: %v, and the context is %v", err, kept)
		}
	})
}
