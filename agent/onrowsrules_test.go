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

// mailTree is an agent with sub-agents and rows that are work.
type mailTree struct{ *agent.Agent[struct{}] }

const mailTrees dohost.Namespace[mailTree] = "mailtree"

// TestOnRowsDeleteAllDuringParallelCalls reads the index again after DeleteAll.
func TestOnRowsDeleteAllDuringParallelCalls(t *testing.T) {
	o := &postOffice{options: &agent.RowsOptions{Parallel: 2}}
	o.deliver = func(p *postman, ctx context.Context, l letter) error {
		if l.Text == "slow" {
			return dohost.Sleep(ctx, time.Hour)
		}
		return p.done(ctx, l.ID)
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			return letters.Put(ctx, p.Storage(), letter{ID: "a", State: "pending", Text: "slow"})
		})
		h.Advance(time.Second)
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error { return p.Storage().DeleteAll(ctx) })
		if err := post(ctx, h, "a", "b"); err != nil {
			t.Fatal(err)
		}
		h.Advance(24 * time.Hour)
		wantCalls(t, o, "a", "b", "a")
		wantNothingLeft(t, ctx, h)
	})
}

// TestOnRowsRefusedInsert inserts a parked row again.
func TestOnRowsRefusedInsert(t *testing.T) {
	o := &postOffice{options: &agent.RowsOptions{Retry: dohost.RetryPolicy{MaxAttempts: 1}}}
	o.deliver = func(*postman, context.Context, letter) error { return errors.New("no such address") }
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "a"); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Second)
		wantCalls(t, o, "a")
		for range 3 {
			inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
				if err := letters.Insert(ctx, p.Storage(), letter{ID: "a", State: "pending"}); !errors.Is(err, dohost.ErrConflict) {
					t.Error(err)
				}
				return nil
			})
			h.Advance(time.Second)
		}
		wantCalls(t, o)
	})
}

// TestOnRowsDuringDestruction writes a row while the agent is being destroyed.
func TestOnRowsDuringDestruction(t *testing.T) {
	begun := 0
	class := agent.Bind(mailTrees, func(_ context.Context, a *agent.Agent[struct{}]) (*mailTree, error) { return &mailTree{a}, nil }, nil,
		agent.Sub[mailTree](mailTrees),
		agent.OnRows(&letters, "state", func(p *mailTree, ctx context.Context, row dohost.Row[letter]) error { begun++; return nil },
			&agent.RowsOptions{Prefix: dohost.KeyOf("pending")}))
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		ctx := t.Context()
		root := mailTrees.Get(h, "root")
		var child dohost.Stub[mailTree]
		err := root.Do(ctx, func(ctx context.Context, m *mailTree) (err error) {
			child, err = agent.SubAgent(ctx, m, mailTrees, "child")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_ = child.Do(ctx, func(ctx context.Context, m *mailTree) error {
				return dohost.Exclusive(ctx, func(ctx context.Context) error { return dohost.Sleep(ctx, 20*time.Second) })
			})
		}()
		h.Advance(time.Second)
		go func() { _ = root.Do(ctx, func(ctx context.Context, m *mailTree) error { return m.Destroy(ctx) }) }()
		h.Advance(time.Second)
		err = root.Do(ctx, func(ctx context.Context, m *mailTree) error {
			return letters.Put(ctx, m.Storage(), letter{ID: "a", State: "pending"})
		})
		if err != nil {
			t.Fatal(err)
		}
		from := len(h.Log())
		h.Advance(100 * time.Millisecond)
		if n := len(h.Log()) - from; n > 50_000 || begun > 0 {
			t.Errorf("%d bytes of log in 100 ms, %d calls", n, begun)
		}
	})
}

// TestOnRowsDeletedParkedRow deletes a parked row.
func TestOnRowsDeletedParkedRow(t *testing.T) {
	o := &postOffice{options: &agent.RowsOptions{Retry: dohost.RetryPolicy{MaxAttempts: 1}}}
	o.deliver = func(*postman, context.Context, letter) error { return errors.New("no such address") }
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "a"); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Second)
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			_, err := letters.Delete(ctx, p.Storage(), "a")
			return err
		})
		h.Advance(24 * time.Hour)
		h.EvictAll()
		wantNothingLeft(t, ctx, h)
	})
}

