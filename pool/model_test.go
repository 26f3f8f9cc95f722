package pool

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/pointtest"
	"github.com/dohost/dohost/objectstore"
)

// The model of a pool has no sweep. It computes from the requests that succeed when each worker, lease and restart lapses. After each event
// it compares the rows with those before the event: each difference must have a reason in the event or in a time that has lapsed, and each
// time that has lapsed long enough ago must have had its effect.

// span is the earliest and the latest time that a deadline may have. They differ after the clock was set back: the pool shortens its times
// at the next sweep.
type span struct{ lo, hi time.Time }

func at(t time.Time) span { return span{t, t} }

// within shortens the span.
func (s span) within(lo, hi time.Time) span {
	if s.lo.After(lo) {
		s.lo = lo
	}
	if s.hi.After(hi) {
		s.hi = hi
	}
	return s
}

type modelWorker struct {
	role   string
	joined time.Time
	until  span
	odd    bool // the clock was set back since it joined, so the test does not know whether it is stable
}

// modelTask is a task. Its row has no times.
type modelTask struct {
	taskRow
	lease, progressBy span
	since             span // of the state pending
	late              map[uint64]bool
}

type modelRole struct {
	managed  bool
	restarts int
	number   uint64
	starting span // zero: none
	cleared  bool // the event has cleared the command
	odd      bool // a worker has ended, and the test does not know whether it was stable
	oldest   *modelTask
	oldestAt time.Time // when oldest became the oldest pending task
}

// poolModel drives a pool.
type poolModel struct {
	*fixture
	o       Options
	workers map[string]*modelWorker // by connection, which is unique in the test
	tasks   map[string]*modelTask
	roles   map[string]*modelRole
	holds   []ClaimRef // all claims ever
	before  snapshot
	event   string
	seq     int
	unit    time.Duration // a second of the drawn times

	// No worker or restart may lapse before quiet, and no lease before leaseQuiet. All of them may from quietBy on.
	quiet, leaseQuiet, quietBy time.Time

	counts map[string]int // of all runs
}

const slack = 2 * time.Second

func (m *poolModel) now() time.Time { return time.Now().Add(time.Duration(m.offset.Load())).Round(0) }

// disturb records that workers could not send heartbeats until now. The pool notices after a delay.
func (m *poolModel) disturb(delay time.Duration) {
	m.quiet = m.now().Add(m.o.TTL)
	m.leaseQuiet = m.now().Add(max(m.o.TTL, m.o.Lease))
	m.quietBy = m.leaseQuiet.Add(delay)
}

// errEither stands for success or ErrNotFound.
var errEither = errors.New("nil or ErrNotFound")

// do calls a method, and compares its error with the expected kind.
func do[In, Out any](m *poolModel, t *rapid.T, want error, method func(*Pool, context.Context, In) (Out, error), in In) (Out, bool) {
	m.event = fmt.Sprintf("%T%+v", in, in)
	out, err := dohost.Call(m.t.Context(), m.pool(), method, in)
	if want == nil && err != nil || want != nil && want != errEither && !errors.Is(err, want) || want == errEither && err != nil && !errors.Is(err, ErrNotFound) {
		t.Fatalf("%s: %v, want %v", m.event, err, want)
	}
	if err == nil {
		m.counts[strings.TrimPrefix(fmt.Sprintf("%T", in), "pool.")]++
	} else {
		m.counts["refused"]++
	}
	return out, err == nil
}

func (m *poolModel) actions() map[string]func(*rapid.T) {
	actions := map[string]func(*rapid.T){
		"":      m.check,
		"beat":  m.beatOne,
		"beats": m.beatAll,
		"leave": m.leave,
		"start": m.start, "renew": m.renew, "handoff": m.handoff, "fail": m.fail, "release": m.release, "cancel": m.cancel,
		"take": m.takeCommand, "takes": m.takeCommands, "exit": m.exit, "declare": m.declare,
		"restart": m.restart, "clock": m.jump,
		"evict": func(*rapid.T) { m.event = "evict"; m.host.Evict(m.pool().ID(), dohost.EndFence) },
		"far":   func(t *rapid.T) { m.advance(t, 120, 300, 3600, 3*3600) },
	}
	for i := range 3 { // these are drawn more often
		n := fmt.Sprint(i)
		actions["work"+n] = m.work
		actions["join"+n], actions["post"+n], actions["claim"+n] = m.join, m.post, m.claimTask
		actions["advance"+n] = func(t *rapid.T) { m.advance(t, 1, 20, 50, 65) }
	}
	return actions
}

