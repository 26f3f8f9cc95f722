package chat_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// testClients has the readers of a run.
type testClients struct {
	readers  []*reader
	counting *countingState // its calls are calls of the handler; nil for models with more calls
}

func (c *testClients) join(h *dohosttest.Host, name string) *reader {
	r := newReader(h, testID, name)
	c.readers = append(c.readers, r)
	return r
}

// askAll sends requests until each is answered, through any failures.
func (r *reader) askAll(ctx context.Context, requests ...string) error {
	defer r.close()
	ask := func() {
		for _, id := range requests {
			if !r.ended[id].Done {
				r.ask(ctx, id, "count", nil) // repeats a request that may be lost
			}
		}
	}
	return r.until(ctx, func() bool {
		return !slices.ContainsFunc(requests, func(id string) bool { return !r.ended[id].Done })
	}, ask)
}

// waitForMessages reads until the transcript has n messages.
func (r *reader) waitForMessages(ctx context.Context, n int) error {
	defer r.close()
	return r.until(ctx, func() bool { return len(r.messages) >= n }, nil)
}

// checkAtEnd checks a conversation after the end of all requests: requests is their number, and words the number of words of each reply.
func (c *testClients) checkAtEnd(ctx context.Context, h *dohosttest.Host, requests, words int) error {
	var list []chat.Message
	err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) (err error) {
		if list, err = chat.Messages(ctx, p, 0); err != nil {
			return err
		}
		if begun, err := p.Begun(ctx); err != nil || c.counting != nil && int(c.counting.calls.Load()) > begun {
			return fmt.Errorf("the handler was called %d times, %d are counted: %w", c.counting.calls.Load(), begun, err)
		}
		return p.Idle(ctx)
	})
	if err != nil {
		return err
	}
	if len(list) != 2*requests {
		return fmt.Errorf("%d messages instead of %d", len(list), 2*requests)
	}
	stored := map[string]string{}
	for i, m := range list {
		if want := []chat.Role{chat.RoleUser, chat.RoleAssistant}[i%2]; m.Role != want {
			return fmt.Errorf("message %d is of the %s", i, m.Role)
		}
		if m.Role == chat.RoleAssistant {
			stored[m.ID] = m.PlainText()
			if err := checkCounted(m.PlainText(), words); err != nil {
				return err
			}
		}
	}
	for _, r := range c.readers {
		for id, v := range r.views {
			text, ok := stored[v.message]
			if v.message == "" { // the reply continued an existing message without a text
				text, ok = list[len(list)-1].PlainText(), true
			}
			if !ok || !strings.HasPrefix(text, v.text) {
				err = errors.Join(err, fmt.Errorf("%s has seen %q of %s, which is stored as %q", r.name, v.text, id, text))
			}
		}
	}
	return err
}

// scenario returns a scenario of clients that send requests to a countingAgent.
func scenario(c *countingState, all *testClients, class dohost.Class) dohosttest.Scenario {
	return pointtest.Scenario(dohosttest.Scenario{
		Classes: []dohost.Class{class},
		Reset: func() {
			c.reset()
			all.readers = nil
		},
		Places:   pointtest.Places(),
		FullDisk: true,
	}, 12, 25)
}

// variant returns a scenario that takes long, and has few steps that others lack. In a plain go test it has a third of the sample.
func variant(s dohosttest.Scenario) dohosttest.Scenario {
	s.Sample = (s.Sample + 2) / 3
	return s
}

func TestReplyAtEveryPoint(t *testing.T) {
	t.Parallel()
	c := &countingState{words: 3}
	all := &testClients{counting: c}
	s := scenario(c, all, countingClass(c, chat.Options{}))
	s.Run = func(ctx context.Context, h *dohosttest.Host) error {
		late := all.join(h, "late")
		late.resumeDelay = 250 * time.Millisecond
		other := h.Client(func(ctx context.Context) error {
			time.Sleep(150 * time.Millisecond)
			return late.waitForMessages(ctx, 2)
		})
		err := all.join(h, "asker").askAll(ctx, "one")
		return errors.Join(err, other.Wait())
	}
	s.Check = func(ctx context.Context, h *dohosttest.Host) error { return all.checkAtEnd(ctx, h, 1, 3) }
	dohosttest.EveryPoint(t, s)
}

func TestQueueOfThreeAtEveryPoint(t *testing.T) {
	t.Parallel()
	c := &countingState{words: 2}
	all := &testClients{counting: c}
	s := scenario(c, all, countingClass(c, chat.Options{}))
	s.Run = func(ctx context.Context, h *dohosttest.Host) error {
		return all.join(h, "asker").askAll(ctx, "one", "two", "three")
	}
	s.Check = func(ctx context.Context, h *dohosttest.Host) error { return all.checkAtEnd(ctx, h, 3, 2) }
	dohosttest.EveryPoint(t, s)
}

