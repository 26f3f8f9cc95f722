package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/pool"
)

// check reports an error unless err has the wanted text, or is nil if that is empty.
func check(t *testing.T, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// TestVerifyNoticesHeartbeats sends heartbeats of three workers, and then loses one, or counts one that was not sent.
func TestVerifyNoticesHeartbeats(t *testing.T) {
	b := small(t)
	for want, fault := range map[string]func(s *beatSide) (more int64, err error){
		"": func(*beatSide) (int64, error) { return 0, nil },
		"which have sent 3 heartbeats, and 4 were counted": func(*beatSide) (int64, error) { return 1, nil },
		"the worker 1 is": func(s *beatSide) (int64, error) {
			s.until[1] = s.until[1].Add(1)
			return 0, nil
		},
		"the worker 2 is": func(s *beatSide) (int64, error) {
			_, err := dohost.Call(t.Context(), s.stub(), dohost.NoResult((*pool.Pool).Leave), pool.LeaveRequest{Role: poolRole, Conn: conn(2)})
			return 0, err
		},
		"3 tasks are pending, want 2": func(s *beatSide) (int64, error) { return 0, s.fillOne(t.Context(), 4) },
	} {
		s, err := b.openBeats(t.Context(), 3, 5)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if err := s.one(t.Context(), i); err != nil {
				t.Fatal(err)
			}
		}
		more, err := fault(s)
		if err != nil {
			t.Fatal(err)
		}
		check(t, s.verify(t.Context(), 3+more), want)
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSweepsAreCounted sweeps a small pool, and then all of its workers lapse. A worker that was removed earlier, and a further task, are
// noticed.
func TestSweepsAreCounted(t *testing.T) {
	b := small(t)
	for want, fault := range map[string]func(s *sweepSide) error{
		"": func(*sweepSide) error { return nil },
		"1 workers were removed before they have lapsed": func(s *sweepSide) error { s.early++; return nil },
		"3 tasks are pending, want 2":                    func(s *sweepSide) error { return s.fillOne(t.Context(), 4) },
	} {
		const ttl = 300 * time.Millisecond
		s, err := b.openSweeps(t.Context(), 3, 5, ttl)
		if err != nil {
			t.Fatal(err)
		}
		if err := keepReachable(t.Context(), []*sweepSide{s}, ttl); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := s.work(t.Context(), &meter{until: time.Now()}); err != nil {
				t.Fatal(err)
			}
		}
		if err := fault(s); err != nil {
			t.Fatal(err)
		}
		check(t, s.verify(t.Context(), 0), want)
		if want == "" && (s.lapse.workers != 3 || s.lapse.reads == 0 || s.lapse.took == 0) {
			t.Errorf("%+v", s.lapse)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestResultOfAnEarlierAttemptIsNoticed hands a task off with the result of another attempt than the last one.
func TestResultOfAnEarlierAttemptIsNoticed(t *testing.T) {
	p := &poolHost{options: &stillPool, workers: 2, tasks: 2}
	if err := small(t).openPool(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	k := &killedRole{poolHost: p, name: poolRole}
	for i, want := range []string{"", "the result of a task is 7 of 1 attempts"} {
		w, err := dohost.Call(t.Context(), p.stub(), (*pool.Pool).Task, pool.TaskQuery{Task: fmt.Sprint(i + 1)})
		if err != nil {
			t.Fatal(err)
		}
		result := []string{"1", "7"}[i]
		hold := pool.ClaimRef{Task: w.ID, Conn: w.Conn, Fence: w.Fence}
		if _, err := dohost.Call(t.Context(), p.stub(), (*pool.Pool).Handoff, pool.HandoffRequest{ClaimRef: hold, Result: []byte(result)}); err != nil {
			t.Fatal(err)
		}
		check(t, k.done(t.Context(), w.ID, 1), want)
	}
}
