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
	"github.com/dohost/dohost/internal/celltest"
	"github.com/dohost/dohost/ledger"
)

// cellOfMember has the members b and d in another cell.
func cellOfMember(id dohost.ID) int {
	if id.Name == "b" || id.Name == "d" {
		return 1
	}
	return 0
}

func memberAt(c *celltest.Cells, name string) dohost.Stub[member] {
	return members.Get(c.At(cellOfMember(dohost.ID{Name: name})), name)
}

// askAt makes a request of the member a, until it is stored.
func askAt(ctx context.Context, c *celltest.Cells, text string) error {
	return c.Retry(ctx, func(ctx context.Context) error {
		return memberAt(c, "a").Do(ctx, func(ctx context.Context, m *member) error {
			_, err := chat.Ask(ctx, m, []chat.Message{chat.Text("u", chat.RoleUser, text)}, &chat.AskOptions{ID: "one"})
			return err
		})
	})
}

// wantAt waits until a member is idle with a transcript.
func wantAt(ctx context.Context, c *celltest.Cells, name string, want ...string) error {
	var got []string
	var busy error
	err := c.Until(ctx, func(ctx context.Context) (done bool, err error) {
		err = memberAt(c, name).Do(ctx, func(ctx context.Context, m *member) error {
			list, err := chat.Messages(ctx, m, 0)
			got = nil
			for _, m := range list {
				got = append(got, fmt.Sprintf("%s: %s", m.Role, m.PlainText()))
			}
			busy = m.Idle(ctx)
			done = err == nil && busy == nil
			return err
		})
		return done && fmt.Sprintf("%q", got) == fmt.Sprintf("%q", want), err
	})
	if err != nil {
		err = fmt.Errorf("%s has %q, want %q: %w, %w", name, got, want, busy, err)
	}
	return err
}

// farTeam is a team whose calls have much time.
func farTeam(tm *team) func() []dohost.Class {
	tm.options.Timeout = 3 * time.Hour
	return func() []dohost.Class { return []dohost.Class{tm.class()} }
}

// TestAgentToolAcrossCellsAtEveryCall has agents of two cells that ask each other. Each call between the cells is interrupted.
func TestAgentToolAcrossCellsAtEveryCall(t *testing.T) {
	tm := &team{}
	celltest.EveryCall(t, &celltest.Scenario{
		Classes: farTeam(tm), Cell: cellOfMember,
		Run: func(ctx context.Context, c *celltest.Cells) error {
			if err := askAt(ctx, c, "b: c: hi & d: yo"); err != nil {
				return err
			}
			err := wantAt(ctx, c, "a", "user: b: c: hi & d: yo", "assistant: a heard (b heard (c says hi), d says yo)")
			for name, want := range map[string][]string{
				"b": {"user: c: hi", "assistant: b heard (c says hi)"}, "c": {"user: hi", "assistant: c says hi"}, "d": {"user: yo", "assistant: d says yo"},
			} {
				if err == nil {
					err = wantAt(ctx, c, name, want...)
				}
			}
			c.Sleep(5 * time.Minute) // a late call
			if err == nil {
				err = wantAt(ctx, c, "b", "user: c: hi", "assistant: b heard (c says hi)")
			}
			return err
		},
	})
}

// TestAgentToolErrorsAcrossCells has agents of another cell that refuse a request, or do not exist.
func TestAgentToolErrorsAcrossCells(t *testing.T) {
	tm := &team{asked: func(_ *member, _ context.Context, a chat.Asked) error {
		return fmt.Errorf("not for %v", a.From)
	}}
	celltest.Once(t, &celltest.Scenario{
		Classes: farTeam(tm), Cell: cellOfMember,
		Run: func(ctx context.Context, c *celltest.Cells) error {
			if err := askAt(ctx, c, "b: hi"); err != nil {
				return err
			}
			return wantAt(ctx, c, "a", "user: b: hi", "assistant: a heard (The agent member/b was not asked: it refused: not for member/a)")
		},
	})
}

// TestOnAskedThatIsSlowAcrossCells has an OnAsked that takes half an hour, while the caller repeats its request.
func TestOnAskedThatIsSlowAcrossCells(t *testing.T) {
	var now, most atomic.Int64 // calls of objects of two cells
	tm := &team{asked: func(_ *member, ctx context.Context, _ chat.Asked) error {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		return dohost.Sleep(ctx, 30*time.Minute)
	}}
	celltest.Once(t, &celltest.Scenario{
		Classes: farTeam(tm), Cell: cellOfMember,
		Run: func(ctx context.Context, c *celltest.Cells) error {
			if err := askAt(ctx, c, "b: hi"); err != nil {
				return err
			}
			c.Sleep(time.Hour)
			if n := most.Load(); n < 2 || n > 4 {
				return fmt.Errorf("%d concurrent calls of OnAsked, want 2 to 4", n)
			}
			if err := wantAt(ctx, c, "a", "user: b: hi", "assistant: a heard (b says hi)"); err != nil {
				return err
			}
			return wantAt(ctx, c, "b", "user: hi", "assistant: b says hi")
		},
	})
}