// work has a worker join, and start a task.
func (m *poolModel) work(t *rapid.T) {
	for _, step := range []func(*rapid.T){m.join, m.post, m.claimTask} {
		step(t)
		m.check(t)
	}
	m.start(t)
}

func (m *poolModel) conn(t *rapid.T) (role, conn string) {
	conn = rapid.SampledFrom([]string{"a1", "a2", "b1"}).Draw(t, "conn")
	return conn[:1], conn
}

func (m *poolModel) wantWorker(conn string) error {
	if m.workers[conn] == nil {
		return ErrStale
	}
	return nil
}

func (m *poolModel) beat(conn string) { m.workers[conn].until = at(m.now().Add(m.o.TTL)) }

func (m *poolModel) beatOne(t *rapid.T) {
	role, conn := m.conn(t)
	if _, ok := do(m, t, m.wantWorker(conn), (*Pool).Heartbeat, HeartbeatRequest{role, conn}); ok {
		m.beat(conn)
	}
}

func (m *poolModel) beatAll(t *rapid.T) {
	for _, conn := range slices.Sorted(maps.Keys(m.workers)) {
		do(m, t, nil, (*Pool).Heartbeat, HeartbeatRequest{conn[:1], conn})
		m.beat(conn)
	}
}

func (m *poolModel) join(t *rapid.T) {
	role, conn := m.conn(t)
	do(m, t, nil, (*Pool).Join, JoinRequest{Role: role, Conn: conn})
	if m.workers[conn] == nil {
		m.workers[conn] = &modelWorker{role: role, joined: m.now()}
	}
	if m.roles[role] == nil {
		m.roles[role] = &modelRole{}
	}
	m.roles[role].starting, m.roles[role].cleared = span{}, true
	m.beat(conn)
}

func (m *poolModel) leave(t *rapid.T) {
	role, conn := m.conn(t)
	if _, ok := do(m, t, m.wantWorker(conn), leave, LeaveRequest{role, conn}); ok {
		m.removed(conn, m.now())
	}
}

// removed removes a worker that was last reachable at a time.
func (m *poolModel) removed(conn string, last time.Time) {
	w := m.workers[conn]
	if r := m.roles[w.role]; r != nil && w.odd {
		r.odd = true
	} else if r != nil && last.Sub(w.joined) >= m.o.Stable {
		r.restarts = 0
	}
	for _, task := range m.tasks { // the sweep has seen the worker until now
		if task.Status == StatusAcknowledged && task.Conn == conn && task.lease.hi.Before(m.now()) {
			task.lease.hi = m.now()
		}
	}
	delete(m.workers, conn)
}

func (m *poolModel) post(t *rapid.T) {
	role := rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "role")
	n := NewTask{Role: role, Once: rapid.Bool().Draw(t, "once")}
	var want error
	if m.roles[role] == nil {
		want = ErrNotFound
	}
	if task, ok := do(m, t, want, (*Pool).Post, n); ok {
		m.seq++
		m.tasks[task.ID] = &modelTask{
			taskRow: taskRow{ID: task.ID, Seq: uint64(m.seq), Role: role, Once: n.Once, Status: StatusPending}, since: at(m.now()), late: map[uint64]bool{},
		}
	}
}

// oldest returns the task that a claim gets.
func (m *poolModel) oldest(role, conn string) (best *modelTask) {
	for _, t := range m.tasks {
		again := t.Status == StatusAcknowledged && t.Conn == conn
		if t.Role == role && (t.Status == StatusPending || again) &&
			(best == nil || again && best.Status == StatusPending || again == (best.Status == StatusAcknowledged) && t.Seq < best.Seq) {
			best = t
		}
	}
	return best
}

