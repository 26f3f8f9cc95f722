package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/streams/consumer"
)

const desks dohost.Namespace[desk] = "desk"

// desk is an agent that answers notes. It knows of no wake, stream or queue.
type desk struct {
	*agent.Agent[struct{}]
}

// note is a row of a desk, and its answer.
type note struct {
	Text   string
	Answer string
}

var notes = dohost.Collection[note]{
	Name: "notes",
	Key:  func(n note) string { return n.Text },
	Indexes: []dohost.Index[note]{{Name: "open", Of: func(n note) dohost.Key {
		if n.Answer != "" {
			return ""
		}
		return dohost.KeyOf(n.Text)
	}}},
}

// receive stores notes.
func (d *desk) receive(ctx context.Context, texts []string) error {
	for _, text := range texts {
		if err := notes.Insert(ctx, d.Storage(), note{Text: text}); err != nil {
			return err
		}
	}
	return nil
}

// answer answers an open note, in a second.
func (d *desk) answer(ctx context.Context, r dohost.Row[note]) error {
	if err := dohost.Sleep(ctx, time.Second); err != nil {
		return err
	}
	n := r.Value
	n.Answer = "answer to " + n.Text
	return notes.Put(ctx, d.Storage(), n)
}

// waitForAnswers waits until all notes have answers.
func (d *desk) waitForAnswers(ctx context.Context) (agent.WorkState, error) {
	drained, err := d.Rows().Drain(ctx, nil)
	return drained.Work, err
}

// answers returns the answers of the desk.
func (d *desk) answers(ctx context.Context) (list []string, err error) {
	rows, err := notes.List(ctx, d.Storage(), nil)
	for _, row := range rows {
		list = append(list, row.Value.Answer)
	}
	return list, err
}

// deskClass has no parameter: the class is the same in each program.
func deskClass() dohost.Class {
	return agent.Bind(desks, func(_ context.Context, a *agent.Agent[struct{}]) (*desk, error) { return &desk{a}, nil }, nil,
		agent.OnRows(&notes, "open", (*desk).answer, nil))
}

// deskTexts are the notes of a test.
var deskTexts = []string{"a", "b", "c"}

// source is a system that wakes a program for the notes of a desk: the option of the program that connects both.
type source struct {
	classes []dohost.Class // of the program, in addition to that of the desks
	// wake sends a wake. If claimed is true, another worker has it.
	wake func(t *testing.T, h *dohosttest.Host, claimed bool)
	// done reports whether the system knows that the work of the last wake is done.
	done func() bool
}

// noSource is a program that calls the desk itself.
func noSource() *source {
	return &source{
		wake: func(t *testing.T, h *dohosttest.Host, claimed bool) {
			if claimed {
				return
			}
			if err := dohost.CallNoResult(t.Context(), desks.Get(h, "x"), (*desk).receive, deskTexts); err != nil {
				t.Error(err)
			}
			h.Advance(10 * time.Second)
		},
		done: func() bool { return true },
	}
}

// work is the function of a wake with notes.
func work[W any](ctx context.Context, l dohost.Locator, w *agent.Session[W]) (struct{}, error) {
	d := desks.Get(l, "x")
	if err := dohost.CallNoResult(ctx, d, (*desk).receive, deskTexts); err != nil {
		return struct{}{}, err
	}
	left, err := dohost.CallNoArg(ctx, d, (*desk).waitForAnswers)
	if err != nil {
		return struct{}{}, err
	}
	return struct{}{}, w.Complete(ctx, left)
}

// queueSource is a queue in another process.
func queueSource() *source {
	finished := false
	return &source{
		wake: func(t *testing.T, h *dohosttest.Host, claimed bool) {
			queue := &agent.Lifecycle[string]{
				Claim: func(_ context.Context, wake string) (agent.WakeClaim, error) {
					if claimed {
						return agent.WakeClaim{}, agent.ErrWakeClaimed
					}
					return agent.WakeClaim{Wake: wake, Generation: 1}, nil
				},
				Complete: func(_ context.Context, _ string, _ agent.WakeClaim, work agent.WorkState) error {
					finished = work == agent.WorkDone
					return nil
				},
			}
			run := h.Client(func(ctx context.Context) error {
				_, err := agent.RunWake(ctx, "job", queue, func(ctx context.Context, w *agent.Session[string]) (struct{}, error) { return work(ctx, h, w) })
				return err
			})
			if err := run.Wait(); claimed != errors.Is(err, agent.ErrWakeClaimed) || !claimed && err != nil {
				t.Errorf("the work on a job: %v", err)
			}
		},
		done: func() bool { return finished },
	}
}

