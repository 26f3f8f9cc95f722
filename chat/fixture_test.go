package chat_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

const countingAgents dohost.Namespace[countingAgent] = "Counting"

// countingAgent counts to a number in unique words: each word names the call of the handler that said it. So a restart
// of the reply is visible.
type countingAgent struct {
	*chat.Agent[struct{}]
	counting *countingState
}

// countingState is the shared state of a test's countingAgents.
type countingState struct {
	words int
	calls atomic.Int64
	more  func(*countingAgent, context.Context, *chat.Reply, int) error // called before each word; may be nil
}

func (c *countingState) reset() { c.calls.Store(0) }

func (p *countingAgent) reply(ctx context.Context, r *chat.Reply) error {
	call := p.counting.calls.Add(1)
	partial := r.Partial()
	done := len(strings.Fields(partial.PlainText()))
	for i := done; i < p.counting.words; i++ {
		if err := dohost.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		if p.counting.more != nil {
			if err := p.counting.more(p, ctx, r, i); err != nil {
				return err
			}
		}
		if err := r.Say(ctx, fmt.Sprintf("%d.%d ", call, i)); err != nil {
			return err
		}
	}
	return nil
}

func countingClass(c *countingState, o chat.Options) dohost.Class {
	return countingClassOf(c, &handlers{Reply: (*countingAgent).reply, Options: o})
}

type handlers = chat.Handlers[countingAgent, struct{}]

func countingClassOf(c *countingState, h *handlers) dohost.Class {
	return chat.Bind(countingAgents, func(_ context.Context, a *chat.Agent[struct{}]) (*countingAgent, error) {
		return &countingAgent{a, c}, nil
	}, h)
}

var testID = dohost.ID{Class: string(countingAgents), Name: "counter"}

// checkCounted returns an error unless an agent's text counts from 0, without gaps or repetitions, and the call numbers
// never decrease.
func checkCounted(text string, words int) error {
	got := strings.Fields(text)
	before := 0
	for i, w := range got {
		var call, n int
		if _, err := fmt.Sscanf(w, "%d.%d", &call, &n); err != nil || n != i || call < before {
			return fmt.Errorf("word %d of %q is %q", i, text, w)
		}
		before = call
	}
	if len(got) != words {
		return fmt.Errorf("%d words instead of %d: %q", len(got), words, text)
	}
	return nil
}

func TestReply(t *testing.T) {
	c := &countingState{words: 3}
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{countingClass(c, chat.Options{})}}, func(t *testing.T, h *dohosttest.Host) {
		r := newReader(h, testID, "r")
		if err := r.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.ask(t.Context(), "one", "count", nil)
		if err := r.until(t.Context(), func() bool { return r.ended["one"].Done }, nil); err != nil {
			t.Fatal(err)
		}
		if err := checkCounted(r.views["one"].text, 3); err != nil {
			t.Error(err)
		}
		t.Log(r.log)
		r.close()
	})
}