func (m *poolModel) claimTask(t *rapid.T) {
	role, conn := m.conn(t)
	c, ok := do(m, t, m.wantWorker(conn), (*Pool).Claim, ClaimRequest{Role: role, Conn: conn})
	if !ok {
		return
	}
	m.beat(conn)
	want := m.oldest(role, conn)
	if (c.Task == nil) != (want == nil) || want != nil && c.Task.ID != want.ID {
		t.Fatalf("claimed %+v, want %+v", c.Task, want)
	}
	if want == nil || want.Status == StatusAcknowledged {
		return
	}
	m.counts["claimed"]++
	want.Status, want.Conn, want.Progress = StatusAcknowledged, conn, ""
	want.Fence++
	want.Attempts++
	want.lease, want.progressBy = at(m.now().Add(m.o.Acknowledged)), at(m.now().Add(m.o.Progress))
	m.holds = append(m.holds, ClaimRef{want.ID, conn, want.Fence})
}

// hold draws a claim, the latest ones more often, and returns its task; nil if it is not the current one.
func (m *poolModel) hold(t *rapid.T) (h ClaimRef, task *modelTask, want error) {
	if len(m.holds) == 0 {
		t.Skip("no claims")
	}
	n := len(m.holds)
	h = m.holds[n-1-min(n-1, rapid.IntRange(0, 3).Draw(t, "hold"))]
	switch task = m.tasks[h.Task]; {
	case task == nil:
		return h, nil, ErrNotFound
	case task.Fence != h.Fence || task.Conn != h.Conn:
		return h, nil, ErrClaimLost
	case !task.Status.held():
		return h, task, ErrTransition
	}
	return h, task, nil
}

func (m *poolModel) start(t *rapid.T) {
	h, task, want := m.hold(t)
	if _, ok := do(m, t, want, (*Pool).Start, h); ok {
		if task.Status == StatusAcknowledged {
			task.progressBy = at(m.now().Add(m.o.Progress))
		}
		task.Status, task.lease = StatusRunning, at(m.now().Add(m.o.Lease))
	}
}

func (m *poolModel) renew(t *rapid.T) {
	h, task, want := m.hold(t)
	if want == nil && task.Status != StatusRunning {
		want = ErrTransition
	}
	r := RenewRequest{ClaimRef: h, Progress: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "progress")}
	if _, ok := do(m, t, want, (*Pool).Renew, r); ok {
		if r.Progress != "" && r.Progress != task.Progress {
			task.Progress, task.progressBy = r.Progress, at(m.now().Add(m.o.Progress))
		}
		task.lease = at(m.now().Add(m.o.Lease))
	}
}

func (m *poolModel) handoff(t *rapid.T) {
	h, task, want := m.hold(t)
	repeated := want == ErrTransition && task.Status == StatusDone
	if repeated {
		want = nil
	} else if want == nil && task.Status != StatusRunning {
		want = ErrTransition
	}
	_, ok := do(m, t, want, (*Pool).Handoff, HandoffRequest{h, json.RawMessage(fmt.Sprint(h.Fence))})
	if ok && !repeated {
		task.Status = StatusDone
		if r := m.roles[task.Role]; r != nil {
			r.restarts = 0
		}
	}
	if late := m.tasks[h.Task]; want == ErrClaimLost && len(late.late) < maxLate {
		late.late[h.Fence] = true
	}
}

// takenBack makes a held task pending again, whose worker has not reported the end.
func (m *poolModel) takenBack(task *modelTask, since span) {
	if task.Status == StatusRunning {
		task.Uncertain = true
	}
	m.pending(task, since)
}

// pending makes a held task pending again.
func (m *poolModel) pending(task *modelTask, since span) {
	over := task.Attempts >= m.o.MaxAttempts || task.Once && task.Status == StatusRunning
	task.Conn, task.Status, task.since = "", StatusPending, since
	if over {
		task.Status = StatusFailed
	}
}

// cancel cancels a task, which may have ended.
func (m *poolModel) cancel(t *rapid.T) {
	id := fmt.Sprint(rapid.IntRange(max(1, m.seq-3), m.seq+1).Draw(t, "task"))
	task, want := m.tasks[id], error(nil)
	if task == nil {
		want = ErrNotFound
	}
	if _, ok := do(m, t, want, (*Pool).Cancel, CancelRequest{Task: id}); !ok || task.Status.ended() {
		return
	}
	task.Uncertain = task.Uncertain || task.Status == StatusRunning
	task.Status, task.Conn = StatusFailed, ""
}

