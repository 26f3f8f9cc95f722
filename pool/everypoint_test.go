package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// retryCall calls a method of the pool until it has an answer, or is refused. All of them may be repeated.
func retryCall[In, Out any](ctx context.Context, h *dohosttest.Host, m func(*Pool, context.Context, In) (Out, error), in In) (out Out, err error) {
	policy := &dohost.RetryPolicy{MaxAttempts: -1, ShouldRetry: func(err error, _ int) bool { return !isRefusal(err) }}
	err = dohost.Retry(ctx, policy, func(ctx context.Context) (err error) {
		out, err = dohost.Call(ctx, Pools.Get(h, "p"), m, in)
		return err
	})
	return out, err
}

// pointLog records the answers that clients have, over all incarnations and processes of a run.
type pointLog struct {
	mu      sync.Mutex
	claims  map[string]string // "task fence" to the connection that has the answer
	results map[string]string // tasks to the results with an answer
	failed  error
}

func (l *pointLog) reset() {
	l.claims, l.results, l.failed = map[string]string{}, map[string]string{}, nil
}

// claimed records a claim. No other connection may have the same.
func (l *pointLog) claimed(t *Task, conn string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := fmt.Sprint(t.ID, " ", t.Fence)
	if other, ok := l.claims[key]; ok && other != conn {
		l.failed = errors.Join(l.failed, fmt.Errorf("%s and %s have the claim %s", other, conn, key))
	}
	if _, ok := l.results[t.ID]; ok {
		l.failed = errors.Join(l.failed, fmt.Errorf("%s has claimed the task %s, which is done", conn, t.ID))
	}
	l.claims[key] = conn
}

// done records a result with an answer. A task has one.
func (l *pointLog) done(id, result string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, ok := l.results[id]; ok && other != result {
		l.failed = errors.Join(l.failed, fmt.Errorf("the task %s has the results %s and %s", id, other, result))
	}
	l.results[id] = result
}

// pointClient is a worker that works on tasks until the pool has none.
func pointClient(ctx context.Context, h *dohosttest.Host, l *pointLog, conn string, tasks int) error {
	if _, err := retryCall(ctx, h, (*Pool).Join, JoinRequest{Role: "a", Conn: conn}); err != nil {
		return err
	}
	for range 4 * tasks {
		c, err := retryCall(ctx, h, (*Pool).Claim, ClaimRequest{Role: "a", Conn: conn})
		if err != nil {
			return err
		}
		if c.Task == nil {
			break
		}
		l.claimed(c.Task, conn)
		hold := ClaimRef{c.Task.ID, conn, c.Task.Fence}
		result := fmt.Sprintf("%q", fmt.Sprint(conn, " ", hold.Fence))
		if _, err := retryCall(ctx, h, (*Pool).Start, hold); err != nil {
			return err
		}
		if _, err := retryCall(ctx, h, (*Pool).Renew, RenewRequest{ClaimRef: hold, Progress: "half"}); err != nil {
			return err
		}
		if _, err := retryCall(ctx, h, (*Pool).Handoff, HandoffRequest{hold, json.RawMessage(result)}); err != nil {
			return err
		}
		l.done(hold.Task, result)
	}
	_, err := retryCall(ctx, h, leave, LeaveRequest{"a", conn})
	if errors.Is(err, ErrStale) { // the answer to the first attempt was lost
		err = nil
	}
	return err
}

