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

// groupedClass returns a class whose calls get the letters with one first rune of their text.
func groupedClass(o *postOffice, batch int, m func(p *postman, ctx context.Context, rows []dohost.Row[letter]) error) dohost.Class {
	options := &agent.RowsOptions{Prefix: dohost.KeyOf("pending"), Batch: batch}
	group := func(l letter) string { return l.Text[:1] }
	return agent.Bind(postmen, func(_ context.Context, a *agent.Agent[struct{}]) (*postman, error) { return &postman{a, o}, nil }, nil,
		agent.OnRowGroups(&letters, "state", group, func(p *postman, ctx context.Context, rows []dohost.Row[letter]) error {
			var ids []string
			for _, row := range rows {
				ids = append(ids, row.Key)
			}
			o.record(ids...)
			return m(p, ctx, rows)
		}, options))
}

// insertLetters inserts pending letters in one event, each as "id:text".
func insertLetters(t *testing.T, h *dohosttest.Host, list ...string) {
	t.Helper()
	err := postmen.Get(h, "a").Do(t.Context(), func(ctx context.Context, p *postman) error {
		var err error
		for _, l := range list {
			id, text, _ := strings.Cut(l, ":")
			err = errors.Join(err, letters.Put(ctx, p.Storage(), letter{ID: id, State: "pending", Text: text}))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func deliverAll(p *postman, ctx context.Context, rows []dohost.Row[letter]) error {
	if err := dohost.Sleep(ctx, time.Second); err != nil {
		return err
	}
	var err error
	for _, row := range rows {
		err = errors.Join(err, p.done(ctx, row.Key))
	}
	return err
}

func TestOnRowGroups(t *testing.T) {
	o := &postOffice{}
	class := groupedClass(o, 3, deliverAll)
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		insertLetters(t, h, "1:a", "2:b", "3:a", "4:c", "5:a", "6:a", "7:b")
		h.Advance(500 * time.Millisecond)
		insertLetters(t, h, "4:b", "8:c") // 4 changes its group before its call
		h.Advance(time.Minute)
		if got := strings.Join(o.took(), " "); got != "1,3,5 2,4,7 6 8" {
			t.Errorf("calls: %s", got)
		}
	})
}

// TestOnRowGroupsAreIndependent has a group whose method panics, one that fails, and a row that does not decode.
func TestOnRowGroupsAreIndependent(t *testing.T) {
	o := &postOffice{}
	class := groupedClass(o, 0, func(p *postman, ctx context.Context, rows []dohost.Row[letter]) error {
		switch rows[0].Value.Text {
		case "a":
			panic("no letters for a")
		case "b":
			return errors.New("no letters for b")
		}
		return deliverAll(p, ctx, rows)
	})
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		err := postmen.Get(h, "a").Do(t.Context(), func(ctx context.Context, p *postman) error {
			return brokenLetters.Insert(ctx, p.Storage(), brokenLetter{ID: "0", State: "pending", Text: 7})
		})
		if err != nil {
			t.Fatal(err)
		}
		insertLetters(t, h, "1:a", "2:b", "3:c", "4:a", "5:b", "6:c")
		h.Advance(time.Hour)
		err = postmen.Get(h, "a").Do(t.Context(), func(ctx context.Context, p *postman) error {
			parked, err := p.Rows().List(ctx, &agent.RowsQuery{State: agent.RowsParked})
			var keys []string
			for _, task := range parked {
				keys = append(keys, strings.Join(task.Keys, ","))
			}
			if got := strings.Join(keys, " "); len(parked) != 3 || !strings.Contains(got, "1,4") || !strings.Contains(got, "2,5") || !strings.Contains(got, "0") {
				t.Errorf("parked: %s", got)
			}
			sent, err2 := letters.Count(ctx, p.Storage(), &dohost.Query[letter]{Index: "state", Equal: dohost.KeyOf("sent")})
			if sent != 2 {
				t.Errorf("%d letters are sent", sent)
			}
			return errors.Join(err, err2)
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestOnRowGroupsWithMovedRow changes the group of a row while its task waits for a retry.
func TestOnRowGroupsWithMovedRow(t *testing.T) {
	o := &postOffice{}
	class := groupedClass(o, 0, func(p *postman, ctx context.Context, rows []dohost.Row[letter]) error {
		if rows[0].Value.Text == "a" && len(rows) > 2 {
			return errors.New("too many letters")
		}
		return deliverAll(p, ctx, rows)
	})
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		insertLetters(t, h, "1:a", "2:a", "3:a")
		h.Advance(500 * time.Millisecond)
		insertLetters(t, h, "2:b")
		h.Advance(time.Minute)
		if got := strings.Join(o.took(), " "); got != "1,2,3 1,3 2" {
			t.Errorf("calls: %s", got)
		}
		err := postmen.Get(h, "a").Do(t.Context(), func(ctx context.Context, p *postman) error {
			tasks, err := p.Rows().List(ctx, nil)
			if len(tasks) > 0 {
				t.Errorf("%+v", tasks)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestOnRowGroupsWithoutGroup(t *testing.T) {
	class := agent.Bind(postmen, func(_ context.Context, a *agent.Agent[struct{}]) (*postman, error) { return &postman{a, nil}, nil }, nil,
		agent.OnRowGroups(&letters, "state", nil, deliverAll, nil))
	if h, err := dohost.Open(t.TempDir(), nil, class); err == nil || !strings.Contains(err.Error(), "without a group function") {
		t.Errorf("%v, %v", h, err)
	}
}
