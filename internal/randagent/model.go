package randagent

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dohost/dohost/agent"
)

// model is the agent's content as the programs know it. It is a value in the agent's storage.
type model struct {
	Serial  int // of its versions
	Next    int // the number of the next fiber, schedule or item
	Fibers  map[string]*fiber
	Runs    map[string]*fiber // of RunFiber, by name
	Timers  map[int]*job      // schedules
	Queue   []*job            // in order
	Dead    []*job            // dead letters, the oldest first
	State   state
	Subs    map[string]bool // the names of sub-agents
	Changes map[int]change  // of the state, by number
	Rows    map[string]*row
	Work    []*rowWork      // rows of calls, in the order of the first calls
	Seen    int             // the incarnation that has last compared Work
	Removed map[string]bool // ids of items that were cancelled while they may have run
}

// fiber is a fiber in the model.
type fiber struct {
	Number   int
	ID       string
	Kind     string
	Key      string
	Status   agent.FiberStatus
	Done     int   // the instruction count of its checkpoint
	Maybe    int   // that of a checkpoint that is being saved
	Restarts int   // by Restart
	Errors   int   // of its method, since it was started or restarted
	Since    int   // the incarnation of its start, its last checkpoint or its end
	Ended    int64 // in milliseconds
	Notified bool  // by OnFiberEnded
	Result   string
	Gone     bool    // its row was deleted
	Code     []Instr // of RunFiber
}

func (f *fiber) open() bool { return f.Status == agent.FiberRunning }

// notifies reports whether OnFiberEnded must get the fiber's end.
func (f *fiber) notifies() bool {
	return f.Kind == string(loud) && (f.Status == agent.FiberCompleted || f.Status == agent.FiberFailed)
}

// expires returns how long the row of an ended fiber is kept.
func (f *fiber) expires() (after time.Duration, ok bool) {
	switch {
	case f.Status == agent.FiberFailed:
		return keepFailed, true
	case f.Kind == string(quiet):
		return keepCompleted, true
	}
	return 0, false
}

// end ends a fiber.
func (f *fiber) end(status agent.FiberStatus, incarnation int, now time.Time) {
	f.Status, f.Since, f.Ended, f.Notified = status, incarnation, now.UnixMilli(), false
}

// job is a schedule, a queue item or a dead letter in the model.
type job struct {
	Number   int
	ID       string
	When     when
	Due      int64 // in milliseconds, of a schedule
	Runs     int   // of a schedule that recurs
	Attempts int   // that its policy allows
	Since    int   // the incarnation of its last write
	Code     []Instr
}

// when is the time of a schedule.
type when struct{ Form, N int }

func (w when) recurs() bool { return w.Form >= formEvery }

const (
	formAfter = iota
	formAt
	formEvery
	formCron
)

// begin returns the time of a schedule, and when it is first due.
func (w when) begin(now time.Time) (agent.When, time.Time) {
	d := time.Duration(w.N) * 500 * time.Millisecond
	switch w.Form {
	case formAfter:
		return agent.After(d), now.Add(d)
	case formAt:
		return agent.At(now.Add(d)), now.Add(d)
	case formEvery:
		return agent.Every(d + time.Second), w.next(now)
	}
	return agent.Cron("* * * * *", ""), w.next(now)
}

// next returns when a schedule that recurs is due after a run.
func (w when) next(now time.Time) time.Time {
	if w.Form == formEvery {
		return now.Add(time.Duration(w.N)*500*time.Millisecond + time.Second)
	}
	return now.Truncate(time.Minute).Add(time.Minute)
}

func newModel() *model {
	return &model{Fibers: map[string]*fiber{}, Runs: map[string]*fiber{}, Timers: map[int]*job{}, Removed: map[string]bool{}, Changes: map[int]change{}, Subs: map[string]bool{}, Rows: map[string]*row{}}
}

// fibers returns the fibers that the agent may still have, by number.
func (m *model) fibers() []*fiber {
	list := slices.SortedFunc(maps.Values(m.Fibers), func(a, b *fiber) int { return cmp.Compare(a.Number, b.Number) })
	return slices.DeleteFunc(list, func(f *fiber) bool { return f.Gone })
}

func (m *model) timers() []*job {
	return slices.SortedFunc(maps.Values(m.Timers), func(a, b *job) int { return cmp.Compare(a.Number, b.Number) })
}

// number returns the number of a new fiber, schedule or item.
func (m *model) number() int {
	m.Next++
	return m.Next
}

// find returns the job of a number.
func find(list []*job, number int) (j *job, i int) {
	i = slices.IndexFunc(list, func(j *job) bool { return j.Number == number })
	if i < 0 {
		return nil, i
	}
	return list[i], i
}

// findID returns the job of an id.
func findID(list []*job, id string) (j *job, i int) {
	i = slices.IndexFunc(list, func(j *job) bool { return j.ID == id })
	if i < 0 {
		return nil, i
	}
	return list[i], i
}

// addDead adds a dead letter. It replaces one of the same id.
func (m *model) addDead(j *job) {
	m.Dead = append(slices.DeleteFunc(m.Dead, func(d *job) bool { return d.ID == j.ID }), j)
}

func (f *fiber) String() string {
	if f == nil {
		return "no fiber"
	}
	return fmt.Sprintf("fiber %d (%s, %s, key %q, %d done, %d errors)", f.Number, f.Kind, f.Status, f.Key, f.Done, f.Errors)
}

func (j *job) String() string { return fmt.Sprintf("number %d (id %s, due %d)", j.Number, j.ID, j.Due) }