// TestCancelAcrossCellsAtEveryCall stops a reply that waits for agents of another cell, which answer after a day. Each call between the cells is
// interrupted.
func TestCancelAcrossCellsAtEveryCall(t *testing.T) {
	cancelAcrossCells(t, celltest.EveryCall, nil, "user: hi")
}

// TestRequestAfterItsCancellation lets the attempts of a request arrive a minute after its cancellation. The asked agent does not answer it.
func TestRequestAfterItsCancellation(t *testing.T) {
	for _, answers := range []celltest.Ending{celltest.LateCall, celltest.LostCall} {
		t.Run(answers.String(), func(t *testing.T) {
			cancelAcrossCells(t, celltest.Once, func(call *dohost.RemoteCall) celltest.Ending {
				if call.Method == "dohost.chat.ask" {
					return answers
				}
				return celltest.NoEnding
			})
		})
	}
}

// cancelAcrossCells stops a reply of a that waits for b. In the end b has stopped, and has these messages.
func cancelAcrossCells(t *testing.T, test func(*testing.T, *celltest.Scenario), fault func(*dohost.RemoteCall) celltest.Ending, want ...string) {
	slow := sleeper("slow", 24*time.Hour, false)
	slow.Policy = ledger.PolicyIdempotent // it runs again after an interruption: a reply that waits for agents alone cannot be stopped
	tm := &team{think: silentMember, extra: []chat.Tool{slow}}
	test(t, &celltest.Scenario{
		Classes: farTeam(tm), Cell: cellOfMember,
		Run: func(ctx context.Context, c *celltest.Cells) error {
			c.Fault = fault
			if err := askAt(ctx, c, "b: hi & tool slow: x"); err != nil {
				return err
			}
			c.Sleep(10 * time.Second)
			err := c.Retry(ctx, func(ctx context.Context) error {
				return memberAt(c, "a").Do(ctx, func(ctx context.Context, m *member) error {
					_, err := chat.Cancel(ctx, m, "one")
					return err
				})
			})
			if err != nil {
				return err
			}
			c.Sleep(5 * time.Minute)
			if err := wantAt(ctx, c, "b", want...); err != nil {
				return err
			}
			if tm.runs["b"] == 0 && len(want) > 0 || tm.runs["b"] > 0 && len(want) == 0 {
				return fmt.Errorf("the handler of b has run %d times", tm.runs["b"])
			}
			return nil
		},
	})
}

// hostedAt is the host of the member a.
type hostedAt struct {
	dohost.Locator
	c *celltest.Cells
}

func (h hostedAt) Host() *dohost.Host { return h.c.Host(0) }

// TestProgressAcrossCellsAtEveryCall has a client that sees the run of an agent of another cell from its start, and one that connects after the
// end. Each call between the cells is interrupted.
func TestProgressAcrossCellsAtEveryCall(t *testing.T) {
	const words = 6
	tm := &team{}
	tm.think = sayWords(map[string]int{"b": words})
	texts := 0 // a client that is away during the whole run sees the answer alone
	celltest.EveryCall(t, &celltest.Scenario{
		Classes: farTeam(tm), Cell: cellOfMember,
		Run: func(ctx context.Context, c *celltest.Cells) error {
			at, id := hostedAt{c.At(0), c}, dohost.ID{Class: "member", Name: "a"}
			early, late := newReader(at, id, "early"), newReader(at, id, "late")
			defer early.close()
			defer late.close()
			if err := early.until(ctx, early.runs.ended, func() { early.ask(ctx, "one", "b: hello", nil) }); err != nil {
				return err
			}
			if err := late.until(ctx, late.runs.ended, nil); err != nil {
				return err
			}
			for _, r := range []*reader{early, late} {
				v := r.runs.last()
				if v.text == wordsText(words) {
					texts++
				}
				if len(r.runs.order) != 1 || v.status != "finished" || v.text != wordsText(words) && v.text != "" || v.summary != wordsText(words) {
					return fmt.Errorf("%s has seen %d runs, and the text %q, %s %q", r.name, len(r.runs.order), v.text, v.status, v.summary)
				}
			}
			return wantAt(ctx, c, "b", "user: hello", "assistant: "+strings.TrimSpace(wordsText(words))+" ")
		},
	})
	if texts < 10 { // of 22 in a race build
		t.Errorf("%d clients have seen the text", texts)
	}
}
