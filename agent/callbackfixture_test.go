package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// callbackAgent is an agent that records its callbacks.
type callbackAgent struct {
	*agent.Agent[struct{}]
	log *callbackLog
}

const callbackAgents dohost.Namespace[callbackAgent] = "clerk"

// task is the payload of a callback, which describes its run.
type task struct {
	Name  string
	Takes time.Duration // with the turn given up
	Fails int           // the first Fails runs fail
	Only  bool          // only the first run takes long
}

// The callbacks of a callbackAgent.
const (
	appendLine   agent.Callback[string] = "note"
	work         agent.Callback[task]   = "work"
	panics       agent.Callback[string] = "boom"
	again        agent.Callback[string] = "again"
	unregistered agent.Callback[string] = "gone" // of an older version of the class
)

// callbackLog is the record that outlives the agents' incarnations.
type callbackLog struct {
	mu      sync.Mutex
	reports []string
	runs    map[string]int
}

func (o *callbackLog) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reports, o.runs = nil, map[string]int{}
}

// listener records the reports of jobs, without the attributes that vary from run to run.
func (o *callbackLog) listener() dohost.Listener {
	return dohost.Listener{Service: func(_ dohost.ID, event string, attrs ...slog.Attr) {
		for _, a := range attrs {
			if a.Key != "id" && a.Key != "lag" {
				event += " " + a.String()
			}
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.reports = append(o.reports, event)
	}}
}

// reportsWith returns the reports that begin with a prefix.
func (o *callbackLog) reportsWith(prefix string) (found []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.reports {
		if strings.HasPrefix(r, prefix) {
			found = append(found, r)
		}
	}
	return found
}

// countRun counts the runs of a task.
func (o *callbackLog) countRun(name string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.runs == nil {
		o.runs = map[string]int{}
	}
	o.runs[name]++
	return o.runs[name]
}

// startedTasks counts the tasks that have begun.
func (o *callbackLog) startedTasks() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.runs)
}

// write appends a line to the agent's storage.
func (c *callbackAgent) write(ctx context.Context, line string) error {
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		n, _, err := dohost.Get[int](ctx, c.Storage(), "lines")
		return errors.Join(err, dohost.Put(ctx, c.Storage(), "lines", n+1),
			dohost.Put(ctx, c.Storage(), fmt.Sprintf("line/%06d", n), line))
	})
}

func (c *callbackAgent) lines(ctx context.Context) (lines []string, err error) {
	for it, err := range dohost.All[string](ctx, c.Storage(), &dohost.ListOptions{Prefix: "line/"}) {
		if err != nil {
			return nil, err
		}
		lines = append(lines, it.Value)
	}
	return lines, nil
}

func (c *callbackAgent) appendLine(ctx context.Context, text string) error { return c.write(ctx, text) }

func (c *callbackAgent) work(ctx context.Context, t task) error {
	run := c.log.countRun(t.Name)
	if err := c.write(ctx, fmt.Sprintf("%s begins %d", t.Name, run)); err != nil {
		return err
	}
	if t.Takes > 0 && (run == 1 || !t.Only) {
		if err := dohost.Sleep(ctx, t.Takes); err != nil {
			return err
		}
	}
	if run <= t.Fails {
		return fmt.Errorf("%s fails", t.Name)
	}
	return c.write(ctx, fmt.Sprintf("%s ends %d", t.Name, run))
}

func (c *callbackAgent) panics(_ context.Context, name string) error {
	c.log.countRun(name)
	var missing *task
	_ = missing.Name
	return nil
}

// again schedules itself, three times in all.
func (c *callbackAgent) again(ctx context.Context, name string) error {
	if c.log.countRun(name) < 3 {
		o := &agent.ScheduleOptions{Idempotence: agent.IdempotenceOn}
		_, err := agent.Schedule(ctx, c, agent.After(time.Second), again, name, o)
		return err
	}
	return c.write(ctx, name)
}

