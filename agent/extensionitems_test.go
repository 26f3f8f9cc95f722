package agent_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// TestExtensionShowsItems has two extensions with items of one kind. Operators see the items of both after those of the agent, and an action
// reaches the extension that has the item.
func TestExtensionShowsItems(t *testing.T) {
	var acted []string
	extension := func(id string) agent.Entry[fiberAgent] {
		return agent.Extend(agent.Extension[fiberAgent]{
			Kinds: []string{"thing"},
			Inspect: func(_ context.Context, v *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
				return func(yield func(dohost.Resource, error) bool) {
					yield(dohost.Resource{Kind: "thing", ID: id, Text: v.ID().Name}, nil)
				}
			},
			Admin: func(a *fiberAgent, _ context.Context, r *dohost.AdminRequest) (bool, error) {
				if r.ID != id {
					return false, nil
				}
				acted = append(acted, fmt.Sprint(a.Name(), r.Action, r.ID))
				return true, nil
			},
		})
	}
	classOf := func(entries ...agent.Entry[fiberAgent]) dohost.Class {
		fiber := agent.OnFiber(testKind, func(*fiberAgent, context.Context, *agent.Fiber[int]) error { return nil }, nil)
		return agent.Bind(fiberAgents, func(_ context.Context, a *agent.Agent[noState]) (*fiberAgent, error) { return &fiberAgent{a, nil}, nil }, nil,
			append(entries, fiber)...)
	}
	class := classOf(extension("one"), extension("two"))
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		var id dohost.ID
		do(t, h, func(ctx context.Context, a *fiberAgent) error {
			id = a.ID()
			_, err := agent.StartFiber(ctx, a, testKind, 0, nil)
			return err
		})
		var kinds []string
		for d, err := range h.Host().Details(t.Context(), id) {
			if err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, d.Kind+" "+d.Text)
		}
		if got := strings.Join(kinds, ";"); !strings.HasPrefix(got, "fiber ") || !strings.HasSuffix(got, ";thing "+id.Name+";thing "+id.Name) {
			t.Errorf("the items are %q", got)
		}
		for of, want := range map[string]bool{"two": true, "three": false} {
			done, err := h.Host().Operate(t.Context(), id, &dohost.AdminRequest{Action: dohost.ActionDelete, Kind: "thing", ID: of})
			if done != want || err != nil {
				t.Errorf("the action on %q: %t, %v", of, done, err)
			}
		}
		_, err := h.Host().Operate(t.Context(), id, &dohost.AdminRequest{Action: dohost.ActionDelete, Kind: "other", ID: "two"})
		if _, ok := errors.AsType[*dohost.ArgumentError](err); !ok {
			t.Errorf("an action on another kind: %v", err)
		}
		wantEqual(t, "acted", strings.Join(acted, ";"), id.Name+"deletetwo")
	})
	_, err := dohost.Open(t.TempDir(), nil, classOf(agent.Extend(agent.Extension[fiberAgent]{Kinds: []string{"thing"}})))
	if err == nil || !strings.Contains(err.Error(), `items of kind "thing" has no Inspect or no Admin`) {
		t.Errorf("an extension without Inspect: %v", err)
	}
}
