package randask

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/randtest"
)

// Observer checks a run. Its methods may be called from any goroutine.
type Observer struct {
	randtest.StoredReport

	// Fault, if set, reports whether the model is wrong about an instruction: for tests of the shrinking.
	Fault func(incarnation int, in Instr) bool

	mu           sync.Mutex
	tasks        int                        // that programs have sent
	questions    map[string]*question       // by name
	positions    map[string]map[string]bool // of the cycles of each task, by name
	deadlines    map[string][]time.Time     // of the cycles of each task, by name
	asking       map[string]map[string]bool // the prompts of the cycles that have asked a question, by name
	begun        map[string]bool            // questions whose model was asked
	seen         []sight
	calls        []modelCall          // of all models
	acknowledged map[string]int       // the changes of each object that something outside depends on
	parked       map[string]time.Time // the times of reports, by object and id of the call
	retried      map[string]bool      // objects with a Retry
	incarnations map[string]int       // of each object
	silence      chan struct{}        // closed by a Release
}

// sight is the result of a call as a model has it, at a time.
type sight struct {
	by string // the task
	result
	at time.Time
}

// modelCall is a call of a model.
type modelCall struct {
	object, agent, task string
	step                int
	at                  time.Time
}

// NewObserver returns an Observer.
func NewObserver() *Observer {
	w := new(Observer)
	w.Reset()
	return w
}

// Reset begins a new run.
func (w *Observer) Reset() {
	w.Clear()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tasks, w.seen, w.calls, w.silence = 0, nil, nil, nil
	w.questions, w.positions, w.deadlines = map[string]*question{}, map[string]map[string]bool{}, map[string][]time.Time{}
	w.begun, w.asking, w.acknowledged = map[string]bool{}, map[string]map[string]bool{}, map[string]int{}
	w.parked, w.retried, w.incarnations = map[string]time.Time{}, map[string]bool{}, map[string]int{}
}

// newTask makes a task for an agent of an object; ok is false if there are too many.
func (w *Observer) newTask(object, agent string, in Instr) (t task, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tasks == maxTasks {
		return t, false
	}
	w.tasks++
	t = newTask(fmt.Sprint(w.tasks), in)
	t.addAsks(agent, in.Body)
	for _, q := range questions(t, object, agent, nil, 0) {
		w.questions[q.Name] = q
	}
	return t, true
}

// fails reports whether a task fails in a way this time.
func (w *Observer) fails(t task, how failure) bool {
	return t.Fails == how && w.Try(fmt.Sprint("task ", t.Name)) <= t.Times
}

// silent returns a channel that the next Release closes.
func (w *Observer) silent() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silence == nil {
		w.silence = make(chan struct{})
	}
	return w.silence
}

func (w *Observer) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silence != nil {
		close(w.silence)
		w.silence = nil
	}
}

func (w *Observer) retry(object string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retried[object] = true
}

// wake begins an incarnation that has found end changes, and returns its number: each object counts its own incarnations.
func (w *Observer) wake(object string, end int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.incarnations[object]++
	if end < w.acknowledged[object] {
		w.Faultf("an incarnation of %s finds %d changes, and %d were acknowledged", object, end, w.acknowledged[object])
	}
	return w.incarnations[object]
}

// acknowledge records that something outside depends on the changes of an object.
func (w *Observer) acknowledge(object string, end int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acknowledged[object] = max(w.acknowledged[object], end)
}

// begins records a cycle.
func (w *Observer) begins(now *cycle) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := now.tasks[len(now.tasks)-1].Name
	w.deadlines[name] = append(w.deadlines[name], now.deadline)
}

// asksModel records that the model of a cycle is asked for a step of a task, with the results of the steps before.
func (w *Observer) asksModel(now *cycle, t task, step int, got answer) {
	w.acknowledge(now.object, now.end)
	w.mu.Lock()
	defer w.mu.Unlock()
	who := fmt.Sprintf("the model of %s in %s", now.agent, now.object)
	if last := now.tasks[len(now.tasks)-1]; last.Name != t.Name {
		w.Faultf("%s is asked for the task %s, want %s", who, t.Name, last.Name)
	}
	if !now.deadline.IsZero() && !time.Now().Before(now.deadline) {
		w.Faultf("%s is asked at %s, and the deadline is %s", who, clock(time.Now()), clock(now.deadline))
	}
	if q := w.questions[t.Name]; q == nil || q.object != now.object || q.agent != now.agent || encode(q.task) != encode(t) {
		w.Faultf("%s is asked for %s, want %+v", who, encode(t), q)
		return
	}
	w.calls = append(w.calls, modelCall{now.object, now.agent, t.Name, step, time.Now()})
	note(w.positions, t.Name, now.position)
	w.begun[t.Name] = true
	prompt := now.prompt + encode(got)
	for _, c := range slices.Concat(t.Asks[step:min(step+1, len(t.Asks))]...) {
		by := w.asking[c.Task.Name]
		if w.begun[c.Task.Name] && by[prompt] && len(by) == 1 {
			w.Faultf("%s is asked again for the step %d of task %s, although its question %s has begun", who, step, t.Name, c.Task.Name)
		}
		note(w.asking, c.Task.Name, prompt)
	}
	for _, r := range got.Got {
		w.seen = append(w.seen, sight{t.Name, r, time.Now()})
	}
}

// note adds an element to a set.
func note(sets map[string]map[string]bool, name, element string) {
	if sets[name] == nil {
		sets[name] = map[string]bool{}
	}
	sets[name][element] = true
}

// Listener records the calls that are reported as parked.
func (w *Observer) Listener() dohost.Listener {
	return dohost.Listener{Service: func(id dohost.ID, event string, attrs ...slog.Attr) {
		if event != "rows:parked" {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, a := range attrs {
			if a.Key == "id" {
				w.parked[id.Name+"/"+a.Value.String()] = time.Now()
			}
		}
	}}
}

// Scenario returns a scenario that does the work of a run, and its report.
func Scenario(work Workload) (dohosttest.Scenario, *randtest.Report) {
	return NewObserver().Scenario(work)
}

// Scenario returns a scenario that does the work of a run with this observer, and its report.
func (w *Observer) Scenario(work Workload) (dohosttest.Scenario, *randtest.Report) {
	return dohosttest.Scenario{
		Classes: []dohost.Class{Class(w)},
		Options: dohost.Options{Listener: w.Listener()},
		Reset:   w.Reset,
		Timeout: 7 * 24 * time.Hour, // of budgets
		Run:     work.Run(w.act),
		Places:  randtest.Places(),
		Check:   func(ctx context.Context, h *dohosttest.Host) error { return w.Check(ctx, h) },
	}, &w.Report
}

// Send makes an object execute a program. It returns the faults of the run, and no errors of the call.
func (w *Observer) Send(ctx context.Context, h *dohosttest.Host, object string, p Program) error {
	w.Sent(object + ": " + p.String())
	if end, err := dohost.Call(ctx, askObjects.Get(h, object), (*askObject).run, p); err == nil {
		w.acknowledge(object, end)
	}
	return w.Err()
}

// Check compares the changes of all objects, which are at rest, with the model.
func (w *Observer) Check(ctx context.Context, h *dohosttest.Host) error {
	all := &history{w: w, replies: map[string][]*inbox.Message{}, parked: map[string]parkedRow{}}
	for _, object := range objects {
		err := askObjects.Get(h, object).Do(ctx, func(ctx context.Context, o *askObject) error { return all.read(ctx, o) })
		if err != nil {
			return errors.Join(err, w.Err())
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all.check()
	return w.Err()
}
