package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// boss is an agent that posts tasks, and keeps the ends that it is notified of.
type boss struct{ *agent.Agent[struct{}] }

const (
	bosses dohost.Namespace[boss]  = "boss"
	ended  agent.Callback[TaskEnd] = "ended"
	other  agent.Callback[string]  = "other"
	absent agent.Callback[TaskEnd] = "absent"
	wrong  agent.Callback[TaskEnd] = "other"
)

var ends = dohost.Collection[TaskEnd]{Name: "ends", Key: func(e TaskEnd) string { return fmt.Sprint(e.Task, e.Error) }}

func bossClass() dohost.Class {
	return agent.Bind(bosses, func(_ context.Context, a *agent.Agent[struct{}]) (*boss, error) { return &boss{a}, nil }, nil,
		agent.OnSchedule(other, func(*boss, context.Context, string) error { return nil }),
		agent.OnSchedule(ended, func(b *boss, ctx context.Context, e TaskEnd) error {
			return ends.Put(ctx, b.Storage(), e)
		}))
}

// object is not an agent.
type object struct{}

func objectClass() dohost.Class {
	return dohost.Bind(dohost.Namespace[object]("object"), func(context.Context, *dohost.State) (*object, error) { return &object{}, nil }, nil)
}

// inPoolWithBoss runs fn with a pool and the boss "b" in a bubble.
func inPoolWithBoss(t *testing.T, o *Options, fn func(ctx context.Context, f *fixture)) {
	t.Helper()
	inPool(t, o, func(ctx context.Context, f *fixture) {
		f.close()
		f.others = []dohost.Class{bossClass(), objectClass()}
		f.open()
		fn(ctx, f)
	})
}

// postFor posts a task whose end a callback of the boss is notified of.
func postFor(f *fixture, n NewTask, cb agent.Callback[TaskEnd]) string {
	n.CreateRole, n.Notify = true, &Notification{bosses.Get(f.host, "b").ID(), cb}
	return call(f, (*Pool).Post, n).ID
}

// ends returns the ends that the boss has received.
func (f *fixture) ends() (all []string) {
	f.t.Helper()
	f.sleep(time.Second)
	err := bosses.Get(f.host, "b").Do(f.t.Context(), func(ctx context.Context, b *boss) error {
		rows, err := ends.List(ctx, b.Storage(), nil)
		for _, r := range rows {
			e := r.Value
			all = append(all, fmt.Sprintf("%s/%s %s %s %s%s %v", e.Pool, e.Task, e.Role, e.Key, e.Result, e.Error, e.Uncertain))
		}
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return all
}

func TestNotify(t *testing.T) {
	inPoolWithBoss(t, &Options{MaxTasks: 4}, func(ctx context.Context, f *fixture) {
		done := postFor(f, NewTask{Role: "new", Key: "k"}, ended)
		f.join("new", "1")
		call(f, (*Pool).Handoff, HandoffRequest{f.claim("new", "1", true), json.RawMessage(`{"a":1}`)})
		failed := postFor(f, NewTask{Role: "new"}, ended)
		call(f, (*Pool).Fail, FailRequest{ClaimRef: f.claim("new", "1", true)})
		once := postFor(f, NewTask{Role: "new", Once: true}, ended)
		call(f, (*Pool).Release, f.claim("new", "1", true))
		equal(t, "ends", f.ends(), `p/1 new k {"a":1} false`, "p/2 new  "+noReason+" false", "p/3 new  its worker has released it true")

		_, err := dohost.Call(ctx, f.pool(), func(p *Pool, ctx context.Context, _ struct{}) (bool, error) {
			return p.operate(ctx, &dohost.AdminRequest{Kind: taskItem, ID: failed, Action: dohost.ActionRetry})
		}, struct{}{})
		if err != nil {
			t.Fatal(err)
		}
		call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: f.claim("new", "1", true)})
		if all := f.ends(); len(all) != 4 || !slices.Contains(all, "p/2 new  null false") {
			t.Errorf("after the retry: %q", all)
		}
		if done != "1" || once != "3" {
			t.Errorf("tasks %s and %s", done, once)
		}
	})
}