// checkAlarm returns an error if there are rows without an alarm in time.
func (c *callbackAgent) checkAlarm(ctx context.Context) error {
	schedules, err := c.Schedules().List(ctx, nil)
	if err != nil {
		return err
	}
	queued, err := c.Queue().List(ctx, nil)
	if err != nil {
		return err
	}
	at, set, err := c.Object().GetAlarm(ctx)
	if err != nil || len(schedules)+len(queued) == 0 {
		return err
	}
	var pending []time.Time
	for _, s := range schedules {
		if !s.Running {
			pending = append(pending, s.Due)
		}
	}
	by := time.Now().Add(30 * time.Second) // for running rows
	if len(pending) > 0 {
		by = slices.MinFunc(pending, time.Time.Compare)
	}
	if least := time.Now().Add(time.Second); by.Before(least) {
		by = least // there may be no room before
	}
	if !set || at.After(by.Add(time.Millisecond)) { // the alarm is rounded to milliseconds
		return fmt.Errorf("%d schedules and %d items, and the alarm is set (%t) for %v, not by %v",
			len(schedules), len(queued), set, at, by)
	}
	return nil
}

type callbackHandlers = agent.Handlers[callbackAgent, struct{}]

func callbackClass(o *callbackLog, h *callbackHandlers, more ...agent.Entry[callbackAgent]) dohost.Class {
	return agent.Bind(callbackAgents, func(_ context.Context, a *agent.Agent[struct{}]) (*callbackAgent, error) {
		return &callbackAgent{a, o}, nil
	}, h, append([]agent.Entry[callbackAgent]{
		agent.OnSchedule(appendLine, (*callbackAgent).appendLine),
		agent.OnSchedule(work, (*callbackAgent).work),
		agent.OnSchedule(panics, (*callbackAgent).panics),
		agent.OnSchedule(again, (*callbackAgent).again),
	}, more...)...)
}

// callbackTest is a host with a callbackAgent, in virtual time.
type callbackTest struct {
	*dohosttest.Host
	t     *testing.T
	log   *callbackLog
	begun time.Time
}

func runCallbackTest(t *testing.T, options dohost.Options, f func(t *testing.T, b *callbackTest), more ...agent.Entry[callbackAgent]) {
	t.Helper()
	runCallbackTestWith(t, options, nil, f, more...)
}

func runCallbackTestWith(t *testing.T, options dohost.Options, h *callbackHandlers, f func(t *testing.T, b *callbackTest), more ...agent.Entry[callbackAgent]) {
	t.Helper()
	o := &callbackLog{}
	options.Listener = o.listener()
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{callbackClass(o, h, more...)}, Options: options},
		func(t *testing.T, h *dohosttest.Host) { f(t, &callbackTest{h, t, o, time.Now()}) })
}

// do runs f in the agent, and checks that all remaining rows have their alarm.
func (b *callbackTest) do(f func(ctx context.Context, c *callbackAgent) error) {
	b.t.Helper()
	err := callbackAgents.Get(b, "a").Do(b.t.Context(), func(ctx context.Context, c *callbackAgent) error {
		return errors.Join(f(ctx, c), c.checkAlarm(ctx))
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// schedule schedules without options.
func schedule[P any](b *callbackTest, when agent.When, cb agent.Callback[P], payload P, o *agent.ScheduleOptions) (id string) {
	b.t.Helper()
	b.do(func(ctx context.Context, c *callbackAgent) (err error) {
		id, err = agent.Schedule(ctx, c, when, cb, payload, o)
		return err
	})
	return id
}

func enqueue[P any](b *callbackTest, cb agent.Callback[P], payload P, o *agent.QueueOptions) (id string) {
	b.t.Helper()
	b.do(func(ctx context.Context, c *callbackAgent) (err error) {
		id, err = agent.Enqueue(ctx, c, cb, payload, o)
		return err
	})
	return id
}

// wantLines compares the agent's lines with the expected ones.
func (b *callbackTest) wantLines(want ...string) {
	b.t.Helper()
	b.do(func(ctx context.Context, c *callbackAgent) error {
		got, err := c.lines(ctx)
		if !slices.Equal(got, want) {
			b.t.Errorf("the clerk wrote %q, want %q", got, want)
		}
		return err
	})
}

// wantReports compares the reports with the expected ones.
func (b *callbackTest) wantReports(prefix string, want ...string) {
	b.t.Helper()
	if got := b.log.reportsWith(prefix); !slices.Equal(got, want) {
		b.t.Errorf("reported %q, want %q", got, want)
	}
}

func (b *callbackTest) schedules(q *agent.ScheduleQuery) (all []agent.ScheduleInfo) {
	b.t.Helper()
	b.do(func(ctx context.Context, c *callbackAgent) (err error) {
		all, err = c.Schedules().List(ctx, q)
		return err
	})
	return all
}

func (b *callbackTest) waitIdle() {
	b.t.Helper()
	if err := b.WaitIdle(0); err != nil {
		b.t.Error(err)
	}
}