func (m *poolModel) fail(t *rapid.T) {
	h, task, want := m.hold(t)
	f := FailRequest{ClaimRef: h, Retry: rapid.Bool().Draw(t, "retry")}
	if _, ok := do(m, t, want, (*Pool).Fail, f); ok {
		if f.Retry {
			m.pending(task, at(m.now()))
		} else {
			task.Status = StatusFailed
		}
	}
}

func (m *poolModel) release(t *rapid.T) {
	h, task, want := m.hold(t)
	if _, ok := do(m, t, want, (*Pool).Release, h); ok {
		task.Attempts--
		m.takenBack(task, at(m.now()))
	}
}

func (m *poolModel) takeCommand(t *rapid.T) {
	for _, c := range call(m.fixture, (*Pool).Commands, PollRequest{Daemon: "d"}).Commands {
		take := TakeRequest{"d", c.Role, c.Number}
		var want error
		switch {
		case m.mayBeReachable(c.Role, m.now()):
			want = ErrNotFound
		case !m.isOffline(c.Role): // the model does not know, and takes the pool's answer
			want = errEither
		}
		r := m.roles[c.Role]
		r.cleared = true
		taken, ok := do(m, t, want, (*Pool).Take, take)
		if !ok {
			r.restarts = max(0, r.restarts-1)
		} else {
			r.starting = at(m.now().Add(m.o.Starting))
			if again := call(m.fixture, (*Pool).Take, take); !again.Deadline.Equal(taken.Deadline) {
				t.Fatalf("%v, and again %v", taken, again)
			}
			if _, err := dohost.Call(m.t.Context(), m.pool(), (*Pool).Take, TakeRequest{"other", c.Role, c.Number}); !errors.Is(err, ErrNotFound) {
				t.Fatalf("a second daemon: %v", err)
			}
		}
	}
}

// takeCommands takes restarts that do not lead to a worker.
func (m *poolModel) takeCommands(t *rapid.T) {
	for range m.o.MaxRestarts + 1 {
		m.takeCommand(t)
		m.check(t)
		m.advance(t, 300)
		m.check(t)
	}
}

func (m *poolModel) exit(t *rapid.T) {
	role, conn := m.conn(t)
	r := m.roles[role]
	if r == nil {
		t.Skip("no role")
	}
	e := ProcessExit{Role: role, Conn: rapid.SampledFrom([]string{conn, ""}).Draw(t, "of"), Number: rapid.SampledFrom([]uint64{0, r.number}).Draw(t, "number")}
	do(m, t, nil, exited, e)
	if e.Number != 0 {
		r.starting = span{}
	}
	if m.workers[e.Conn] != nil {
		m.removed(e.Conn, m.now())
	}
	for _, task := range m.tasks {
		if task.Status.held() && task.Conn == e.Conn {
			m.takenBack(task, at(m.now()))
		}
	}
}

func (m *poolModel) declare(t *rapid.T) {
	role := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "role")
	d := DeclareRequest{role, role == "a" || rapid.Bool().Draw(t, "managed")}
	do(m, t, nil, dohost.NoResult((*Pool).Declare), d)
	if m.roles[role] == nil {
		m.roles[role] = &modelRole{}
	}
	r := m.roles[role]
	if r.managed, r.restarts = d.Managed, 0; !d.Managed {
		r.cleared, r.starting = true, span{}
	}
}

// advance lets one of the times pass, in units.
func (m *poolModel) advance(t *rapid.T, choices ...int) {
	d := time.Duration(rapid.SampledFrom(choices).Draw(t, "by")) * m.unit
	m.event = fmt.Sprint("advance ", d)
	m.sleep(d)
}

func (m *poolModel) restart(t *rapid.T) {
	down := time.Duration(rapid.SampledFrom([]int{0, 50, 3600, 3 * 24 * 3600}).Draw(t, "down")) * m.unit
	m.event = fmt.Sprint("restart after ", down)
	m.close()
	time.Sleep(down)
	m.open()
	synctest.Wait()
	m.disturb(m.o.Sweep) // at the latest, the first sweep is the first event of the pool
	m.delaySweep()
}

