package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// details returns an object's details for operators, a line each, without ids and times.
func details(t *testing.T, h *dohost.Host, id dohost.ID) (lines []string, ids map[string]string) {
	t.Helper()
	ids = map[string]string{}
	for d, err := range h.Details(t.Context(), id) {
		if err != nil {
			t.Fatal(err)
		}
		var text []string
		for s := range strings.SplitSeq(d.Text, ", ") {
			if !strings.HasPrefix(s, "since ") && !strings.HasPrefix(s, "due ") {
				text = append(text, s)
			}
		}
		line := fmt.Sprintf("%s %s %s %v %s", d.Kind, d.State, strings.Join(text, ", "), d.Can, d.Fault)
		lines = append(lines, strings.TrimSpace(line))
		ids[d.Kind+" "+d.State] = d.ID
	}
	return lines, ids
}

func wantDetails(t *testing.T, h *dohost.Host, id dohost.ID, want ...string) {
	t.Helper()
	if got, _ := details(t, h, id); !slices.Equal(got, want) {
		t.Errorf("shown:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestDetailsOfFibersAndOperations(t *testing.T) {
	w := &fiberTest{
		run: func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
			if f.Checkpoint() < 0 {
				return errors.New("no such thing")
			}
			return sleep(ctx, time.Hour)
		},
		hook: func(*fiberAgent, context.Context, *agent.InterruptedRun) error { return errors.New("not now") },
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		id := fiberAgents.Get(h, "a").ID()
		start(t, h, -1, nil)
		unknown := h.Client(func(ctx context.Context) error {
			return fiberAgents.Get(h, "a").Do(ctx, func(ctx context.Context, w *fiberAgent) error {
				return agent.RunFiber(ctx, w, "lost", func(ctx context.Context) error { return sleep(ctx, time.Hour) })
			})
		})
		h.Advance(time.Second)
		evict(h)
		_ = unknown.Wait() // it was cut off
		h.Advance(time.Hour)
		start(t, h, 7, &agent.FiberOptions{Key: "k"})
		evict(h)
		if h.Host().IsLive(id) {
			t.Fatal("it is in memory")
		}
		const failed = `fiber failed "job", started, 4 attempts failed or interrupted, checkpoint of 2 bytes, "no such thing" [retry delete]`
		const dead = `fiber dead "lost", run, 5 attempts failed or interrupted, "not now" [retry delete]`
		const open = `fiber pending "job", started, key "k", checkpoint of 1 bytes [cancel]`
		wantDetails(t, h.Host(), id, failed, dead, open)
		if h.Host().IsLive(id) {
			t.Error("looking has woken it")
		}
		_, ids := details(t, h.Host(), id)
		operate := func(a dohost.Action, of string, want bool) {
			t.Helper()
			if done, err := h.Host().Operate(ctx, id, &dohost.AdminRequest{Action: a, Kind: "fiber", ID: ids[of]}); done != want || err != nil {
				t.Errorf("%s of %s: %t, %v", a, of, done, err)
			}
		}
		operate(dohost.ActionDelete, "fiber failed", true)
		operate(dohost.ActionDelete, "fiber failed", false)
		operate(dohost.ActionDelete, "fiber pending", false)
		operate(dohost.ActionRetry, "fiber dead", true)
		h.Advance(5 * time.Second)
		_, again := details(t, h.Host(), id)
		wantEqual(t, "what is dead", again["fiber dead"], "")
		operate(dohost.ActionCancel, "fiber dead", true)
		operate(dohost.ActionCancel, "fiber pending", true)
		operate(dohost.ActionRetry, "fiber pending", true)
		operate(dohost.ActionDelete, "fiber pending", false)
		operate(dohost.ActionCancel, "fiber pending", true)
		wantDetails(t, h.Host(), id, `fiber cancelled "job", started, key "k", checkpoint of 1 bytes [delete]`)
		operate(dohost.ActionDelete, "fiber pending", true)
		if at, set := alarm(t, h); set {
			t.Errorf("for nothing there is an alarm in %v", at)
		}
		for _, kind := range []string{"item", "egg"} {
			_, err := h.Host().Operate(ctx, id, &dohost.AdminRequest{Action: dohost.ActionRetry, Kind: kind, ID: "x"})
			if _, ok := errors.AsType[*dohost.ArgumentError](err); !ok {
				t.Error(err)
			}
		}
	})
}

