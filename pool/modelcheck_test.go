package pool

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/dohost/dohost/internal/backoff"
)

// snapshot has the rows of a pool.
type snapshot struct {
	workers  map[string]worker // by connection
	tasks    map[string]taskRow
	contents map[string]content
	roles    map[string]role
	commands map[string]command
}

func (m *poolModel) read(t *rapid.T) snapshot {
	s := snapshot{map[string]worker{}, map[string]taskRow{}, map[string]content{}, map[string]role{}, map[string]command{}}
	err := m.pool().Do(m.t.Context(), func(ctx context.Context, p *Pool) error {
		ws, err := workers.List(ctx, p.Storage(), nil)
		ts, err2 := tasks.List(ctx, p.Storage(), nil)
		cs, err3 := contents.List(ctx, p.Storage(), nil)
		rs, err4 := roles.List(ctx, p.Storage(), nil)
		ks, err5 := commands.List(ctx, p.Storage(), nil)
		for _, r := range ws {
			s.workers[r.Value.Conn] = r.Value
		}
		for _, r := range ts {
			s.tasks[r.Value.ID] = r.Value
		}
		for _, r := range cs {
			s.contents[r.Value.ID] = r.Value
		}
		for _, r := range rs {
			s.roles[r.Value.Name] = r.Value
		}
		for _, r := range ks {
			s.commands[r.Value.Role] = r.Value
		}
		v, err6 := p.view(ctx)
		if err6 == nil && (v.meta.Workers != len(ws) || v.meta.Tasks != len(ts) || len(ts) != len(cs)) {
			t.Fatalf("%s: %+v of %d workers, %d tasks, %d contents", m.event, v.meta, len(ws), len(ts), len(cs))
		}
		return errors.Join(err, err2, err3, err4, err5, err6)
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// check compares the rows with those before the event.
func (m *poolModel) check(t *rapid.T) {
	after := m.read(t)
	m.checkWorkers(t, after)
	m.checkTasks(t, after)
	m.checkRoles(t, after)
	m.before = after
	for _, r := range m.roles {
		r.cleared = false
	}
}

// overdue reports whether a time that may have lapsed at latest then must have had its effect.
func (m *poolModel) overdue(latest time.Time) bool {
	if latest.Before(m.quietBy) {
		latest = m.quietBy
	}
	return m.now().After(latest.Add(m.o.Sweep + slack))
}

func (m *poolModel) checkWorkers(t *rapid.T, after snapshot) {
	for _, conn := range slices.Sorted(maps.Keys(m.workers)) {
		w := m.workers[conn]
		row, ok := after.workers[conn]
		switch {
		case ok && w.until.lo.Equal(w.until.hi) && !row.Until.Equal(w.until.lo):
			t.Fatalf("%s: %s is reachable until %v, want %v", m.event, conn, row.Until, w.until)
		case ok && m.overdue(w.until.hi):
			t.Fatalf("%s: %s is not removed, it was reachable until %v", m.event, conn, w.until)
		case !ok && (m.now().Before(w.until.lo) || m.now().Before(m.quiet)):
			t.Fatalf("%s: %s is removed, it is reachable until %v, or was when the host began until %v", m.event, conn, w.until, m.quiet)
		case !ok:
			m.counts["swept workers"]++
			m.removed(conn, m.before.workers[conn].Until.Add(-m.o.TTL))
		}
	}
	for conn := range after.workers {
		if m.workers[conn] == nil {
			t.Fatalf("%s: %s is a worker", m.event, conn)
		}
	}
}

func (m *poolModel) checkTasks(t *rapid.T, after snapshot) {
	for _, id := range slices.Sorted(maps.Keys(m.tasks)) {
		task := m.tasks[id]
		row, ok := after.tasks[id]
		if !ok {
			if !task.Status.ended() || m.now().Before(m.before.tasks[id].Since.Add(m.o.Keep)) {
				t.Fatalf("%s: %+v is forgotten", m.event, m.before.tasks[id])
			}
			m.counts["forgotten"]++
			delete(m.tasks, id)
			continue
		}
		if task.Status.held() && !row.Status.held() {
			m.checkTakenBack(t, task, row)
		}
		if row.Status != task.Status || row.Conn != task.Conn || row.Fence != task.Fence || row.Attempts != task.Attempts ||
			row.Uncertain != task.Uncertain {
			t.Fatalf("%s: %+v, want %+v", m.event, row, task.taskRow)
		}
		if row.Status.held() != (!row.Lease.IsZero() && !row.Check.IsZero() && row.Conn != "") {
			t.Fatalf("%s: %+v", m.event, row)
		}
		m.checkOverdue(t, task)
		c := after.contents[id]
		m.counts["late"] += len(c.Late) - len(m.before.contents[id].Late)
		if len(c.Late) != len(task.late) || (row.Status == StatusDone) != (c.Result != nil) {
			t.Fatalf("%s: %s task with the result %s and %+v, want %v", m.event, row.Status, c.Result, c.Late, task.late)
		}
		for _, l := range c.Late {
			if !task.late[l.Fence] {
				t.Fatalf("%s: late %+v", m.event, l)
			}
		}
	}
	if len(after.tasks) != len(m.tasks) {
		t.Fatalf("%s: %d tasks, want %d", m.event, len(after.tasks), len(m.tasks))
	}
}

// checkTakenBack checks that the sweep had a reason to take a task back.
func (m *poolModel) checkTakenBack(t *rapid.T, task *modelTask, row taskRow) {
	s := row.Since
	lapsed := !s.Before(task.lease.lo)
	if w := m.workers[task.Conn]; task.Status == StatusAcknowledged && w != nil && s.Before(w.until.lo) {
		lapsed = false // its worker is reachable
	}
	if s.Before(m.leaseQuiet) || !lapsed && s.Before(task.progressBy.lo) || s.After(m.now()) {
		t.Fatalf("%s: the task %+v is taken back at %v, its lease is %v, its progress %v, the host is up for a lease at %v",
			m.event, task.taskRow, s, task.lease, task.progressBy, m.leaseQuiet)
	}
	m.counts["swept tasks"]++
	m.takenBack(task, at(s))
}

// checkOverdue checks that no task remains that the sweep should have taken back.
func (m *poolModel) checkOverdue(t *rapid.T, task *modelTask) {
	if !task.Status.held() {
		return
	}
	end := task.lease.hi
	if w := m.workers[task.Conn]; task.Status == StatusAcknowledged && w != nil && end.Before(w.until.hi) {
		end = w.until.hi
	}
	if task.progressBy.hi.Before(end) {
		end = task.progressBy.hi
	}
	if m.overdue(end) {
		t.Fatalf("%s: the task %+v is not taken back after %v", m.event, task, end)
	}
}

// mayBeReachable reports whether a role may be live at a time: it has a worker that has not lapsed for certain, or a task with a lease, or a
// restart.
func (m *poolModel) mayBeReachable(role string, now time.Time) bool {
	lapsed := func(s span, quiet time.Time) bool { return !now.Before(s.lo) && !now.Before(quiet) }
	for _, w := range m.workers {
		if w.role == role && !lapsed(w.until, m.quiet) {
			return true
		}
	}
	for _, task := range m.tasks {
		if task.Role == role && task.Status.held() && !lapsed(task.lease, m.leaseQuiet) {
			return true
		}
	}
	s := m.roles[role].starting
	return !s.lo.IsZero() && !lapsed(s, m.quiet)
}

// isOffline reports whether a role is offline for certain.
func (m *poolModel) isOffline(role string) bool {
	lapsed := func(s span) bool { return !m.now().Before(s.hi) && !m.now().Before(m.quietBy) }
	for _, w := range m.workers {
		if w.role == role && !lapsed(w.until) {
			return false
		}
	}
	for _, task := range m.tasks {
		if task.Role == role && task.Status.held() && !lapsed(task.lease) {
			return false
		}
	}
	s := m.roles[role].starting
	return s.lo.IsZero() || lapsed(s)
}

// offlineBy returns the time since when a role is offline with a pending task for certain, and that of its oldest task; ok is false if
// it has none.
func (m *poolModel) offlineBy(role string) (by time.Time, oldest *modelTask, ok bool) {
	for _, task := range m.tasks {
		if task.Role == role && task.Status == StatusPending && (!ok || task.Seq < oldest.Seq) {
			by, oldest, ok = task.since.hi, task, true
		}
	}
	later := func(t time.Time) {
		if by.Before(t) {
			by = t
		}
	}
	for _, w := range m.workers {
		if w.role == role {
			later(w.until.hi)
		}
	}
	for _, task := range m.tasks {
		if task.Role == role && task.Status.held() {
			later(task.lease.hi)
		}
	}
	later(m.roles[role].starting.hi)
	return by, oldest, ok
}

func (m *poolModel) checkRoles(t *rapid.T, after snapshot) {
	for _, name := range slices.Sorted(maps.Keys(m.roles)) {
		r := m.roles[name]
		row, ok := after.roles[name]
		if !ok {
			if _, _, waits := m.offlineBy(name); r.managed || waits {
				t.Fatalf("%s: the role %s is forgotten", m.event, name)
			}
			m.counts["forgotten"]++
			delete(m.roles, name)
			continue
		}
		if c, ok := after.commands[name]; r.odd && (row.Restarts == 0 || row.Restarts == 1 && ok && c.Number == r.number+1) {
			r.restarts = 0
		}
		r.odd = false
		m.checkCommand(t, name, after)
		if !r.starting.lo.IsZero() && row.Starting.IsZero() && !m.mayBeReachableBut(name) {
			r.starting = span{}
		}
		if row.Restarts != r.restarts || row.Managed != r.managed || row.Number != r.number {
			t.Fatalf("%s: %+v, want %+v", m.event, row, r)
		}
		if row.GivenUp && !m.before.roles[name].GivenUp {
			m.counts["given up"]++
			if r.restarts != m.o.MaxRestarts || !r.managed || m.mayBeReachable(name, m.now()) {
				t.Fatalf("%s: %+v is given up", m.event, row)
			}
		}
		if row.Warned && !m.before.roles[name].Warned {
			m.counts["unattended"]++
		}
		m.checkAttended(t, name, after)
	}
	if len(after.roles) != len(m.roles) {
		t.Fatalf("%s: %d roles, want %d", m.event, len(after.roles), len(m.roles))
	}
}

// mayBeReachableBut reports whether the restart of a role may not have lapsed.
func (m *poolModel) mayBeReachableBut(role string) bool {
	s := m.roles[role].starting
	return m.now().Before(s.lo) || m.now().Before(m.quiet)
}

// checkCommand checks that a new request for a restart has a reason, and that none is lost.
func (m *poolModel) checkCommand(t *rapid.T, name string, after snapshot) {
	r := m.roles[name]
	c, requested := after.commands[name]
	before, was := m.before.commands[name]
	if requested && was && c.Number == before.Number {
		if !r.managed {
			t.Fatalf("%s: a restart of an unmanaged role: %+v", m.event, c)
		}
		return
	}
	if was && !r.cleared && !requested {
		t.Fatalf("%s: the restart %+v is lost", m.event, before)
	}
	if !requested {
		return
	}
	m.counts["requests"]++
	delay := time.Duration(0)
	if r.restarts > 0 {
		delay = backoff.Delay(r.restarts-1, m.o.RestartDelay, maxDelay)
	}
	r.restarts++
	r.number++
	if _, _, waits := m.offlineBy(name); !r.managed || !waits || c.Number != r.number || r.restarts > m.o.MaxRestarts || c.After.Sub(c.Asked) != delay {
		t.Fatalf("%s: the restart %+v of %+v, after %v", m.event, c, r, delay)
	}
	if m.mayBeReachable(name, c.Asked) {
		t.Fatalf("%s: the restart %+v of a role that may be reachable: %+v", m.event, c, r)
	}
	r.starting = span{}
}

// checkAttended checks that a role that is offline with a pending task is attended to.
func (m *poolModel) checkAttended(t *rapid.T, name string, after snapshot) {
	by, oldest, waits := m.offlineBy(name)
	row := after.roles[name]
	if !waits {
		return
	}
	_, requested := after.commands[name]
	if row.Managed && m.overdue(by) && !requested && !row.GivenUp {
		t.Fatalf("%s: the role %+v is offline since %v, and no restart is requested", m.event, row, by)
	}
	r := m.roles[name]
	if r.oldest != oldest {
		r.oldest, r.oldestAt = oldest, m.now()
	}
	if end := oldest.since.hi.Add(m.o.Pending); by.Before(end) {
		by = end
	}
	if !oldest.since.lo.Equal(oldest.since.hi) { // the clock was set back: its time begins with the next check of the role
		by = later(by, r.oldestAt).Add(m.o.Keep + 2*m.o.Pending)
	}
	if m.overdue(by) && !row.Warned {
		t.Fatalf("%s: the role %+v is unattended since %v, and is not reported", m.event, row, by)
	}
}
