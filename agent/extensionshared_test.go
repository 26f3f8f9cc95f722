package agent_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// A shared extension has the parts of all entries of its name, in their order. Its Wake runs once for each incarnation, and its Inspect lists
// items.
func TestExtendShared(t *testing.T) {
	var woken []string
	part := func(name string, n int) agent.Entry[fiberAgent] {
		return agent.ExtendShared(name, n, func(parts []int) agent.Extension[fiberAgent] {
			return agent.Extension[fiberAgent]{
				Wake: func(_ context.Context, a agent.Handle) error {
					woken = append(woken, joinValues(a.Object().ID().Name, name, parts))
					return nil
				},
				Inspect: func(context.Context, *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
					return func(yield func(dohost.Resource, error) bool) {
						_ = yield(dohost.Resource{Kind: "part", ID: name}, nil) && yield(dohost.Resource{Kind: "part", ID: name + "'"}, nil)
					}
				},
			}
		})
	}
	construct := func(_ context.Context, a *agent.Agent[noState]) (*fiberAgent, error) { return &fiberAgent{a, nil}, nil }
	nested := agent.Extend(agent.Extension[fiberAgent]{Entries: []agent.Entry[fiberAgent]{part("x", 2)}})
	class := agent.Bind(fiberAgents, construct, nil, part("x", 1), part("y", 7), nested)
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		for range 2 {
			do(t, h, func(context.Context, *fiberAgent) error { return nil })
			h.EvictAll()
		}
		wantEqual(t, "woken", strings.Join(woken, ";"), "a x [1 2];a y [7];a x [1 2];a y [7]")
		var listed []string
		for r, err := range h.Host().Details(t.Context(), dohost.ID{Class: string(fiberAgents), Name: "a"}) {
			if err != nil {
				t.Fatal(err)
			}
			if listed = append(listed, r.Kind+" "+r.ID); len(listed) == 3 {
				break
			}
		}
		wantEqual(t, "listed", strings.Join(listed, ";"), "part x;part x';part y")
	})
}

// An extension whose Wake fails fails the constructor.
func TestExtensionWakeFails(t *testing.T) {
	refused := errors.New("not today")
	construct := func(_ context.Context, a *agent.Agent[noState]) (*fiberAgent, error) { return &fiberAgent{a, nil}, nil }
	class := agent.Bind(fiberAgents, construct, nil, agent.Extend(agent.Extension[fiberAgent]{
		Wake: func(context.Context, agent.Handle) error { return refused },
	}))
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		err := fiberAgents.Get(h, "a").Do(t.Context(), func(context.Context, *fiberAgent) error { return nil })
		if !errors.Is(err, refused) {
			t.Error(err)
		}
	})
}