// TestNotifyGivesUp posts tasks whose notification is not possible.
func TestNotifyGivesUp(t *testing.T) {
	inPoolWithBoss(t, &Options{Keep: 20 * time.Minute}, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		post := func(to dohost.ID, cb agent.Callback[TaskEnd]) {
			call(f, (*Pool).Post, NewTask{Role: "a", Notify: &Notification{to, cb}})
			call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: f.claim("a", "1", true)})
		}
		post(f.pool().ID(), ended)
		post(dohost.ID{Class: "object", Name: "x"}, ended)
		f.sleep(time.Second)
		equal(t, "reports", f.took(), "not_notified a") // the second is not an agent, and the pool has no such callback
		post(bosses.Get(f.host, "b").ID(), absent)      // the next start may have these
		post(bosses.Get(f.host, "b").ID(), wrong)
		post(dohost.ID{Class: "none", Name: "x"}, ended)
		f.sleep(18 * time.Minute)
		if n := f.unnotified(); n != 4 {
			t.Errorf("%d tasks wait", n)
		}
		f.sleep(5 * time.Minute)
		equal(t, "reports", slices.DeleteFunc(f.took(), func(r string) bool { return r != "not_notified a" }),
			"not_notified a", "not_notified a", "not_notified a", "not_notified a")
		if n := f.unnotified(); n != 0 {
			t.Errorf("%d tasks", n)
		}
	})
}

// TestNotifyIsAddedToATask posts a task again, with an agent to notify: a client may have used the key.
func TestNotifyIsAddedToATask(t *testing.T) {
	inPoolWithBoss(t, nil, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		for _, end := range []bool{false, true} {
			n := NewTask{Role: "a", Key: fmt.Sprint(end)}
			call(f, (*Pool).Post, n)
			if end {
				call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: f.claim("a", "1", true)})
			}
			postFor(f, n, ended)
			if !end {
				call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: f.claim("a", "1", true)})
			}
			f.sleep(time.Second) // the notification is another event
			n.Notify = &Notification{dohost.ID{Class: "boss", Name: "c"}, ended}
			refused(f, ErrKeyUsed, (*Pool).Post, n)
		}
		equal(t, "ends", f.ends(), "p/1 a false null false", "p/2 a true null false")
	})
}

// TestOperatorsAndNotify has operators delete and retry tasks whose agents are notified, and tasks that are done once.
func TestOperatorsAndNotify(t *testing.T) {
	inPoolWithBoss(t, nil, func(ctx context.Context, f *fixture) {
		act := func(a dohost.Action, id string) bool {
			done, err := dohost.Call(ctx, f.pool(), func(p *Pool, ctx context.Context, _ struct{}) (bool, error) {
				return p.operate(ctx, &dohost.AdminRequest{Kind: taskItem, ID: id, Action: a})
			}, struct{}{})
			if err != nil {
				t.Fatal(err)
			}
			return done
		}
		deleted := postFor(f, NewTask{Role: "a"}, ended)
		if !act(dohost.ActionDelete, deleted) || act(dohost.ActionDelete, deleted) && f.unnotified() != 0 {
			t.Error("delete of a pending task")
		}
		equal(t, "ends", f.ends(), "p/1 a  an operator has deleted it false")
		f.join("a", "1")
		once := postFor(f, NewTask{Role: "a", Once: true}, ended)
		call(f, (*Pool).Fail, FailRequest{ClaimRef: f.claim("a", "1", true), Uncertain: true})
		early := postFor(f, NewTask{Role: "a", Once: true}, ended)
		call(f, (*Pool).Fail, FailRequest{ClaimRef: f.claim("a", "1", false)})
		cancelled := postFor(f, NewTask{Role: "a"}, ended)
		call(f, (*Pool).Cancel, CancelRequest{Task: cancelled})
		if act(dohost.ActionRetry, once) || !act(dohost.ActionRetry, early) || act(dohost.ActionRetry, cancelled) {
			t.Error("retries of a task that was started once, of one that was not, and of a cancelled one")
		}
		if task := f.task(once); !task.Uncertain || f.task(early).Uncertain {
			t.Errorf("%+v", task)
		}
	})
}

// TestDeadline has tasks that no worker does in time: pending, claimed after the deadline, and running.
func TestDeadline(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		n := NewTask{Role: "a", WithinMS: 30_000, CreateRole: true}
		swept := call(f, (*Pool).Post, n)
		if swept.Deadline == nil || !swept.Deadline.Equal(time.Now().Add(30*time.Second)) {
			t.Errorf("%+v", swept)
		}
		f.sleep(3 * time.Minute)
		f.is(swept.ID, "failed 0")
		f.join("a", "1")
		late, held := call(f, (*Pool).Post, n).ID, ""
		f.sleep(30 * time.Second)
		held = call(f, (*Pool).Post, n).ID
		h := f.claim("a", "1", true)
		f.is(late, "failed 0")
		if h.Task != held {
			t.Errorf("claimed %+v", h)
		}
		for range 10 {
			f.sleep(20 * time.Second)
			_, _ = dohost.Call(ctx, f.pool(), (*Pool).Renew, RenewRequest{ClaimRef: h})
		}
		f.is(held, "failed 1")
		if task := f.task(held); task.Reason != "it was not done by its deadline" || !task.Uncertain {
			t.Errorf("%+v", task)
		}
		refused(f, ErrInvalid, (*Pool).Post, NewTask{Role: "a", WithinMS: -1})
		refused(f, ErrInvalid, (*Pool).Post, NewTask{Role: "a", WithinMS: MaxWithin.Milliseconds() + 1})
	})
}