// TestOnRowsRepairedRow repairs a damaged row during the call of its batch.
func TestOnRowsRepairedRow(t *testing.T) {
	o := &postOffice{}
	o.batch = func(p *postman, ctx context.Context, ls []letter) error {
		err := dohost.Sleep(ctx, time.Minute)
		for _, l := range ls {
			err = errors.Join(err, p.done(ctx, l.ID))
		}
		return err
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			err := brokenLetters.Put(ctx, p.Storage(), brokenLetter{ID: "bad", State: "pending", Text: 7})
			return errors.Join(err, letters.Put(ctx, p.Storage(), letter{ID: "good", State: "pending"}))
		})
		h.Advance(10 * time.Second)
		if err := post(ctx, h, "bad"); err != nil { // repaired
			t.Fatal(err)
		}
		h.Advance(time.Hour)
		wantCalls(t, o, "good", "bad")
		wantNothingLeft(t, ctx, h)
	})
}

// TestOnRowsDamagedRowWithLongKey has a damaged row in a batch.
func TestOnRowsDamagedRowWithLongKey(t *testing.T) {
	o := &postOffice{}
	o.batch = func(p *postman, ctx context.Context, ls []letter) error { return p.done(ctx, ls[0].ID) }
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			err := brokenLetters.Put(ctx, p.Storage(), brokenLetter{ID: strings.Repeat("b", 1000), State: "pending", Text: 7})
			return errors.Join(err, letters.Put(ctx, p.Storage(), letter{ID: "good", State: "pending"}))
		})
		h.Advance(time.Hour)
		o.mu.Lock()
		n := len(o.reports)
		o.mu.Unlock()
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			tasks, err := p.Rows().List(ctx, nil)
			for _, x := range tasks {
				t.Logf("%s %.60q, %d reports, last %.300q", x.State, x.Keys, n, o.reports[n-1])
				if x.State != agent.RowsParked {
					t.Error("not parked")
				}
			}
			return err
		})
		wantCalls(t, o, "good")
	})
}

// TestOnRowsRefusedWrites makes writes of a collection with work that must fail, and must leave the row and its task.
func TestOnRowsRefusedWrites(t *testing.T) {
	o := &postOffice{deliver: func(*postman, context.Context, letter) error { return errors.New("the house is empty") }}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "a"); err != nil {
			t.Fatal(err)
		}
		unchanged := func(*letter) error { return nil }
		for name, write := range map[string]struct {
			want error
			do   func(ctx context.Context, s *dohost.Storage) error
		}{
			"delete of an old version": {dohost.ErrConflict, func(ctx context.Context, s *dohost.Storage) error { return letters.DeleteIf(ctx, s, "a", 7) }},
			"delete of an absent row":  {dohost.ErrNotFound, func(ctx context.Context, s *dohost.Storage) error { return letters.DeleteIf(ctx, s, "b", 1) }},
			"update of an old version": {dohost.ErrConflict, func(ctx context.Context, s *dohost.Storage) error {
				_, err := letters.UpdateIf(ctx, s, "a", 7, unchanged)
				return err
			}},
			"insert of a row that exists": {dohost.ErrConflict, func(ctx context.Context, s *dohost.Storage) error {
				return letters.Insert(ctx, s, letter{ID: "a"})
			}},
		} {
			inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
				if err := write.do(ctx, p.Storage()); !errors.Is(err, write.want) {
					t.Errorf("%s: %v", name, err)
				}
				row, ok, err := letters.Get(ctx, p.Storage(), "a")
				tasks, err2 := p.Rows().List(ctx, nil)
				if !ok || row.Value.State != "pending" || len(tasks) != 1 {
					t.Errorf("%s: the row is %+v, the tasks are %+v", name, row, tasks)
				}
				return errors.Join(err, err2)
			})
		}
	})
}
