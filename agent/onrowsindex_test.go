package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

const tick agent.Callback[string] = "tick"

// job is a row of two indexes.
type job struct {
	ID           string
	Sent, Billed bool
	Error        string
}

var jobRows = dohost.Collection[job]{
	Name: "jobs",
	Key:  func(j job) string { return j.ID },
	Indexes: []dohost.Index[job]{
		{Name: "unsent", Of: func(j job) dohost.Key {
			if j.Sent {
				return ""
			}
			return dohost.KeyOf(j.ID)
		}},
		{Name: "unbilled", Of: func(j job) dohost.Key {
			if j.Billed {
				return ""
			}
			return dohost.KeyOf(j.ID)
		}},
	},
}

// TestOnRowsLongKeyIsCalled has a row with a long key, and a schedule too.
func TestOnRowsLongKeyIsCalled(t *testing.T) {
	o := &postOffice{}
	class := agent.Bind(postmen, func(_ context.Context, a *agent.Agent[struct{}]) (*postman, error) { return &postman{a, o}, nil }, nil,
		agent.OnSchedule(tick, func(*postman, context.Context, string) error { o.record("tick"); return nil }),
		agent.OnRows(&letters, "state", func(p *postman, ctx context.Context, row dohost.Row[letter]) error { return p.done(ctx, row.Key) },
			&agent.RowsOptions{Prefix: dohost.KeyOf("pending")}))
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		inPost(t, t.Context(), h, func(ctx context.Context, p *postman) error {
			_, err := agent.Schedule(ctx, p, agent.Every(time.Hour), tick, "", nil)
			return err
		})
		if err := post(t.Context(), h, strings.Repeat("a", 1950)); err != nil {
			t.Fatal(err)
		}
		h.Advance(24*time.Hour + time.Minute)
		if n := len(o.took()); n < 24 {
			t.Errorf("%d of 24 runs of the schedule", n)
		}
	})
}

// TestOnRowsPositionOfNewRow deletes a parked row, and inserts one with its key.
func TestOnRowsPositionOfNewRow(t *testing.T) {
	o := &postOffice{}
	var names []string
	o.deliver = func(p *postman, ctx context.Context, l letter) error {
		names = append(names, dohost.WorkPositionOf(ctx).Name())
		if l.Text == "" {
			return errors.New("fails")
		}
		return p.done(ctx, l.ID)
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "a"); err != nil {
			t.Fatal(err)
		}
		h.Advance(100 * time.Millisecond)
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			_, err := letters.Delete(ctx, p.Storage(), "a")
			return err
		})
		h.Advance(100 * time.Millisecond)
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			return letters.Insert(ctx, p.Storage(), letter{ID: "a", State: "pending", Text: "another letter"})
		})
		h.Advance(time.Minute)
		if len(names) != 2 || names[0] == names[1] {
			t.Errorf("positions: %q", names)
		}
	})
}

// TestOnRowsChangedIndex has a stored place of a row that the next version of the class does not return.
func TestOnRowsChangedIndex(t *testing.T) {
	o := &postOffice{}
	evals := 0
	strict := letters // the same collection in the next version of the program: it excludes letters without a text
	strict.Indexes = []dohost.Index[letter]{{Name: "state", Of: func(l letter) dohost.Key {
		if evals++; l.Text == "" && evals < 5000 { // the bound ends the loop
			return ""
		}
		return dohost.KeyOf(l.State)
	}}}
	class := agent.Bind(postmen, func(_ context.Context, a *agent.Agent[struct{}]) (*postman, error) { return &postman{a, o}, nil }, nil,
		agent.OnRows(&strict, "state", func(p *postman, ctx context.Context, row dohost.Row[letter]) error {
			_, err := letters.Delete(ctx, p.Storage(), row.Key)
			return err
		}, &agent.RowsOptions{Prefix: dohost.KeyOf("pending")}))
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		o.deliver = func(p *postman, ctx context.Context, l letter) error { return dohost.Sleep(ctx, time.Hour) }
		if err := post(ctx, h, "a"); err != nil {
			t.Fatal(err)
		}
		if err := h.Restart(class); err != nil {
			t.Error(err)
		}
		h.Advance(time.Second)
		if evals > 20 {
			t.Errorf("the row was read %d times in 1 s", evals)
		}
	})
}