// TestClaimEndsFewOverdueTasksInATurn claims a task that follows many whose deadlines are over.
func TestClaimEndsFewOverdueTasksInATurn(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		for range 2*sweepBatch + 1 {
			call(f, (*Pool).Post, NewTask{Role: "a", WithinMS: 1000})
		}
		want := call(f, (*Pool).Post, NewTask{Role: "a"}).ID
		f.sleep(2 * time.Second)
		err := f.pool().Do(ctx, func(ctx context.Context, p *Pool) error {
			c, _, more, err := p.claim(ctx, ClaimRequest{Role: "a", Conn: "1"})
			if n, failed := tasks.Count(ctx, p.Storage(), &dohost.Query[taskRow]{Index: "ended"}); c != nil || !more || n != sweepBatch || failed != nil {
				t.Errorf("a turn ends %d tasks, and claims %v, more: %v, %v", n, c, more, failed)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if c := call(f, (*Pool).Claim, ClaimRequest{Role: "a", Conn: "1"}); c.Task == nil || c.Task.ID != want {
			t.Errorf("claimed %+v, want the task %s", c.Task, want)
		}
	})
}

// unnotified returns the number of tasks whose agents are not notified yet.
func (f *fixture) unnotified() (n int) {
	f.t.Helper()
	err := f.pool().Do(f.t.Context(), func(ctx context.Context, p *Pool) (err error) {
		n, err = tasks.Count(ctx, p.Storage(), &dohost.Query[taskRow]{Index: "notify"})
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}

// TestNotifyRepeats has a boss that cannot be reached for a while. The pool keeps the task until then, although it is full and the task's
// time is over, and gives up after Options.Keep.
func TestNotifyRepeats(t *testing.T) {
	inPool(t, &Options{Keep: time.Hour, MaxTasks: 1, Progress: -1}, func(ctx context.Context, f *fixture) {
		f.close()
		var broken atomic.Bool
		open := func(*agent.Agent[struct{}]) error {
			if broken.Load() {
				return errors.New("the constructor fails")
			}
			return nil
		}
		c := agent.Bind(bosses, func(_ context.Context, a *agent.Agent[struct{}]) (*boss, error) { return &boss{a}, open(a) }, nil,
			agent.OnSchedule(ended, func(b *boss, ctx context.Context, e TaskEnd) error { return ends.Put(ctx, b.Storage(), e) }))
		f.others = []dohost.Class{c}
		f.open()
		for _, keep := range []bool{false, true} {
			broken.Store(true)
			f.host.Evict(bosses.Get(f.host, "b").ID(), dohost.EndFence)
			postFor(f, NewTask{Role: "a"}, ended)
			f.join("a", "1")
			call(f, (*Pool).Handoff, HandoffRequest{ClaimRef: f.claim("a", "1", true)})
			f.sleep(30 * time.Minute)
			if n := f.unnotified(); n != 1 {
				t.Errorf("%d tasks wait", n)
			}
			refused(f, ErrFull, (*Pool).Post, NewTask{Role: "a"})
			if broken.Store(keep); keep {
				f.sleep(35 * time.Minute)
				if reports := f.took(); !slices.Contains(reports, "not_notified a") {
					t.Errorf("%q", reports)
				}
			} else {
				f.sleep(2 * time.Minute)
				equal(t, "ends", f.ends(), "p/1 a  null false")
			}
			if n := f.unnotified(); n != 0 {
				t.Errorf("%d tasks wait at the end", n)
			}
		}
	})
}

// TestPostOfClientsHasNoNotify posts over HTTP with the fields for Go.
func TestPostOfClientsHasNoNotify(t *testing.T) {
	inPoolWithBoss(t, nil, func(ctx context.Context, f *fixture) {
		body := `{"role":"a","notify":{"To":{"Class":"boss","Name":"b"},"Callback":"ended"},"CreateRole":true,"createrole":true}`
		if _, err := f.host.Invoke(ctx, f.pool().ID(), "post", []byte(body)); err == nil || !errors.Is(err, ErrNotFound) && !strings.Contains(err.Error(), "unknown field") {
			t.Errorf("it creates a role: %v", err)
		}
		f.join("a", "1")
		_, _ = f.host.Invoke(ctx, f.pool().ID(), "post", []byte(body))
		call(f, (*Pool).Post, NewTask{Role: "a"})
		if c := call(f, (*Pool).Claim, ClaimRequest{Role: "a", Conn: "1"}); c.Task != nil {
			call(f, (*Pool).Cancel, CancelRequest{Task: c.Task.ID})
		}
		equal(t, "ends", f.ends())
	})
}

func TestCancel(t *testing.T) {
	inPool(t, nil, func(ctx context.Context, f *fixture) {
		f.join("a", "1")
		pending, claimed, running := f.post("a", "x"), "", ""
		if c := call(f, (*Pool).Cancel, CancelRequest{Task: pending, Reason: "no need"}); c.Status != StatusFailed || c.Reason != "no need" || c.Uncertain {
			t.Errorf("%+v", c)
		}
		call(f, (*Pool).Post, NewTask{Role: "a", Key: "k"})
		h := f.claim("a", "1", false)
		if claimed = h.Task; call(f, (*Pool).Cancel, CancelRequest{Key: "k"}).Uncertain {
			t.Errorf("a task that was not started: %+v", f.task(claimed))
		}
		refused(f, ErrClaimLost, (*Pool).Start, h)
		f.post("a", "x")
		h = f.claim("a", "1", true)
		if running = h.Task; !call(f, (*Pool).Cancel, CancelRequest{Task: running}).Uncertain || f.task(running).Reason != "cancelled" {
			t.Errorf("%+v", f.task(running))
		}
		refused(f, ErrClaimLost, (*Pool).Renew, RenewRequest{ClaimRef: h})
		before := f.dump()
		call(f, (*Pool).Cancel, CancelRequest{Task: running, Reason: "again"})
		if f.dump() != before {
			t.Error("a task that has ended was cancelled")
		}
		refused(f, ErrNotFound, (*Pool).Cancel, CancelRequest{Task: "9"})
		refused(f, ErrNotFound, (*Pool).Cancel, CancelRequest{Key: "none"})
		refused(f, ErrInvalid, (*Pool).Cancel, CancelRequest{})
		refused(f, ErrInvalid, (*Pool).Cancel, CancelRequest{Task: "1", Key: "k"})
		refused(f, ErrInvalid, (*Pool).Cancel, CancelRequest{Task: "1", Reason: strings.Repeat("x", maxError+1)})
		if _, err := dohost.Call(ctx, f.pool(), (*Pool).Handoff, HandoffRequest{ClaimRef: h}); !errors.Is(err, ErrClaimLost) || len(f.task(running).Late) != 1 {
			t.Errorf("%v, %+v", err, f.task(running))
		}
	})
}

// TestNotifyAtEveryPoint has a worker that ends two tasks. Each end is in the rows of the agent that has posted them, and no task waits.
func TestNotifyAtEveryPoint(t *testing.T) {
	l := &pointLog{}
	s := dohosttest.Scenario{
		FullDisk: true,
		Classes:  []dohost.Class{Class(nil), bossClass()}, Reset: l.reset, Places: pointtest.Places(), SettleTime: 3 * time.Minute,
		Run: func(ctx context.Context, h *dohosttest.Host) (err error) {
			for i := range 2 {
				n := NewTask{Role: "a", Key: fmt.Sprint(i), CreateRole: true, Notify: &Notification{dohost.ID{Class: "boss", Name: "b"}, ended}}
				_, err2 := retryCall(ctx, h, (*Pool).Post, n)
				err = errors.Join(err, err2)
			}
			return errors.Join(err, pointClient(ctx, h, l, "1", 2))
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			err := l.checkDone(ctx, h, 2)
			err2 := bosses.Get(h, "b").Do(ctx, func(ctx context.Context, b *boss) error {
				rows, err := ends.List(ctx, b.Storage(), nil)
				if err == nil && len(rows) != 2 {
					err = fmt.Errorf("%d ends", len(rows))
				}
				for _, r := range rows {
					if e := r.Value; string(e.Result) != l.results[e.Task] {
						err = errors.Join(err, fmt.Errorf("%+v, want %s", e, l.results[e.Task]))
					}
				}
				return err
			})
			err3 := Pools.Get(h, "p").Do(ctx, func(ctx context.Context, p *Pool) error {
				n, err := tasks.Count(ctx, p.Storage(), &dohost.Query[taskRow]{Index: "notify"})
				if err == nil && n != 0 {
					err = fmt.Errorf("%d tasks wait", n)
				}
				return err
			})
			return errors.Join(err, err2, err3)
		},
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 15, 60))
}
