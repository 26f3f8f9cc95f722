package pool

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
)

// waiting is a claim that waits.
type waiting struct {
	claimed ClaimResponse
	err     error
	took    time.Duration
	done    bool
}

// waitFor begins a claim of a connection.
func (f *fixture) waitFor(ctx context.Context, role, conn string, wait time.Duration) *waiting {
	w, begun := &waiting{}, time.Now()
	go func() {
		w.claimed, w.err = dohost.Call(ctx, f.pool(), (*Pool).Claim, ClaimRequest{role, conn, wait.Milliseconds()})
		w.took, w.done = time.Since(begun), true
	}()
	synctest.Wait()
	return w
}

// TestClaimWaitsForAPost has three workers that wait. Each post ends one claim, and the times of the others end without a task.
func TestClaimWaitsForAPost(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		for _, c := range []string{"1", "2", "3"} {
			f.join("a", c)
		}
		f.join("b", "4")
		var ws []*waiting
		for _, c := range []string{"1", "2", "3"} {
			ws = append(ws, f.waitFor(ctx, "a", c, 40*time.Second))
		}
		other := f.waitFor(ctx, "b", "4", 10*time.Second)
		f.sleep(10 * time.Second)
		id := f.post("a", "x")
		synctest.Wait()
		if !ws[0].done || ws[0].err != nil || ws[0].claimed.Task == nil || ws[0].claimed.Task.ID != id || ws[0].took != 10*time.Second || ws[1].done || ws[2].done {
			t.Errorf("%+v, %+v, %+v", ws[0], ws[1], ws[2])
		}
		if !other.done || other.claimed.Task != nil || other.err != nil {
			t.Errorf("%+v", other)
		}
		f.post("a", "y")
		f.sleep(30 * time.Second)
		if !ws[1].done || ws[1].claimed.Task == nil || !ws[2].done || ws[2].claimed.Task != nil || ws[2].took != 40*time.Second || ws[2].err != nil {
			t.Errorf("%+v, %+v", ws[1], ws[2])
		}
	})
}

// TestPostIsNotLostWithAWaiter ends the oldest claims in different ways before a post.
func TestPostIsNotLostWithAWaiter(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		for _, c := range []string{"1", "2", "3"} {
			f.join("a", c)
		}
		gone, cancel := context.WithCancel(ctx)
		left, replaced := f.waitFor(ctx, "a", "1", 40*time.Second), f.waitFor(gone, "a", "2", 40*time.Second)
		newer := f.waitFor(ctx, "a", "2", 40*time.Second)
		call(f, leave, LeaveRequest{"a", "1"})
		synctest.Wait()
		if !left.done || !replaced.done || left.err != nil || replaced.claimed.Task != nil || newer.done {
			t.Errorf("%+v, %+v, %+v", left, replaced, newer)
		}
		cancel()
		last := f.waitFor(ctx, "a", "3", 40*time.Second)
		f.post("a", "x")
		f.post("a", "y")
		synctest.Wait()
		if !newer.done || newer.claimed.Task == nil || !last.done || last.claimed.Task == nil {
			t.Errorf("%+v, %+v", newer, last)
		}
	})
}

// TestWakeIsPassedOn posts a task, and removes the worker that it wakes before its claim continues.
func TestWakeIsPassedOn(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		f.join("a", "2")
		first, second := f.waitFor(ctx, "a", "1", 40*time.Second), f.waitFor(ctx, "a", "2", 40*time.Second)
		err := f.pool().Do(ctx, func(ctx context.Context, p *Pool) error {
			_, err := p.Post(ctx, NewTask{Role: "a"})
			return errors.Join(err, p.Leave(ctx, LeaveRequest{"a", "1"}))
		})
		synctest.Wait()
		if err != nil || !errors.Is(first.err, ErrStale) || !second.done || second.claimed.Task == nil {
			t.Errorf("%v, %+v, %+v", err, first, second)
		}
	})
}

// TestClaimThatLostItsAnswerIsRepeated has a client that disconnects while its claim waits. The claim gets the next task, and the
// repeated claim of the client gets the same.
func TestClaimThatLostItsAnswerIsRepeated(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		f.join("a", "2")
		gone, cancel := context.WithCancel(ctx)
		lost := f.waitFor(gone, "a", "1", 40*time.Second)
		cancel()
		synctest.Wait()
		if lost.err == nil {
			t.Error("the client has an answer")
		}
		id := f.post("a", "x")
		again := f.waitFor(ctx, "a", "1", 0)
		if again.err != nil || again.claimed.Task == nil || again.claimed.Task.ID != id || again.claimed.Task.Fence != 1 {
			t.Errorf("%+v", again)
		}
		f.post("a", "y") // wakes none, or one that gets its old task: see the next worker
		if got := f.waitFor(ctx, "a", "2", 0); got.claimed.Task == nil {
			t.Errorf("%+v", got)
		}
	})
}