// checkDone checks that all tasks are done with the results that the workers have answers for.
func (l *pointLog) checkDone(ctx context.Context, h *dohosttest.Host, n int) error {
	list, err := dohost.Call(ctx, Pools.Get(h, "p"), (*Pool).Tasks, ListQuery{Role: "a"})
	if err != nil || l.failed != nil {
		return errors.Join(err, l.failed)
	}
	if len(list.Tasks) != n || len(l.results) != n {
		return fmt.Errorf("%d tasks and %d results, want %d", len(list.Tasks), len(l.results), n)
	}
	for _, t := range list.Tasks {
		whole, err := dohost.Call(ctx, Pools.Get(h, "p"), (*Pool).Task, TaskQuery{t.ID})
		if err != nil || whole.Status != StatusDone || string(whole.Result) != l.results[t.ID] || whole.Attempts != 1 || whole.Fence != 1 {
			return fmt.Errorf("%+v with the result %s, want %s: %w", whole, whole.Result, l.results[t.ID], err)
		}
	}
	return nil
}

// TestWorkersAtEveryPoint has two workers that claim the same tasks, start them, renew their leases and hand them off. All requests are
// repeated until they have an answer. No two workers have one claim, and each task is done with the result that its worker has an answer for.
func TestWorkersAtEveryPoint(t *testing.T) {
	const posted = 2
	l := &pointLog{}
	s := dohosttest.Scenario{
		FullDisk: true,
		Classes:  []dohost.Class{Class(nil)}, Reset: l.reset, Places: pointtest.Places(), SettleTime: time.Minute,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			_, err := retryCall(ctx, h, declare, DeclareRequest{Role: "a"})
			for i := range posted {
				_, err2 := retryCall(ctx, h, (*Pool).Post, NewTask{Role: "a", Key: fmt.Sprint(i)})
				err = errors.Join(err, err2)
			}
			for _, c := range []*dohosttest.Client{
				h.Client(func(ctx context.Context) error { return pointClient(ctx, h, l, "1", posted) }),
				h.Client(func(ctx context.Context) error { return pointClient(ctx, h, l, "2", posted) }),
			} {
				err = errors.Join(err, c.Wait())
			}
			return err
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error { return l.checkDone(ctx, h, posted) },
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 20, 60))
}

// TestPostsRequestOneRestartAtEveryPoint has two clients that post tasks to an offline role at the same time, and two daemons that take its
// restarts. Exactly one restart is requested, and one daemon has it.
func TestPostsRequestOneRestartAtEveryPoint(t *testing.T) {
	var mu sync.Mutex
	var takers []string
	s := dohosttest.Scenario{
		FullDisk: true,
		Classes:  []dohost.Class{Class(nil)}, Places: pointtest.Places(), SettleTime: time.Minute,
		Reset: func() { takers = nil },
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			_, err := retryCall(ctx, h, declare, DeclareRequest{"a", true})
			clients := []*dohosttest.Client{}
			for i := range 2 {
				clients = append(clients, h.Client(func(ctx context.Context) error {
					_, err := retryCall(ctx, h, (*Pool).Post, NewTask{Role: "a", Key: fmt.Sprint(i)})
					return err
				}))
			}
			for _, c := range clients {
				err = errors.Join(err, c.Wait())
			}
			clients = clients[:0]
			for _, daemon := range []string{"d", "e"} {
				clients = append(clients, h.Client(func(ctx context.Context) error {
					q, err := retryCall(ctx, h, (*Pool).Commands, PollRequest{Daemon: daemon})
					for _, c := range q.Commands {
						_, err = retryCall(ctx, h, (*Pool).Take, TakeRequest{daemon, "a", c.Number})
						if err == nil {
							mu.Lock()
							takers = append(takers, daemon)
							mu.Unlock()
						} else if errors.Is(err, ErrNotFound) {
							err = nil
						}
					}
					return err
				}))
			}
			for _, c := range clients {
				err = errors.Join(err, c.Wait())
			}
			return err
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			list, err := dohost.CallNoArg(ctx, Pools.Get(h, "p"), (*Pool).Roles)
			tasks, err2 := dohost.Call(ctx, Pools.Get(h, "p"), (*Pool).Tasks, ListQuery{Role: "a"})
			if err != nil || err2 != nil {
				return errors.Join(err, err2)
			}
			if r := list.Roles[0]; len(takers) != 1 || r.Restarts != 1 || r.Requested != nil || r.Starting == nil || len(tasks.Tasks) != 2 {
				return fmt.Errorf("taken by %q, %d tasks, %+v", takers, len(tasks.Tasks), r)
			}
			return nil
		},
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 15, 60))
}

