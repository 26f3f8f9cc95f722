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

// clerk is an agent that records its callbacks.
type clerk struct {
	*agent.Agent[struct{}]
	o *office
}

const clerks dohost.Namespace[clerk] = "clerk"

// task tells a clerk's callback how to run.
type task struct {
	Name  string
	Takes time.Duration // with the turn given up
	Fails int           // so many of the first runs fail
	Only  bool          // only the first run takes long
}

// The callbacks of a clerk.
const (
	note  agent.Callback[string] = "note"
	work  agent.Callback[task]   = "work"
	boom  agent.Callback[string] = "boom"
	again agent.Callback[string] = "again"
	gone  agent.Callback[string] = "gone" // of an older version of the class
)

// office is the record that outlives clerks.
type office struct {
	mu      sync.Mutex
	reports []string
	runs    map[string]int
}

func (o *office) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reports, o.runs = nil, map[string]int{}
}

// listener records the reports of jobs, without the attributes that vary from run to run.
func (o *office) listener() dohost.Listener {
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

// told returns the reports that begin with a prefix.
func (o *office) told(prefix string) (found []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.reports {
		if strings.HasPrefix(r, prefix) {
			found = append(found, r)
		}
	}
	return found
}

// run counts the runs of a task.
func (o *office) run(name string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.runs == nil {
		o.runs = map[string]int{}
	}
	o.runs[name]++
	return o.runs[name]
}

// begun counts the tasks that have begun.
func (o *office) begun() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.runs)
}

// write appends a line to the clerk's storage.
func (c *clerk) write(ctx context.Context, line string) error {
	n, _, err := dohost.Get[int](ctx, c.Storage(), "lines")
	if err != nil {
		return err
	}
	return errors.Join(dohost.Put(ctx, c.Storage(), "lines", n+1),
		dohost.Put(ctx, c.Storage(), fmt.Sprintf("line/%06d", n), line))
}

func (c *clerk) lines(ctx context.Context) (lines []string, err error) {
	for it, err := range dohost.All[string](ctx, c.Storage(), &dohost.ListOptions{Prefix: "line/"}) {
		if err != nil {
			return nil, err
		}
		lines = append(lines, it.Value)
	}
	return lines, nil
}

func (c *clerk) note(ctx context.Context, text string) error { return c.write(ctx, text) }

func (c *clerk) work(ctx context.Context, t task) error {
	run := c.o.run(t.Name)
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

func (c *clerk) boom(_ context.Context, name string) error {
	c.o.run(name)
	var nobody *task
	_ = nobody.Name
	return nil
}

// again schedules itself, three times in all.
func (c *clerk) again(ctx context.Context, name string) error {
	if c.o.run(name) < 3 {
		o := &agent.ScheduleOptions{Idempotent: agent.Idempotent}
		_, err := agent.Schedule(ctx, c, agent.After(time.Second), again, name, o)
		return err
	}
	return c.write(ctx, name)
}

// armed returns an error if there are rows without an alarm in time.
func (c *clerk) armed(ctx context.Context) error {
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

type clerkHandlers = agent.Handlers[clerk, struct{}]

func clerkClass(o *office, h *clerkHandlers, more ...agent.Entry[clerk]) dohost.Class {
	return agent.Bind(clerks, func(_ context.Context, a *agent.Agent[struct{}]) (*clerk, error) {
		return &clerk{a, o}, nil
	}, h, append([]agent.Entry[clerk]{
		agent.OnSchedule(note, (*clerk).note),
		agent.OnSchedule(work, (*clerk).work),
		agent.OnSchedule(boom, (*clerk).boom),
		agent.OnSchedule(again, (*clerk).again),
	}, more...)...)
}

// bench is a host with a clerk, in virtual time.
type bench struct {
	*dohosttest.Host
	t     *testing.T
	o     *office
	begun time.Time
}

func withClerk(t *testing.T, options dohost.Options, f func(t *testing.T, b *bench), more ...agent.Entry[clerk]) {
	t.Helper()
	withClerkOf(t, options, nil, f, more...)
}

func withClerkOf(t *testing.T, options dohost.Options, h *clerkHandlers, f func(t *testing.T, b *bench), more ...agent.Entry[clerk]) {
	t.Helper()
	o := &office{}
	options.Listener = o.listener()
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{clerkClass(o, h, more...)}, Options: options},
		func(t *testing.T, h *dohosttest.Host) { f(t, &bench{h, t, o, time.Now()}) })
}

// do runs f in the clerk, and checks that all remaining rows have their alarm.
func (b *bench) do(f func(ctx context.Context, c *clerk) error) {
	b.t.Helper()
	err := clerks.Get(b, "a").Do(b.t.Context(), func(ctx context.Context, c *clerk) error {
		return errors.Join(f(ctx, c), c.armed(ctx))
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// schedule schedules without options.
func schedule[P any](b *bench, when agent.When, cb agent.Callback[P], payload P, o *agent.ScheduleOptions) (id string) {
	b.t.Helper()
	b.do(func(ctx context.Context, c *clerk) (err error) {
		id, err = agent.Schedule(ctx, c, when, cb, payload, o)
		return err
	})
	return id
}

func enqueue[P any](b *bench, cb agent.Callback[P], payload P, o *agent.QueueOptions) (id string) {
	b.t.Helper()
	b.do(func(ctx context.Context, c *clerk) (err error) {
		id, err = agent.Enqueue(ctx, c, cb, payload, o)
		return err
	})
	return id
}

// wrote compares the clerk's lines with the expected ones.
func (b *bench) wrote(want ...string) {
	b.t.Helper()
	b.do(func(ctx context.Context, c *clerk) error {
		got, err := c.lines(ctx)
		if !slices.Equal(got, want) {
			b.t.Errorf("the clerk wrote %q, want %q", got, want)
		}
		return err
	})
}

// told compares the reports with the expected ones.
func (b *bench) told(prefix string, want ...string) {
	b.t.Helper()
	if got := b.o.told(prefix); !slices.Equal(got, want) {
		b.t.Errorf("reported %q, want %q", got, want)
	}
}

func (b *bench) schedules(q *agent.ScheduleQuery) (all []agent.ScheduleInfo) {
	b.t.Helper()
	b.do(func(ctx context.Context, c *clerk) (err error) {
		all, err = c.Schedules().List(ctx, q)
		return err
	})
	return all
}

func (b *bench) rest() {
	b.t.Helper()
	if err := b.WaitIdle(0); err != nil {
		b.t.Error(err)
	}
}