// A stopped reply keeps the chunks that clients have seen, and gets no others. The next request is answered
// completely.
func TestCancelAtEveryPoint(t *testing.T) {
	t.Parallel()
	c := &countingState{words: 4}
	all := &testClients{counting: c}
	s := scenario(c, all, countingClass(c, chat.Options{}))
	s.FullDisk = false // a refused request comes after the next one
	s.Run = func(ctx context.Context, h *dohosttest.Host) error {
		r := all.join(h, "asker")
		defer r.close()
		stop := func() {
			if v := r.views["one"]; v != nil && v.text != "" && !r.ended["one"].Done && r.ws != nil {
				r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_request_cancel", "id": "one"})
			}
		}
		ask := func() {
			for _, id := range []string{"one", "two"} {
				if !r.ended[id].Done {
					r.ask(ctx, id, "count", nil)
				}
			}
		}
		return r.until(ctx, func() bool {
			stop()
			return r.ended["one"].Done && r.ended["two"].Done
		}, ask)
	}
	s.Check = func(ctx context.Context, h *dohosttest.Host) error {
		return countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
			list, err := chat.Messages(ctx, p, 0)
			if err != nil {
				return err
			}
			if len(list) != 4 || list[1].Role != chat.RoleAssistant || list[3].Role != chat.RoleAssistant {
				return fmt.Errorf("%d messages", len(list))
			}
			if o := all.readers[0].ended["one"].Outcome; o != "aborted" && o != "completed" {
				return fmt.Errorf("the one that was stopped has the outcome %q", o)
			}
			text := list[1].PlainText()
			if err := checkCounted(text, len(strings.Fields(text))); err != nil {
				return err
			}
			if seen := all.readers[0].views["one"]; seen != nil && !strings.HasPrefix(text, seen.text) { // nil if all was over
				return fmt.Errorf("%q was seen, %q is stored", seen.text, text)
			}
			return errors.Join(checkCounted(list[3].PlainText(), 4), p.Idle(ctx))
		})
	}
	dohosttest.EveryPoint(t, s)
}

// A regenerated reply replaces the previous one, and is complete.
func TestRegenerateAtEveryPoint(t *testing.T) {
	t.Parallel()
	c := &countingState{words: 2}
	all := &testClients{counting: c}
	s := scenario(c, all, countingClass(c, chat.Options{}))
	s.Run = func(ctx context.Context, h *dohosttest.Host) error {
		r := all.join(h, "asker")
		defer r.close()
		if err := r.until(ctx, func() bool { return r.ended["one"].Done }, func() { r.ask(ctx, "one", "count", nil) }); err != nil {
			return err
		}
		r.views = map[string]*view{}
		again := func() {
			r.messages = []page{{ID: "user-one", Role: "user", Parts: []part{{Type: "text", Text: "count"}}}}
			r.ask(ctx, "two", "", map[string]any{"trigger": "regenerate-message"})
		}
		if r.ws != nil {
			again()
		}
		return r.until(ctx, func() bool { return r.ended["two"].Done }, again)
	}
	s.Check = func(ctx context.Context, h *dohosttest.Host) error { return all.checkAtEnd(ctx, h, 1, 2) }
	dohosttest.EveryPoint(t, s)
}

// A second run of the handler is interrupted everywhere.
func TestReplyRunTwiceAtEveryPoint(t *testing.T) {
	t.Parallel()
	c := &countingState{words: 3}
	c.more = func(p *countingAgent, ctx context.Context, _ *chat.Reply, i int) error {
		if i == 1 && c.calls.Load() == 1 {
			return p.Object().Abort(ctx, errors.New("enough"), nil)
		}
		return nil
	}
	all := &testClients{counting: c}
	s := scenario(c, all, countingClass(c, chat.Options{}))
	s.Run = func(ctx context.Context, h *dohosttest.Host) error { return all.join(h, "asker").askAll(ctx, "one") }
	s.Check = func(ctx context.Context, h *dohosttest.Host) error { return all.checkAtEnd(ctx, h, 1, 3) }
	dohosttest.EveryPoint(t, s)
}

// A failed reply also ends for clients that were not connected at the failure.
func TestFailureAtEveryPoint(t *testing.T) {
	t.Parallel()
	c := &countingState{words: 3}
	c.more = func(_ *countingAgent, _ context.Context, _ *chat.Reply, i int) error {
		if i == 2 {
			return &dohost.PublicError{Message: "the model is out"}
		}
		return nil
	}
	all := &testClients{counting: c}
	s := scenario(c, all, countingClass(c, chat.Options{}))
	s.Run = func(ctx context.Context, h *dohosttest.Host) error {
		watcher := all.join(h, "watcher")
		other := h.Client(func(ctx context.Context) error {
			defer watcher.close()
			return watcher.until(ctx, func() bool { return watcher.ended["one"].Done }, nil)
		})
		err := all.join(h, "asker").askAll(ctx, "one")
		return errors.Join(err, other.Wait())
	}
	s.Check = func(ctx context.Context, h *dohosttest.Host) error {
		for _, r := range all.readers {
			if r.ended["one"].Body != "the model is out" {
				return fmt.Errorf("%s was told %+v", r.name, r.ended["one"])
			}
		}
		return all.checkAtEnd(ctx, h, 1, 2)
	}
	dohosttest.EveryPoint(t, s)
}
