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

// TestExtensionInspectPanicIsAnErrorOfTheList has extensions with an Inspect function that panics, or returns nil: the error names the
// kinds. A panic of the caller's loop keeps its value.
func TestExtensionInspectPanicIsAnErrorOfTheList(t *testing.T) {
	const prefix = `class "` + string(fiberAgents) + `": `
	type list = iter.Seq2[dohost.Resource, error]
	one := func(yield func(dohost.Resource, error) bool) { yield(dohost.Resource{Kind: "thing", ID: "one"}, nil) }
	for want, inspect := range map[string]func() list{
		"dohost: " + prefix + `OnInspect: panic: Inspect of an extension with the kinds ["thing"]: bad`: func() list { panic("bad") },
		"agent: " + prefix + `Inspect of an extension with the kinds ["thing"] returned nil`:            func() list { return nil },
		"": func() list { return one },
	} {
		class := agent.Bind(fiberAgents, func(_ context.Context, a *agent.Agent[noState]) (*fiberAgent, error) { return &fiberAgent{a, nil}, nil }, nil,
			agent.Extend(agent.Extension[fiberAgent]{
				Kinds:   []string{"thing"},
				Inspect: func(context.Context, *dohost.Snapshot) list { return inspect() },
				Admin:   func(*fiberAgent, context.Context, *dohost.AdminRequest) (bool, error) { return false, nil },
			}))
		dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
			defer func() {
				if p := recover(); (p == "caller") != (want == "") {
					t.Errorf("the caller's panic is %v", p)
				}
			}()
			var got error
			for d, err := range h.Host().Details(t.Context(), dohost.ID{Class: string(fiberAgents), Name: "a"}) {
				if got = err; d.Kind == "thing" {
					panic("caller")
				}
			}
			if got == nil || got.Error() != want {
				t.Errorf("%v, want %q", got, want)
			}
			if p, ok := errors.AsType[*dohost.PanicError](got); ok && !strings.Contains(string(p.Stack), "extensionitems_test.go") {
				t.Errorf("the stack does not have the function:\n%s", p.Stack)
			}
		})
	}
}
