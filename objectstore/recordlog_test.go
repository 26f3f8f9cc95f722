package objectstore

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/sharedlog"
)

// scriptedLog is a local log that can be unavailable, as one on other machines can.
type scriptedLog struct {
	recordLog
	answers []error // of the next calls of Append; the local log has those after them
	stale   atomic.Bool

	mu  sync.Mutex
	got []string // the arguments of each call
}

func (l *scriptedLog) appended() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.got)
}

// Append returns an invalid tail with its errors.
func (l *scriptedLog) Append(epoch, tail uint64, r *record) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got = append(l.got, fmt.Sprintf("%d %d %q", epoch, tail, r.batch.Repr()))
	if len(l.answers) == 0 {
		return l.recordLog.Append(epoch, tail, r)
	}
	err := l.answers[0]
	l.answers = l.answers[1:]
	return 99, err
}

func (l *scriptedLog) Valid() bool { return !l.stale.Load() }

// scripted runs f with a store that has a log with these answers.
func scripted(t *testing.T, answers []error, f func(t *testing.T, s *Store, log *scriptedLog, j *releaseLog)) {
	held(t, Options{}, func(t *testing.T, s *Store, _ *FS, j *releaseLog) {
		log := &scriptedLog{recordLog: s.log, answers: answers}
		s.log = log
		f(t, s, log, j)
	})
}

// TestRecordAppendIsRetriedWithSameRecord has a log that first returns sharedlog.ErrUnknown, and one that returns sharedlog.ErrUnavailable.
func TestRecordAppendIsRetriedWithSameRecord(t *testing.T) {
	for _, answers := range [][]error{
		{fmt.Errorf("%w: no answer", sharedlog.ErrUnknown), sharedlog.ErrUnknown},
		{fmt.Errorf("%w: nobody there", sharedlog.ErrUnavailable), sharedlog.ErrUnavailable},
	} {
		t.Run(answers[1].Error(), func(t *testing.T) {
			scripted(t, answers, func(t *testing.T, s *Store, log *scriptedLog, j *releaseLog) {
				o, other := s.live("c", "a"), s.live("c", "b")
				o.put(t, "n", "1")
				o.Emit(entry{j, "write"})
				o.commitBatch(t)
				synctest.Wait()
				o.Emit(entry{j, "read"})
				o.commitBatch(t)
				other.put(t, "n", "1")
				other.Emit(entry{j, "other"})
				other.commitBatch(t) // wakes the committer, and is no reason to hurry
				time.Sleep(2*appendRetry - 1)
				j.want(t)
				if len(log.appended()) != 2 || o.Clean() || s.Stats().Records != 0 || s.Err() != nil {
					t.Errorf("while the log is away: appended %q, clean %v, %+v, %v", log.appended(), o.Clean(), s.Stats(), s.Err())
				}
				time.Sleep(time.Nanosecond)
				j.want(t, "write", "read", "other")
				if len(log.appended()) != 4 || len(slices.Compact(log.appended()[:3])) != 1 {
					t.Errorf("not the same record three times and then another: %q", log.appended())
				}
				var epoch, tail uint64
				if _, err := fmt.Sscan(log.appended()[3], &epoch, &tail); err != nil || epoch != s.Generation() || tail != 2 {
					t.Errorf("the next record came with epoch %d, tail %d, %v; want %d, 2", epoch, tail, err, s.Generation())
				}
			})
		})
	}
}

// TestRecordLogRefusalFencesStore has a log that refuses the host: its objects are fenced, and their commits are lost.
func TestRecordLogRefusalFencesStore(t *testing.T) {
	scripted(t, []error{sharedlog.ErrUnavailable, fmt.Errorf("%w: epoch 7 was seen", ErrFenced)},
		func(t *testing.T, s *Store, log *scriptedLog, j *releaseLog) {
			o := s.live("c", "a")
			o.put(t, "n", "1")
			o.Emit(entry{j, "in flight"})
			o.commitBatch(t)
			synctest.Wait()
			o.put(t, "n", "2")
			o.Emit(entry{j, "filling"})
			o.commitBatch(t)
			time.Sleep(appendRetry)
			j.want(t, "in flight!", "filling!")
			if err := s.Err(); !errors.Is(err, ErrFenced) || len(log.appended()) != 2 {
				t.Errorf("the store failed with %v after %d appends", err, len(log.appended()))
			}
			if err := o.Commit(o.Batch); !errors.Is(err, ErrFenced) {
				t.Errorf("hand-over: %v", err)
			}
			if !o.Clean() || s.Stats().Undurable != 0 {
				t.Errorf("%d bytes are left", s.Stats().Undurable)
			}
			openAgain(t, s.opts.FS).live("c", "a").absent(t, "n")
		})
}

// TestAbandonDoesNotWaitForTheLog ends a store with a record that the log does not accept.
func TestAbandonDoesNotWaitForTheLog(t *testing.T) {
	for _, err := range []error{sharedlog.ErrUnknown, sharedlog.ErrUnavailable} {
		scripted(t, []error{err, err}, func(t *testing.T, s *Store, log *scriptedLog, j *releaseLog) {
			o := s.live("c", "a")
			o.put(t, "n", "1")
			o.Emit(entry{j, "write"})
			o.commitBatch(t)
			synctest.Wait()
			start := time.Now()
			s.Abandon()
			j.want(t, "write!")
			if waited := time.Since(start); waited > 0 || len(log.appended()) != 1 || s.Err() != nil {
				t.Errorf("it took %v and %d appends: %v", waited, len(log.appended()), s.Err())
			}
		})
	}
}

// TestOutputFailsWithoutValidLease has a log that another host may have taken over by now: rows that were read
// from memory, even durable ones, must not leave.
func TestOutputFailsWithoutValidLease(t *testing.T) {
	scripted(t, nil, func(t *testing.T, s *Store, log *scriptedLog, j *releaseLog) {
		try := func(what string, o live, write bool, want error) {
			t.Helper()
			if write {
				o.put(t, "n", "1")
			}
			done := newReleased()
			o.Emit(done)
			o.commitBatch(t)
			if err := <-done; !errors.Is(err, want) {
				t.Errorf("%s: released with %v, want %v", what, err, want)
			}
		}
		o := s.live("c", "a")
		try("before", o, true, nil)
		log.stale.Store(true)
		try("a read", o, false, ErrFenced)
		if err := s.Err(); !errors.Is(err, ErrFenced) {
			t.Errorf("the store has not failed: %v", err)
		}
		if err := o.Commit(o.Batch); !errors.Is(err, ErrFenced) {
			t.Errorf("a commit after the end of the lease: %v", err)
		}
	})
}