// delaySweep records that the sweep that shortens the times from before the clock was set back may only run now, and shortens them to
// times after the present one.
func (m *poolModel) delaySweep() {
	m.spans(func(s *span, d time.Duration) {
		if hi := m.quietBy.Add(m.o.Sweep + slack + d); !s.lo.Equal(s.hi) && s.hi.Before(hi) {
			s.hi = hi
		}
	})
}

// jump sets the clock of the pool. The worker that joins makes the pool notice it.
func (m *poolModel) jump(t *rapid.T) {
	m.set(t)
	m.check(t)
	m.join(t)
}

func (m *poolModel) set(t *rapid.T) {
	by := time.Duration(rapid.SampledFrom([]int{3600, 24 * 3600, -3600, -24 * 3600}).Draw(t, "by")) * m.unit
	m.event = fmt.Sprint("clock ", by)
	m.offset.Add(int64(by))
	m.disturb(m.o.Sweep + slack)
	if by > 0 {
		m.delaySweep()
		return
	}
	m.quiet, m.leaseQuiet = m.now(), m.now() // times that were set before are further in the future
	lo, hi := m.now(), m.quietBy.Add(m.o.Sweep+slack)
	m.spans(func(s *span, d time.Duration) { *s = s.within(lo.Add(d), hi.Add(d)) })
	for _, w := range m.workers {
		w.odd = true
	}
}

// spans calls fn with all times, and the longest time after the present that the pool sets each to.
func (m *poolModel) spans(fn func(s *span, d time.Duration)) {
	for _, w := range m.workers {
		fn(&w.until, m.o.TTL)
	}
	for _, task := range m.tasks {
		lease := task.lease
		fn(&task.lease, m.o.Lease)
		fn(&lease, m.o.Acknowledged)
		task.lease.hi = lease.hi
		fn(&task.progressBy, m.o.Progress)
		fn(&task.since, 0)
	}
	for _, r := range m.roles {
		if !r.starting.lo.IsZero() {
			fn(&r.starting, m.o.Starting)
		}
	}
}

// TestPoolModel draws requests, pauses, restarts of the host after up to three days, and changes of the clock. The seeds of the everyday
// runs are fixed; those with -full are random, and printed by a failure.
func TestPoolModel(t *testing.T) {
	counts := map[string]int{}
	rounds, wanted := 2, []string{"swept workers", "swept tasks", "requests", "refused"}
	if pointtest.Full() {
		rounds, wanted = 20, append(wanted, "Take", "given up", "unattended", "Handoff", "late", "forgotten")
	}
	seed := flag.Lookup("rapid.seed")
	fixed := !pointtest.Full() && seed.Value.String() == seed.DefValue
	if fixed {
		defer func() { _ = flag.Set("rapid.seed", seed.DefValue) }()
	}
	for _, unit := range []time.Duration{time.Second, 100 * time.Millisecond} {
		options := &Options{
			Heartbeat: 30 * unit, TTL: 60 * unit, Sweep: 120 * unit, Pending: 300 * unit, Acknowledged: 120 * unit, Lease: 60 * unit, Starting: 90 * unit,
			Progress: 400 * unit, Stable: 300 * unit, RestartDelay: 10 * unit, Keep: 4 * 3600 * unit, MaxAttempts: 3, MaxRestarts: 3,
		}
		o, err := options.resolved()
		if err != nil {
			t.Fatal(err)
		}
		for round := range rounds {
			if fixed {
				_ = flag.Set("rapid.seed", fmt.Sprint(round+1)) // a valid number
			}
			synctest.Test(t, func(t *testing.T) {
				rapid.Check(struct{ rapid.TB }{t}, func(rt *rapid.T) { // a bubble has no Deadline: Check ends after a virtual day
					m := &poolModel{
						fixture: &fixture{t: t, options: options, fs: objectstore.NewMemFS()}, o: o, unit: unit, counts: counts,
						workers: map[string]*modelWorker{}, tasks: map[string]*modelTask{}, roles: map[string]*modelRole{},
					}
					m.open()
					defer m.close()
					counts["runs"]++
					m.disturb(0)
					rt.Repeat(m.actions())
				})
			})
		}
	}
	t.Logf("%v", counts)
	for _, event := range wanted {
		if counts[event] == 0 && !t.Failed() {
			t.Errorf("no %q in %d runs", event, counts["runs"])
		}
	}
}