const clocks dohost.Namespace[clock] = "clock"

// clock is an object whose alarm is a wake for the notes of a desk.
type clock struct {
	state *dohost.State
	done  *bool
}

func (c *clock) alarm(ctx context.Context, info dohost.AlarmInfo) error {
	_, err := agent.RunWake(ctx, info, agent.AlarmLifecycle(c.state), func(ctx context.Context, w *agent.Session[dohost.AlarmInfo]) (struct{}, error) {
		return work(ctx, c.state, w)
	})
	*c.done = err == nil
	return err
}

// alarmSource is the alarm of another object. Its claim is the epoch of the incarnation, so no other worker can have it.
func alarmSource() *source {
	finished := false
	return &source{
		classes: []dohost.Class{dohost.Bind(clocks, func(_ context.Context, st *dohost.State) (*clock, error) { return &clock{st, &finished}, nil },
			&dohost.Handlers[clock]{OnAlarm: (*clock).alarm})},
		wake: func(t *testing.T, h *dohosttest.Host, claimed bool) {
			if claimed {
				return
			}
			if err := clocks.Get(h, "tower").Do(t.Context(), func(ctx context.Context, c *clock) error { return c.state.SetAlarm(ctx, time.Now()) }); err != nil {
				t.Error(err)
			}
			h.Advance(10 * time.Second)
		},
		done: func() bool { return finished },
	}
}

// streamSource is a subscription at a server of streams. The connection is a function of the program, not a method of the desk.
func streamSource() *source {
	f := newFakeServer()
	s := &consumer.Subscription{Server: root, ID: "s", Transport: f, Targets: []consumer.Target{consumer.To(desks,
		func(path string) string { return strings.TrimPrefix(path, "desks/") }, func(d *desk) *dohost.Storage { return d.Storage() },
		func(d *desk, ctx context.Context, b *consumer.Batch) error {
			var texts []string
			for _, m := range b.Messages {
				texts = append(texts, strings.Trim(string(m), `"`))
			}
			return d.receive(ctx, texts)
		})}}
	return &source{
		classes: []dohost.Class{consumer.Class(s)},
		wake: func(t *testing.T, h *dohosttest.Host, claimed bool) {
			if f.streams["desks/x"] == nil {
				for _, text := range deskTexts {
					f.append("desks/x", fmt.Sprintf("%q", text))
				}
			}
			body := f.begin()
			if claimed { // the server has begun a newer wake, of another worker, when the worker claims this one
				f.wake = "another"
			}
			if w := f.deliver(t.Context(), s.Webhook(h.Host(), nil), body); w.Code != 202 {
				t.Errorf("the delivery: %d %s", w.Code, w.Body)
			}
			h.Advance(10 * time.Second)
			if claimed {
				f.wake = ""
			}
		},
		done: func() bool { return f.settled() },
	}
}

// TestAgentsDoNotKnowTheirWakes has one class of agents in four programs: without wakes, and with those of a queue, of an alarm and of a
// subscription. A program connects the system with the agents, whose class is the same. A wake that another worker has does not wake the
// agent, and the work of the others is the same.
func TestAgentsDoNotKnowTheirWakes(t *testing.T) {
	for name, connect := range map[string]func() *source{"none": noSource, "queue": queueSource, "alarm": alarmSource, "stream": streamSource} {
		t.Run(name, func(t *testing.T) {
			from := connect()
			o := &dohosttest.Options{Classes: append([]dohost.Class{deskClass()}, from.classes...)}
			dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
				from.wake(t, h, true)
				id := desks.Get(h, "x").ID()
				if stored, err := h.Host().Exists(t.Context(), id); stored || err != nil || h.Host().IsLive(id) {
					t.Errorf("a wake of another worker has woken the agent: stored %t, %v", stored, err)
				}
				from.wake(t, h, false)
				got, err := dohost.CallNoArg(t.Context(), desks.Get(h, "x"), (*desk).answers)
				if want := []string{"answer to a", "answer to b", "answer to c"}; !slices.Equal(got, want) || err != nil || !from.done() {
					t.Errorf("answers %q, %v, done: %t; want %q", got, err, from.done(), want)
				}
			})
		})
	}
}