// TestSweepAtEveryPoint has a live worker that sends heartbeats and renews its lease while the sweep takes the tasks of two dead workers
// back. The live worker and its task are not touched. Each other task is pending, and exactly one restart of the dead role is requested.
func TestSweepAtEveryPoint(t *testing.T) {
	const beats = 20 // twice per TTL
	options := &Options{Heartbeat: 5 * time.Second, TTL: 10 * time.Second, Sweep: 12 * time.Second, Lease: 10 * time.Second, Acknowledged: 5 * time.Second, Keep: 2 * time.Minute}
	var hold ClaimRef
	s := dohosttest.Scenario{
		FullDisk: true,
		Classes:  []dohost.Class{Class(options)}, Places: pointtest.Places(), SettleTime: 20 * time.Second,
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			_, err := retryCall(ctx, h, declare, DeclareRequest{"a", true})
			_, err2 := retryCall(ctx, h, declare, DeclareRequest{"dead", true})
			err = errors.Join(err, err2)
			for _, w := range []struct{ role, conn string }{{"dead", "1"}, {"dead", "2"}, {"a", "3"}} {
				_, err1 := retryCall(ctx, h, (*Pool).Join, JoinRequest{Role: w.role, Conn: w.conn})
				_, err2 := retryCall(ctx, h, (*Pool).Post, NewTask{Role: w.role, Key: w.conn})
				c, err3 := retryCall(ctx, h, (*Pool).Claim, ClaimRequest{Role: w.role, Conn: w.conn})
				if err = errors.Join(err, err1, err2, err3); err != nil {
					return err
				}
				if hold = (ClaimRef{c.Task.ID, w.conn, c.Task.Fence}); w.conn != "2" { // which stays acknowledged
					if _, err := retryCall(ctx, h, (*Pool).Start, hold); err != nil {
						return err
					}
				}
			}
			for range beats {
				if _, err := retryCall(ctx, h, (*Pool).Heartbeat, HeartbeatRequest{"a", "3"}); err != nil {
					return err
				}
				if _, err := retryCall(ctx, h, (*Pool).Renew, RenewRequest{ClaimRef: hold}); err != nil {
					return err
				}
				h.Advance(4 * time.Second)
			}
			_, err = retryCall(ctx, h, (*Pool).Handoff, HandoffRequest{ClaimRef: hold})
			return err
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			roles, err := dohost.CallNoArg(ctx, Pools.Get(h, "p"), (*Pool).Roles)
			dead, err2 := dohost.Call(ctx, Pools.Get(h, "p"), (*Pool).Tasks, ListQuery{Role: "dead"})
			live, err3 := dohost.Call(ctx, Pools.Get(h, "p"), (*Pool).Tasks, ListQuery{Role: "a"})
			if err := errors.Join(err, err2, err3); err != nil {
				return err
			}
			if a := roles.Roles[0]; a.Restarts != 0 || a.Requested != nil || len(live.Tasks) != 1 || live.Tasks[0].Status != StatusDone || live.Tasks[0].Fence != 1 {
				return fmt.Errorf("the live role %+v with %+v", a, live.Tasks)
			}
			d := roles.Roles[1]
			if d.Restarts != 1 || d.Requested == nil || d.Requested.Number != 1 || len(dead.Tasks) != 2 {
				return fmt.Errorf("the dead role %+v with %d tasks", d, len(dead.Tasks))
			}
			for _, t := range dead.Tasks {
				if t.Status != StatusPending || t.Fence != 1 {
					return fmt.Errorf("%+v", t)
				}
			}
			return nil
		},
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 20, 40))
}
