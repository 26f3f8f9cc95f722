package chat_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// TestProgressAtEveryPoint ends the caller a and the asked agents everywhere, while a client of a sees the run, and connects again after
// each end of the process. The client, and another one that connects after the end, see each chunk once, in order, and none that the
// asked agent has lost. With the away client the one is disconnected in the middle of the run.
func TestProgressAtEveryPoint(t *testing.T) {
	const words = 4
	cases := map[string]struct {
		text, want string
		away       bool
	}{
		"one agent":     {"b: hello", wordsText(words), false},
		"a chain":       {"b: c: hello", "b heard (" + wordsText(words) + ")", false},
		"a client away": {"b: hello", wordsText(words), true},
	}
	if !pointtest.Case(false) { // the client that is away sees most of the other cases
		delete(cases, "one agent")
		delete(cases, "a chain")
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tm := &team{options: chat.AgentToolOptions{Timeout: 12 * time.Hour}}
			tm.think = func(ctx context.Context, m *member, r *chat.Reply) error {
				list, err := r.Messages(ctx, 1)
				if err != nil || strings.Contains(list[0].PlainText(), ":") {
					return err
				}
				return sayWords(map[string]int{m.Name(): words})(ctx, m, r)
			}
			var seen []*toolRuns
			var texts atomic.Int64 // runs with a text
			s := variant(scenario(&countingState{}, &testClients{}, tm.class()))
			if name != "one agent" {
				s = variant(s)
			}
			s.Reset = func() {
				clear(tm.runs)
				seen = nil
			}
			s.Run = func(ctx context.Context, h *dohosttest.Host) error {
				id := dohost.ID{Class: "member", Name: "a"}
				r, late := newReader(h, id, "r"), newReader(h, id, "late")
				defer r.close()
				seen = []*toolRuns{&r.runs, &late.runs}
				ask := func() { r.ask(ctx, "one", c.text, nil) }
				if c.away {
					if err := r.until(ctx, func() bool { return r.runs.ended() || r.runs.last() != nil && r.runs.last().text != "" }, ask); err != nil {
						return err
					}
					r.close()
					time.Sleep(time.Second)
				}
				if err := r.until(ctx, r.runs.ended, ask); err != nil {
					return err
				}
				defer late.close()
				return late.until(ctx, late.runs.ended, nil)
			}
			s.Check = func(ctx context.Context, h *dohosttest.Host) error {
				got, err := transcriptOf(ctx, h, "a")
				if err != nil || len(got) != 2 {
					return fmt.Errorf("a has %q: %w", got, err)
				}
				for i, rs := range seen {
					if len(rs.order) != 1 {
						return fmt.Errorf("the client %d has seen %d runs", i, len(rs.order))
					}
					if v := rs.last(); v.status != "finished" || v.summary != c.want || v.text != c.want && (v.text != "" || seen[1-i].last().text != "") {
						return fmt.Errorf("the client %d has seen the text %q, %s %q; want %q", i, v.text, v.status, v.summary, c.want)
					}
				}
				if seen[0].last().text != "" {
					texts.Add(1)
				}
				var failed error
				for _, name := range []string{"a", "b"} {
					err := members.Get(h, name).Do(ctx, func(ctx context.Context, m *member) error { return m.Idle(ctx) })
					failed = errors.Join(failed, err)
				}
				return failed
			}
			dohosttest.EveryPoint(t, s)
			if texts.Load() == 0 {
				t.Error("no client has seen a text")
			}
		})
	}
}

// last returns the last run; nil if there is none.
func (rs *toolRuns) last() *runView {
	if len(rs.order) == 0 {
		return nil
	}
	return rs.runs[rs.order[len(rs.order)-1]]
}

// ended reports whether there is a run, and the last one has ended.
func (rs *toolRuns) ended() bool { return rs.last() != nil && runEnded(rs.last()) }
