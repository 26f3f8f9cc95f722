package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// request is a request of a planner.
var request = inbox.Message{ID: "5", From: "planner", To: "clerk", Content: "tea", Request: "r1"}

// waitReply waits for the response to a message, in one event.
func waitReply(ctx context.Context, h *dohosttest.Host, asked inbox.Message) (m inbox.Message, err error) {
	err = desks.Get(h, "a").Do(ctx, func(ctx context.Context, d *desk) (err error) {
		m, err = inbox.WaitReply(ctx, d, &messages, asked)
		return err
	})
	return m, err
}

// TestWaitReply waits for a response, in an incarnation that ends, in the next one, and after the response.
func TestWaitReply(t *testing.T) {
	m := &answerModel{}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, append(fromAda("1"), request)...)
		h.Client(func(ctx context.Context) error {
			if err := dohost.Sleep(ctx, 1500*time.Millisecond); err != nil {
				return err
			}
			h.EvictAll()
			return nil
		})
		begin := time.Now()
		if _, err := waitReply(ctx, h, request); !errors.Is(err, dohost.ErrFenced) {
			t.Errorf("in an incarnation that ends: %v", err)
		}
		for range 2 {
			got, err := waitReply(ctx, h, request)
			if err != nil || got.Content != "tea" || got.InReplyTo != "r1" {
				t.Errorf("%+v, %v", got, err)
			}
		}
		if took := time.Since(begin); took > 4*time.Second {
			t.Errorf("the response came %v after the request", took)
		}
		h.Advance(time.Minute)
		equal(t, "responses", responses(t, ctx, h), "1 to ada", "tea to planner r1")
	}, inbox.On(in))
}

// TestWaitReplyEnds waits for responses that do not come.
func TestWaitReplyEnds(t *testing.T) {
	broken := errors.New("the model is broken")
	m := &answerModel{fail: func(int) error { return broken }}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m, Options: agent.RowsOptions{Retry: dohost.RetryPolicy{MaxAttempts: 2}}})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		lost := inbox.Message{ID: "2", From: "planner", To: "nobody", Request: "r2"}
		deleted := inbox.Message{ID: "3", From: "planner", To: "clerk", Request: "r3"}
		send(t, ctx, h, lost, request)
		for name, asked := range map[string]inbox.Message{"no agent": lost, "no message": deleted, "parked": request} {
			if _, err := waitReply(ctx, h, asked); !errors.Is(err, inbox.ErrNoReply) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := waitReply(ctx, h, inbox.Message{ID: "1", To: "clerk"}); !errors.Is(err, dohost.ErrMisuse) {
			t.Errorf("a message without a request: %v", err)
		}
		late := errors.New("too late")
		send(t, ctx, h, inbox.Message{ID: "4", From: "planner", Request: "r4"})
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			ctx, cancel := context.WithTimeoutCause(ctx, 100*time.Millisecond, late)
			defer cancel()
			if _, err := inbox.WaitReply(ctx, d, &messages, inbox.Message{From: "planner", To: "clerk", Request: "r4"}); !errors.Is(err, late) {
				t.Errorf("after its time: %v", err)
			}
			return nil
		})
	}, inbox.On(in))
}

// TestWaitReplyWithoutInbox waits in an object of a class without inboxes, for a response that is stored and for one that is not.
func TestWaitReplyWithoutInbox(t *testing.T) {
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		answered := inbox.Message{ID: "2", From: "planner", To: "clerk", Request: "r2"}
		send(t, ctx, h, request, answered)
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			return messages.Insert(ctx, d.Storage(), inbox.Message{ID: "3", Role: chat.RoleAssistant, Content: "yes", From: "clerk", To: "planner", InReplyTo: "r2"})
		})
		if m, err := waitReply(ctx, h, answered); m.Content != "yes" || err != nil {
			t.Errorf("%+v, %v", m, err)
		}
		if _, err := waitReply(ctx, h, request); !errors.Is(err, inbox.ErrNoReply) || !strings.Contains(err.Error(), `no inbox over "messages"`) {
			t.Error(err)
		}
	})
}

