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

const parrots dohost.Namespace[parrot] = "Parrot"

// parrot counts to a number in unique words: each word names the call of the handler that said it. So a restart of the
// reply is visible.
type parrot struct {
	*chat.Agent[struct{}]
	cage *cage
}

// cage is the shared state of a test's parrots.
type cage struct {
	words int
	calls atomic.Int64
	more  func(*parrot, context.Context, *chat.Reply, int) error // called before each word; may be nil
}

func (c *cage) reset() { c.calls.Store(0) }

func (p *parrot) reply(ctx context.Context, r *chat.Reply) error {
	call := p.cage.calls.Add(1)
	partial := r.Partial()
	said := len(strings.Fields(partial.PlainText()))
	for i := said; i < p.cage.words; i++ {
		if err := dohost.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		if p.cage.more != nil {
			if err := p.cage.more(p, ctx, r, i); err != nil {
				return err
			}
		}
		if err := r.Say(ctx, fmt.Sprintf("%d.%d ", call, i)); err != nil {
			return err
		}
	}
	return nil
}

func parrotClass(c *cage, o chat.Options) dohost.Class {
	return parrotClassOf(c, &handlers{Reply: (*parrot).reply, Options: o})
}

type handlers = chat.Handlers[parrot, struct{}]

func parrotClassOf(c *cage, h *handlers) dohost.Class {
	return chat.Bind(parrots, func(_ context.Context, a *chat.Agent[struct{}]) (*parrot, error) {
		return &parrot{a, c}, nil
	}, h)
}

var polly = dohost.ID{Class: "Parrot", Name: "polly"}

// counted returns an error unless a parrot's text counts from 0, without gaps or repetitions, and the call numbers
// never decrease.
func counted(text string, words int) error {
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
	c := &cage{words: 3}
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{parrotClass(c, chat.Options{})}}, func(t *testing.T, h *dohosttest.Host) {
		r := newReader(h, polly, "r")
		if err := r.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.ask(t.Context(), "one", "count", nil)
		if err := r.until(t.Context(), func() bool { return r.ended["one"].Done }, nil); err != nil {
			t.Fatal(err)
		}
		if err := counted(r.seen["one"].text, 3); err != nil {
			t.Error(err)
		}
		t.Log(r.log)
		r.leave()
	})
}
