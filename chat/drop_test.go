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
)

// discardingClass is a class of countingAgents that run a tool and count. They are interrupted and discard the
// interrupted chunks at least once.
func discardingClass(c *countingState, cuts *atomic.Int64, d chat.RecoveryAction) dohost.Class {
	return countingClassOf(c, &handlers{
		Reply: func(p *countingAgent, ctx context.Context, r *chat.Reply) error {
			if call := c.calls.Load() + 1; !hasOutput(r.Partial()) {
				members := map[string]any{"toolCallId": fmt.Sprintf("call-%d", call), "toolName": "stamp", "input": 1}
				if err := r.Send(ctx, chunk("tool-input-available", members)); err != nil {
					return err
				}
				if err := dohost.Sleep(ctx, 50*time.Millisecond); err != nil {
					return err
				}
				if err := dohost.Add(ctx, p.Storage(), "stamps", 1); err != nil {
					return err
				}
				delete(members, "input")
				members["output"] = "stamped"
				if err := r.Send(ctx, chunk("tool-output-available", members)); err != nil {
					return err
				}
			}
			return p.reply(ctx, r)
		},
		OnRecovery: func(*countingAgent, context.Context, *chat.InterruptedReply) (chat.RecoveryAction, error) {
			cuts.Add(1)
			return d, nil
		},
	})
}

// discardScenario is a scenario with the decision d after an interruption, and two connected clients.
func discardScenario(d chat.RecoveryAction, check func(ctx context.Context, p *countingAgent, requester *reader, last chat.Message) error) dohosttest.Scenario {
	c := &countingState{words: 3}
	var cuts atomic.Int64
	c.more = func(p *countingAgent, ctx context.Context, _ *chat.Reply, i int) error {
		if i == 2 && c.calls.Load() == 1 {
			return p.Object().Abort(ctx, errors.New("enough"), nil)
		}
		return nil
	}
	all := &testClients{counting: c}
	s := scenario(c, all, discardingClass(c, &cuts, d))
	s.FullDisk = false                                                                         // the model itself writes, and returns the error
	s.Places = []dohost.Place{dohost.PlaceCommitted, dohost.PlaceDurable, dohost.PlaceAwaited} // a reply without a drop covers the other places
	reset := s.Reset
	s.Reset = func() {
		reset()
		cuts.Store(0)
	}
	s.Run = func(ctx context.Context, h *dohosttest.Host) error {
		requester, late := all.join(h, "asker"), all.join(h, "late")
		requester.mayRestart, late.mayRestart = true, true
		other := h.Client(func(ctx context.Context) error {
			time.Sleep(120 * time.Millisecond)
			return late.askAll(ctx, "one") // a repetition of the request
		})
		return errors.Join(requester.askAll(ctx, "one"), other.Wait())
	}
	s.Check = func(ctx context.Context, h *dohosttest.Host) error {
		return countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
			list, err := chat.Messages(ctx, p, 0)
			if err != nil {
				return err
			}
			last := chat.Message{Role: chat.RoleAssistant}
			if len(list) == 2 {
				last = list[1]
			}
			if len(list) == 0 || len(list) > 2 || list[0].Role != chat.RoleUser || last.Role != chat.RoleAssistant {
				return fmt.Errorf("%d messages", len(list))
			}
			stamps, _, err := dohost.Get[int](ctx, p.Storage(), "stamps")
			if n := outputs(last); err != nil || n != stamps {
				return fmt.Errorf("the tool ran %d times, and %d outputs are there: %w", stamps, n, err)
			}
			for _, r := range all.readers {
				v := r.views["one"]
				if v == nil {
					continue
				}
				if v.message != "" && last.ID != "" && v.message != last.ID || !r.extends(v.text, last.PlainText()) || int64(v.restarts) > cuts.Load() {
					return fmt.Errorf("%s has seen %+v, %d cuts, and %s is stored as %q", r.name, v, cuts.Load(), last.ID, last.PlainText())
				}
			}
			return errors.Join(check(ctx, p, all.readers[0], last), p.Idle(ctx))
		})
	}
	return s
}

// Dropped text disappears, and the reply starts over. A tool that already has a result does not run again.
func TestDropAtEveryPoint(t *testing.T) {
	t.Parallel()
	dohosttest.EveryPoint(t, discardScenario(chat.RecoveryRestart, func(_ context.Context, _ *countingAgent, requester *reader, last chat.Message) error {
		if end := requester.ended["one"]; end.Outcome != "completed" {
			return fmt.Errorf("%+v", end)
		}
		text := last.PlainText()
		first := strings.Fields(text)
		if err := checkCounted(text, 3); err != nil {
			return err
		}
		if callOf(first[0]) != callOf(first[2]) {
			return fmt.Errorf("%q was not said anew", text)
		}
		return nil
	}))
}

// Dropped text disappears, and the reply ends.
func TestDropAndStopAtEveryPoint(t *testing.T) {
	t.Parallel()
	dohosttest.EveryPoint(t, discardScenario(chat.RecoveryDiscard, func(_ context.Context, _ *countingAgent, requester *reader, last chat.Message) error {
		if end := requester.ended["one"]; end.Outcome != "aborted" || last.PlainText() != "" {
			return fmt.Errorf("%+v, %q", end, last.PlainText())
		}
		return nil
	}))
}