// TestWaitReplyEndsAmongPendingRows waits for responses that do not come, while a message to another agent waits for ever.
func TestWaitReplyEndsAmongPendingRows(t *testing.T) {
	broken := &answerModel{fail: func(int) error { return errors.New("the model is broken") }}
	clerk := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: broken, Options: agent.RowsOptions{Retry: dohost.RetryPolicy{MaxAttempts: 2}}})
	other := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "other", Model: broken, Options: agent.RowsOptions{Retry: dohost.RetryPolicy{MaxAttempts: -1}}})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		deleted := inbox.Message{ID: "3", From: "planner", To: "clerk", Request: "r3"}
		send(t, ctx, h, inbox.Message{ID: "1", From: "planner", To: "other"}, request)
		for name, asked := range map[string]inbox.Message{"no message": deleted, "parked": request} {
			if _, err := waitReply(ctx, h, asked); !errors.Is(err, inbox.ErrNoReply) {
				t.Errorf("%s: %v", name, err)
			}
		}
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			if pending, err := d.Rows().Pending(ctx); !pending || err != nil {
				t.Errorf("pending %t, %v", pending, err)
			}
			return nil
		})
	}, inbox.On(clerk), inbox.On(other))
}

// TestWaitReplyOfNoAgent waits for an agent that the class does not have, from before the end of another cycle.
func TestWaitReplyOfNoAgent(t *testing.T) {
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: &answerModel{}})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		lost := inbox.Message{ID: "2", From: "planner", To: "nobody", Request: "r2"}
		send(t, ctx, h, lost, request)
		ctx, cancel := context.WithTimeout(ctx, 35*time.Second)
		defer cancel()
		if _, err := waitReply(ctx, h, lost); !errors.Is(err, inbox.ErrNoReply) {
			t.Error(err)
		}
	}, inbox.On(in))
}

// TestWaitReplyEndsAmongParkedRows waits for the responses to 120 requests that are parked, while a message to another agent waits for ever.
func TestWaitReplyEndsAmongParkedRows(t *testing.T) {
	broken := &answerModel{fail: func(int) error { return errors.New("the model is broken") }}
	clerk := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: broken, Options: agent.RowsOptions{Retry: dohost.RetryPolicy{MaxAttempts: 1}}})
	other := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "other", Model: broken, Options: agent.RowsOptions{Retry: dohost.RetryPolicy{MaxAttempts: -1}}})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		list := []inbox.Message{{ID: "other", From: "planner", To: "other"}}
		for i := range 120 {
			list = append(list, inbox.Message{ID: fmt.Sprint(i), From: "planner", To: "clerk", Request: fmt.Sprint("r", i)})
		}
		send(t, ctx, h, list...)
		h.Advance(3 * time.Minute)
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		for _, asked := range list[1:] {
			if _, err := waitReply(ctx, h, asked); !errors.Is(err, inbox.ErrNoReply) {
				t.Fatalf("%s: %v", asked.ID, err)
			}
		}
	}, inbox.On(clerk), inbox.On(other))
}

// TestWaitReplyInACycle waits in a cycle for the response of another agent, and of its own one.
func TestWaitReplyInACycle(t *testing.T) {
	clerk := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: &answerModel{}})
	planner := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "planner", Model: &answerModel{}})
	generate := planner.Generate
	own := inbox.Message{ID: "1", From: "ada", To: "planner", Request: "r0"}
	planner.Generate = func(d *desk, ctx context.Context, c *inbox.Cycle[inbox.Message]) (inbox.Response, error) {
		if _, err := inbox.WaitReply(ctx, d, &messages, own); !errors.Is(err, dohost.ErrMisuse) {
			t.Errorf("for its own agent: %v", err)
		}
		if got, err := inbox.WaitReply(ctx, d, &messages, request); err != nil || got.Content != "tea" {
			t.Errorf("for another agent: %+v, %v", got, err)
		}
		return generate(d, ctx, c)
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, own, request)
		if _, err := waitReply(ctx, h, own); err != nil {
			t.Error(err)
		}
	}, inbox.On(clerk), inbox.On(planner))
}

// TestDrainInbox drains an inbox with a limit: the agent has not more cycles than without.
func TestDrainInbox(t *testing.T) {
	m := &answerModel{}
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: m})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, append(fromAda("1", "2"), request, inbox.Message{ID: "6", From: "bob", Content: "soup", Request: "r3"})...)
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			for _, test := range []struct {
				o    *agent.DrainOptions
				want agent.Drained
			}{
				{&agent.DrainOptions{MaxCycles: 1}, agent.Drained{Cycles: 1}},
				{nil, agent.Drained{Cycles: 2, Work: agent.WorkDone}},
				{nil, agent.Drained{Work: agent.WorkDone}},
			} {
				if got, err := d.Rows().Drain(ctx, test.o); got != test.want || err != nil {
					t.Errorf("%+v, %v, want %+v", got, err, test.want)
				}
			}
			return nil
		})
		if n := len(m.took()); n != 3 {
			t.Errorf("the model was asked %d times", n)
		}
		equal(t, "responses", responses(t, ctx, h), "1+2 to ada", "tea to planner r1", "soup to bob r3")
	}, inbox.On(in))
}