// TestOnRowsAddedToClass adds OnRows to a class whose agent has an alarm for a schedule.
func TestOnRowsAddedToClass(t *testing.T) {
	o := &postOffice{}
	newObject := func(_ context.Context, a *agent.Agent[struct{}]) (*postman, error) { return &postman{a, o}, nil }
	onTick := agent.OnSchedule(tick, func(*postman, context.Context, string) error { return nil })
	deliver := agent.OnRows(&letters, "state", func(p *postman, ctx context.Context, row dohost.Row[letter]) error {
		o.record(row.Key)
		return p.done(ctx, row.Key)
	}, &agent.RowsOptions{Prefix: dohost.KeyOf("pending")})
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{agent.Bind(postmen, newObject, nil, onTick)}},
		func(t *testing.T, h *dohosttest.Host) {
			ctx := t.Context()
			if err := post(ctx, h, "a"); err != nil {
				t.Fatal(err)
			}
			inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
				_, err := agent.Schedule(ctx, p, agent.After(30*24*time.Hour), tick, "", nil)
				return err
			})
			if err := h.Restart(agent.Bind(postmen, newObject, nil, onTick, deliver)); err != nil {
				t.Error(err)
			}
			for range 3 { // events of the object
				inPost(t, ctx, h, func(context.Context, *postman) error { return nil })
				h.Advance(24 * time.Hour)
			}
			wantCalls(t, o, "a")
		})
}

// TestOnRowsTwoIndexes has two methods that fail and write the same row.
func TestOnRowsTwoIndexes(t *testing.T) {
	o := &postOffice{}
	calls := 0
	method := func(p *postman, ctx context.Context, row dohost.Row[job]) error {
		if calls++; calls > 5000 { // ends the loop
			_, err := jobRows.Delete(ctx, p.Storage(), row.Key)
			return err
		}
		failed := errors.New("the service is down")
		_, err := jobRows.Update(ctx, p.Storage(), row.Key, func(j *job) error { j.Error = failed.Error(); return nil })
		return errors.Join(err, failed)
	}
	class := agent.Bind(postmen, func(_ context.Context, a *agent.Agent[struct{}]) (*postman, error) { return &postman{a, o}, nil }, nil,
		agent.OnRows(&jobRows, "unsent", method, nil), agent.OnRows(&jobRows, "unbilled", method, nil))
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		inPost(t, t.Context(), h, func(ctx context.Context, p *postman) error {
			return jobRows.Insert(ctx, p.Storage(), job{ID: "a"})
		})
		h.Advance(time.Second)
		if calls > 4 {
			t.Errorf("%d calls in 1 s, want 2 to 4", calls)
		}
	})
}

// TestOnRowsDeleteAllDuringCall inserts the row of a running call again after DeleteAll.
func TestOnRowsDeleteAllDuringCall(t *testing.T) {
	o := &postOffice{}
	slow := true
	o.deliver = func(p *postman, ctx context.Context, l letter) error {
		if slow {
			return dohost.Sleep(ctx, time.Hour)
		}
		return p.done(ctx, l.ID)
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "a"); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Second)
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error { return p.Storage().DeleteAll(ctx) })
		if err := post(ctx, h, "a"); err != nil {
			t.Fatal(err)
		}
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			if _, set, err := p.Object().GetAlarm(ctx); !set || err != nil {
				t.Error("a pending row without an alarm", err)
			}
			return nil
		})
		h.Crash()
		slow = false
		o.took()
		h.Advance(24 * time.Hour)
		wantCalls(t, o, "a")
	})
}
