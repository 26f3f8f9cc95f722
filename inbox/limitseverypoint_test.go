package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/pointtest"
)

// TestAgentToolLimitsAtEveryPoint has an agent that asks one outside of the host that never answers, one that asks it back, and a chain of
// agents that is too long. They are in one object, or in two. Wherever the incarnations and the process end, each call is one request, and the first agent answers with the error.
func TestAgentToolLimitsAtEveryPoint(t *testing.T) {
	for name, c := range map[string]struct {
		text, want string
		requests   int
	}{
		"silent": {"b: hi", "a heard (the agent b of desk/a did not answer within 45s; its request ", 1},
		"cycle":  {"b: a: hi", "a heard (b heard (the agent a of desk/a was not asked: it waits for this answer: a of desk/a → b of desk/OTHER → a of desk/a))", 1},
		"six": {"b: c: d: e: f: g: hi", "a heard (b heard (c heard (d heard (e heard (f heard (no agent was asked: 6 agents would ask each other, the limit is 5: " +
			"a of desk/a → b of desk/OTHER → c of desk/a → d of desk/OTHER → e of desk/a → f of desk/OTHER))))))", 5},
	} {
		for _, other := range []string{"a", "other"} {
			if name == "silent" && other != "a" || !pointtest.Case((other == "a") != (name == "cycle")) {
				continue
			}
			t.Run(name+" "+other, func(t *testing.T) {
				asked := map[string]inbox.Message{} // outside of the host
				set := func(a *inbox.Agent, tools []inbox.AgentTool) {
					if name == "silent" {
						a.Agents = []inbox.AgentTool{silentTool(asked)}
					}
					if other != "a" {
						elsewhere(other)(a, tools)
					}
				}
				s := dohosttest.Scenario{
					Classes:  []dohost.Class{deskClass(team(set, "a", "b", "c", "d", "e", "f", "g")...)},
					Reset:    func() { clear(asked) },
					Places:   pointtest.Places(),
					FullDisk: true,
					Run: func(ctx context.Context, h *dohosttest.Host) error {
						return sendOnceTo(ctx, h, inbox.Message{ID: "1", From: "ada", To: "a", Content: c.text, Request: "r1"})
					},
					Check: func(ctx context.Context, h *dohosttest.Host) error {
						return checkLimit(ctx, h, other, strings.ReplaceAll(c.want, "OTHER", other), c.requests-len(asked))
					},
				}
				dohosttest.EveryPoint(t, pointtest.Scenario(s, 8, 20))
			})
		}
	}
}

// silentTool asks an agent outside of the host, which stores the requests and never answers.
func silentTool(asked map[string]inbox.Message) inbox.AgentTool {
	return inbox.AgentTool{
		Name: "b", Timeout: 45 * time.Second,
		Insert: func(_ context.Context, _ inbox.Ref, m inbox.Message) (inbox.Message, error) {
			if _, stored := asked[m.ID]; !stored {
				asked[m.ID] = m
			}
			return asked[m.ID], nil
		},
		Wait: func(ctx context.Context, _ inbox.Ref, _ inbox.Message) (inbox.Message, error) {
			return inbox.Message{}, dohost.Await(ctx, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
		},
	}
}

// sendOnceTo sends a message to the desk a once, however often the call is repeated.
func sendOnceTo(ctx context.Context, h *dohosttest.Host, m inbox.Message) error {
	return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
		return desks.Get(h, "a").Do(ctx, func(ctx context.Context, d *desk) error {
			if _, ok, err := messages.Get(ctx, d.Storage(), m.ID); ok || err != nil {
				return err
			}
			_, err := inbox.Send(ctx, d.Storage(), &messages, m)
			return err
		})
	})
}

// checkLimit compares the response of the agent a, which begins with want, and counts the requests of agents in the desks.
func checkLimit(ctx context.Context, h *dohosttest.Host, other, want string, requests int) error {
	objects := []string{"a"}
	if other != "a" {
		objects = append(objects, other)
	}
	n := 0
	var errs []error
	for _, object := range objects {
		errs = append(errs, desks.Get(h, object).Do(ctx, func(ctx context.Context, d *desk) error {
			asked, err := messages.Count(ctx, d.Storage(), &dohost.Query[inbox.Message]{Where: func(m inbox.Message) bool { return len(m.Path) > 0 }})
			if n += asked; err != nil || object != "a" {
				return err
			}
			m, _, err := inbox.Reply(ctx, d.Storage(), &messages, inbox.Message{From: "ada", To: "a", Request: "r1"})
			if !strings.HasPrefix(m.Content, want) {
				return fmt.Errorf("the response %q, want %q, %w", m.Content, want, err)
			}
			return err
		}))
	}
	if n != requests {
		errs = append(errs, fmt.Errorf("%d requests, want %d", n, requests))
	}
	return errors.Join(errs...)
}