// TestWaitersEndWithTheHost closes the host while a claim and a poll wait.
func TestWaitersEndWithTheHost(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		w := f.waitFor(ctx, "a", "1", 50*time.Second)
		polled := make(chan error, 1)
		go func() {
			_, err := dohost.Call(ctx, f.pool(), (*Pool).Commands, PollRequest{Daemon: "d", WaitMS: 50_000})
			polled <- err
		}()
		synctest.Wait()
		begun := time.Now()
		f.close()
		synctest.Wait()
		if err := <-polled; time.Since(begun) > time.Second || !w.done || w.err != nil || err != nil {
			t.Errorf("%v: %+v, %v", time.Since(begun), w, err)
		}
		f.open()
	})
}

// TestCommandsWaitForARequest has two daemons that wait for the requests of a role, and one of them takes it.
func TestCommandsWaitForARequest(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		call(f, declare, DeclareRequest{"a", true})
		call(f, declare, DeclareRequest{"b", true})
		refused(f, ErrNotFound, (*Pool).Commands, PollRequest{"d", "none", 40_000})
		var got [3]PollResponse
		var took [3]time.Duration
		begun := time.Now()
		for i, q := range []PollRequest{{"d", "a", 40_000}, {"e", "", 40_000}, {"other", "b", 30_000}} {
			go func() {
				var err error
				if got[i], err = dohost.Call(ctx, f.pool(), (*Pool).Commands, q); err != nil {
					t.Error(err)
				}
				took[i] = time.Since(begun)
			}()
		}
		f.sleep(10 * time.Second)
		f.post("a", "x")
		f.sleep(30 * time.Second)
		if len(got[0].Commands) != 1 || len(got[1].Commands) != 1 || len(got[2].Commands) != 0 || took != [3]time.Duration{10 * time.Second, 10 * time.Second, 30 * time.Second} {
			t.Errorf("%+v after %v", got, took)
		}
		c := got[0].Commands[0]
		call(f, (*Pool).Take, TakeRequest{"d", "a", c.Number})
		refused(f, ErrNotFound, (*Pool).Take, TakeRequest{"e", "a", c.Number})
	})
}

// TestPollsAreBounded has as many daemons that wait as may, and one more.
func TestPollsAreBounded(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		for i := range maxPolls {
			go func() {
				if _, err := dohost.Call(ctx, f.pool(), (*Pool).Commands, PollRequest{Daemon: fmt.Sprint(i), WaitMS: 50_000}); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		refused(f, ErrFull, (*Pool).Commands, PollRequest{Daemon: "more", WaitMS: 1})
		call(f, (*Pool).Commands, PollRequest{Daemon: "more"}) // does not wait
		f.sleep(time.Minute)
	})
}

// TestWaitsAreBounded has a worker with an exit report while it waits for a task, then the maximum number of waiting workers, and one more.
// Other requests of the pool are answered all the time.
func TestWaitsAreBounded(t *testing.T) {
	inPool(t, &Options{MaxWorkers: 2 * maxWaits}, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		ended := f.waitFor(ctx, "a", "1", 40*time.Second)
		call(f, exited, ProcessExit{Role: "a", Conn: "1"})
		synctest.Wait()
		if !ended.done || ended.claimed.Task != nil {
			t.Errorf("the claim of a worker that has ended: %+v", ended)
		}
		for i := range maxWaits {
			role, conn := fmt.Sprint("r", i%2), fmt.Sprint(i)
			f.join(role, conn)
			go func() {
				if _, err := dohost.Call(ctx, f.pool(), (*Pool).Claim, ClaimRequest{role, conn, 50_000}); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		f.join("r0", "more")
		if _, err := dohost.Call(ctx, f.pool(), (*Pool).Claim, ClaimRequest{"r0", "more", 1}); !errors.Is(err, ErrFull) {
			t.Error(err)
		}
		again := f.waitFor(ctx, "r0", "0", 40*time.Second) // in the place of its older claim
		if again.done {
			t.Errorf("%+v", again)
		}
		id := f.post("r0", "x")
		if c := call(f, (*Pool).Claim, ClaimRequest{"r0", "more", 0}); c.Task != nil && c.Task.ID != id {
			t.Errorf("%+v", c)
		}
		f.sleep(time.Minute)
	})
}