func TestDetailsOfSchedulesAndQueue(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		id := callbackAgents.Get(b, "a").ID()
		once := &agent.QueueOptions{ID: "lost", Retry: dohost.RetryPolicy{MaxAttempts: 1}}
		enqueue(b, work, task{Name: "lost", Fails: 9}, once)
		b.Advance(time.Second)
		enqueue(b, work, task{Name: "long", Takes: time.Hour}, withID("long"))
		enqueue(b, appendLine, "later", withID("later"))
		schedule(b, agent.Every(time.Minute), appendLine, "tick", nil)
		schedule(b, agent.Cron("0 9 * * *", "UTC"), appendLine, "mail", nil)
		b.Advance(time.Second)
		wantDetails(t, b.Host.Host(), id,
			`schedule waiting "note", every 1m0s [cancel]`,
			`schedule waiting "note", at "0 9 * * *" in UTC [cancel]`,
			`item running "work" [cancel]`,
			`item waiting "note" [cancel]`,
			`dead-letter failed "work", "lost fails" [retry delete]`)
		_, ids := details(t, b.Host.Host(), id)
		for _, of := range []struct {
			a        dohost.Action
			kind, id string
		}{
			{dohost.ActionCancel, "schedule", ids["schedule waiting"]}, {dohost.ActionCancel, "item", "long"}, {dohost.ActionCancel, "item", "later"},
			{dohost.ActionRetry, "dead-letter", "lost"},
		} {
			if done, err := b.Host.Host().Operate(t.Context(), id, &dohost.AdminRequest{Action: of.a, Kind: of.kind, ID: of.id}); !done || err != nil {
				t.Errorf("%v: %t, %v", of, done, err)
			}
		}
		wantDetails(t, b.Host.Host(), id,
			`schedule waiting "note", every 1m0s [cancel]`,
			`item cancelled, and running "work" []`,
			`item waiting "work" [cancel]`)
		b.Advance(2 * time.Hour)
		if done, err := b.Host.Host().Operate(t.Context(), id, &dohost.AdminRequest{Action: dohost.ActionDelete, Kind: "dead-letter", ID: "lost"}); !done || err != nil {
			t.Error(done, err)
		}
		wantDetails(t, b.Host.Host(), id, `schedule waiting "note", every 1m0s [cancel]`)
	})
}

// A row without an alarm never runs again. The test deletes the alarm from outside, and reads the store as the
// check of a folder does.
func TestCheckReportsRowsWithoutAlarm(t *testing.T) {
	disk, w := objectstore.NewMemFS(), &fiberTest{}
	w.run = func(_ *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error { return sleep(ctx, time.Hour) }
	class := w.class(nil)
	for name, want := range map[string][]string{
		"as it is":         nil,
		"without an alarm": {`worker/a: fiber "ID": work is pending, but the agent has no alarm`},
		"late":             {`worker/a: fiber "ID": work is pending, but the agent's alarm is not delivered when the host starts`},
	} {
		h, err := dohost.Open("data", kernel.OnFS(&dohost.Options{Grace: -1}, disk), class)
		if err != nil {
			t.Fatal(err)
		}
		id := fiberAgents.Get(h, "a").ID()
		var s agent.Started
		err = fiberAgents.Get(h, "a").Do(t.Context(), func(ctx context.Context, w *fiberAgent) (err error) {
			s, err = agent.StartFiber(ctx, w, testKind, 0, &agent.FiberOptions{Key: "k"})
			return err
		})
		switch name {
		case "without an alarm":
			err = errors.Join(err, h.DeleteAlarm(t.Context(), id))
		case "late":
			err = errors.Join(err, h.SetAlarm(t.Context(), id, time.Now().Add(time.Hour)))
		}
		_ = h.Close() // it reports the fiber
		store, err2 := objectstore.Open("data", &objectstore.Options{FS: disk, ReadOnly: true})
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		var got []string
		stats, err := kernel.CheckStore(t.Context(), store, func(p dohost.CheckProblem) {
			got = append(got, strings.ReplaceAll(p.String(), s.ID, "ID"))
		}, []dohost.Class{class})
		if err := errors.Join(err, store.Close()); err != nil || !slices.Equal(got, want) || stats.Problems != int64(len(want)) {
			t.Errorf("%s: %v, %d problems: %q, want %q", name, err, stats.Problems, got, want)
		}
	}
}

// A sub-agent's detail names its object, so that operators can inspect it.
func TestDetailsOfSubAgentsNameTheirObjects(t *testing.T) {
	s := serveNested(t, nestedClass(nil))
	err := nestedAgents.Get(s, "oak/1").Do(t.Context(), func(ctx context.Context, oak *nestedAgent) error {
		branch, err := agent.SubAgent(ctx, oak, nestedAgents, "branch")
		if err != nil {
			return err
		}
		return branch.Do(ctx, func(ctx context.Context, b *nestedAgent) error {
			_, err := agent.SubAgent(ctx, b, nestedAgents, "twig 1")
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	id := nestedAgents.Get(s, "oak/1").ID()
	for _, want := range []string{"BigTree/branch", "BigTree/twig 1"} {
		var found bool
		for d, err := range s.Host.Details(t.Context(), id) {
			if err != nil {
				t.Fatal(err)
			}
			_, object, named := strings.Cut(d.Text, ", object ")
			if found = named && d.Kind == "sub-agent" && d.ID == want; !found {
				t.Fatalf("%v has %+v, want %s", id, d, want)
			}
			if id, err = dohost.ParseID(object); err != nil {
				t.Fatal(err)
			}
		}
		if !found {
			t.Fatalf("%v has no %s", id, want)
		}
	}
}
