package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/invariants"
)

// letter is a row whose index "state" is work while the state is "pending".
type letter struct {
	ID    string
	State string
	Text  string
}

// letters is the collection as the agents use it, and brokenLetters has another type for the same rows.
var (
	letters = dohost.Collection[letter]{
		Name: "letters",
		Key:  func(l letter) string { return l.ID },
		Indexes: []dohost.Index[letter]{{Name: "state", Of: func(l letter) dohost.Key {
			if l.State == "" {
				return ""
			}
			return dohost.KeyOf(l.State)
		}}},
	}
	brokenLetters = dohost.Collection[brokenLetter]{
		Name: "letters",
		Key:  func(l brokenLetter) string { return l.ID },
		Indexes: []dohost.Index[brokenLetter]{{Name: "state", Of: func(l brokenLetter) dohost.Key {
			return dohost.KeyOf(l.State)
		}}},
	}
)

type brokenLetter struct {
	ID    string
	State string
	Text  int
}

// postman delivers letters.
type postman struct {
	*agent.Agent[struct{}]
	office *postOffice
}

const postmen dohost.Namespace[postman] = "postman"

// postOffice is the record of all calls, outside of the agents. Its functions are the methods of the agents.
type postOffice struct {
	deliver func(p *postman, ctx context.Context, l letter) error
	batch   func(p *postman, ctx context.Context, ls []letter) error
	start   func(p *postman, ctx context.Context) error
	options *agent.RowsOptions

	mu      sync.Mutex
	calls   []string // the ids of the letters of each call
	reports []string
}

func (o *postOffice) record(ids ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = append(o.calls, strings.Join(ids, ","))
}

// took returns the calls so far, and forgets them.
func (o *postOffice) took() (calls []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	calls, o.calls = o.calls, nil
	return calls
}

// done takes a letter out of the index.
func (p *postman) done(ctx context.Context, id string) error {
	_, err := letters.Update(ctx, p.Storage(), id, func(l *letter) error {
		l.State = "sent"
		return nil
	})
	return err
}

func postClass(o *postOffice) dohost.Class {
	pending := agent.RowsOptions{Prefix: dohost.KeyOf("pending")}
	if o.options != nil {
		pending = *o.options
		pending.Prefix = dohost.KeyOf("pending")
	}
	entry := agent.OnRows(&letters, "state", func(p *postman, ctx context.Context, row dohost.Row[letter]) error {
		o.record(row.Key)
		if o.deliver == nil {
			return p.done(ctx, row.Key)
		}
		return o.deliver(p, ctx, row.Value)
	}, &pending)
	if o.batch != nil {
		entry = agent.OnRowBatch(&letters, "state", func(p *postman, ctx context.Context, rows []dohost.Row[letter]) error {
			var ids []string
			var ls []letter
			for _, row := range rows {
				ids, ls = append(ids, row.Key), append(ls, row.Value)
			}
			o.record(ids...)
			return o.batch(p, ctx, ls)
		}, &pending)
	}
	h := &agent.Handlers[postman, struct{}]{}
	if o.start != nil {
		h.OnStart = func(p *postman, ctx context.Context) error { return o.start(p, ctx) }
	}
	return agent.Bind(postmen, func(_ context.Context, a *agent.Agent[struct{}]) (*postman, error) {
		return &postman{a, o}, nil
	}, h, entry)
}

// runPost runs a host with the class of an office.
func runPost(t *testing.T, o *postOffice, run func(t *testing.T, ctx context.Context, h *dohosttest.Host)) {
	t.Helper()
	dohosttest.Run(t, &dohosttest.Options{
		Classes: []dohost.Class{postClass(o)},
		Options: dohost.Options{Listener: dohost.Listener{Service: func(_ dohost.ID, event string, attrs ...slog.Attr) {
			o.mu.Lock()
			defer o.mu.Unlock()
			for _, a := range attrs {
				if a.Key != "id" {
					event += " " + a.String()
				}
			}
			o.reports = append(o.reports, event)
		}}},
	}, func(t *testing.T, h *dohosttest.Host) { run(t, t.Context(), h) })
}

// post writes pending letters in one event.
func post(ctx context.Context, h *dohosttest.Host, ids ...string) error {
	return postmen.Get(h, "a").Do(ctx, func(ctx context.Context, p *postman) error {
		for _, id := range ids {
			if err := letters.Put(ctx, p.Storage(), letter{ID: id, State: "pending"}); err != nil {
				return err
			}
		}
		return nil
	})
}

// inPost reads from the agent.
func inPost(t *testing.T, ctx context.Context, h *dohosttest.Host, read func(ctx context.Context, p *postman) error) {
	t.Helper()
	if err := postmen.Get(h, "a").Do(ctx, read); err != nil {
		t.Fatal(err)
	}
}

// wantNothingLeft expects no pending letter, no task and no alarm.
func wantNothingLeft(t *testing.T, ctx context.Context, h *dohosttest.Host) {
	t.Helper()
	inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
		n, err := letters.Count(ctx, p.Storage(), &dohost.Query[letter]{Index: "state", Equal: dohost.KeyOf("pending")})
		tasks, err2 := p.Rows().List(ctx, nil)
		at, set, err3 := p.Object().GetAlarm(ctx)
		if n > 0 || len(tasks) > 0 || set {
			t.Errorf("%d letters are pending, the tasks are %+v, the alarm is at %v: %t", n, tasks, at, set)
		}
		return errors.Join(err, err2, err3)
	})
}

func wantCalls(t *testing.T, o *postOffice, want ...string) {
	t.Helper()
	if got := o.took(); !slices.Equal(got, want) {
		t.Errorf("the calls are %q, want %q", got, want)
	}
}

// TestOnRowsCallsInOrderOfIndex inserts rows by a plain call, and one in the constructor.
func TestOnRowsCallsInOrderOfIndex(t *testing.T) {
	o := &postOffice{}
	o.start = func(p *postman, ctx context.Context) error {
		n, err := letters.Count(ctx, p.Storage(), nil)
		if err != nil || n > 0 {
			return err
		}
		return letters.Put(ctx, p.Storage(), letter{ID: "first", State: "pending"})
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		inPost(t, ctx, h, func(context.Context, *postman) error { return nil })
		h.Advance(time.Second)
		wantCalls(t, o, "first")
		if err := post(ctx, h, "c", "a", "b"); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Second)
		wantCalls(t, o, "a", "b", "c")
		if err := post(ctx, h, "0"); err != nil { // before the rows that were read already
			t.Fatal(err)
		}
		h.Advance(time.Second)
		wantCalls(t, o, "0")
		wantNothingLeft(t, ctx, h)
	})
}

// TestOnRowsSurvivesCrash crashes the host between the insert and the call, and inserts nothing afterwards: the row itself
// wakes the agent.
func TestOnRowsSurvivesCrash(t *testing.T) {
	o := &postOffice{}
	slow := true
	o.deliver = func(p *postman, ctx context.Context, l letter) error {
		if slow {
			if err := dohost.Sleep(ctx, time.Hour); err != nil {
				return err
			}
		}
		return p.done(ctx, l.ID)
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "a", "b"); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Second)
		wantCalls(t, o, "a")
		h.Crash()
		slow = false
		h.Advance(time.Second)
		wantCalls(t, o, "a", "b")
		wantNothingLeft(t, ctx, h)
	})
}

// TestOnRowsRetriesAndParks has a row whose method fails, one that stays in the index, and one that is good.
func TestOnRowsRetriesAndParks(t *testing.T) {
	o := &postOffice{options: &agent.RowsOptions{Retry: dohost.RetryPolicy{MaxAttempts: 3}}}
	fail := true
	o.deliver = func(p *postman, ctx context.Context, l letter) error {
		switch {
		case l.ID == "bad" && fail:
			return errors.New("no such address")
		case l.ID == "kept" && fail:
			return nil
		}
		return p.done(ctx, l.ID)
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "bad", "good", "kept"); err != nil {
			t.Fatal(err)
		}
		h.Advance(500 * time.Millisecond)
		wantCalls(t, o, "bad", "good", "kept")
		h.Advance(time.Second)
		if got := o.took(); len(got) != 2 || got[0] == got[1] {
			t.Errorf("the calls are %q", got)
		}
		h.Advance(20 * time.Second)
		if got := o.took(); len(got) != 2 || got[0] == got[1] { // the jitter decides about the order
			t.Errorf("the calls are %q", got)
		}
		if err := post(ctx, h, "a"); err != nil { // before the parked rows in the index
			t.Fatal(err)
		}
		h.Advance(time.Second)
		wantCalls(t, o, "a")
		h.Advance(time.Hour)
		wantCalls(t, o)
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			parked, err := p.Rows().List(ctx, &agent.RowsQuery{State: agent.RowsParked})
			slices.SortFunc(parked, func(a, b agent.RowsInfo) int { return strings.Compare(a.Keys[0], b.Keys[0]) })
			if len(parked) != 2 || parked[0].Keys[0] != "bad" || parked[0].Attempt != 3 || parked[0].Error != "no such address" ||
				parked[1].Keys[0] != "kept" || !strings.Contains(parked[1].Error, "still in the index") {
				t.Errorf("parked: %+v", parked)
			}
			if _, set, err := p.Object().GetAlarm(ctx); set || err != nil {
				t.Errorf("parked rows have an alarm: %v", err)
			}
			return err
		})
		if n := len(slices.DeleteFunc(slices.Clone(o.reports), func(r string) bool { return !strings.HasPrefix(r, "rows:parked") })); n != 2 {
			t.Errorf("%d parked rows were reported: %q", n, o.reports)
		}
		fail = false
		id := ""
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			parked, err := p.Rows().List(ctx, &agent.RowsQuery{State: agent.RowsParked})
			id = parked[slices.IndexFunc(parked, func(r agent.RowsInfo) bool { return r.Keys[0] == "bad" })].ID
			ok, err2 := p.Rows().Retry(ctx, id)
			if !ok {
				t.Error("no rows to retry")
			}
			ok, err3 := p.Rows().Retry(ctx, "none")
			if ok {
				t.Error("a retry of rows that do not exist")
			}
			return errors.Join(err, err2, err3)
		})
		h.Advance(time.Second)
		wantCalls(t, o, "bad")
		if err := post(ctx, h, "kept"); err != nil { // a write makes it due again
			t.Fatal(err)
		}
		h.Advance(time.Second)
		wantCalls(t, o, "kept")
		wantNothingLeft(t, ctx, h)
	})
}

// TestOnRowsCallsAgainForChangedRow writes a row while its call runs.
func TestOnRowsCallsAgainForChangedRow(t *testing.T) {
	o := &postOffice{}
	o.deliver = func(p *postman, ctx context.Context, l letter) error {
		if err := dohost.Sleep(ctx, time.Minute); err != nil {
			return err
		}
		row, _, err := letters.Get(ctx, p.Storage(), l.ID)
		if err != nil || row.Value.Text != l.Text {
			return err // it has changed, and is still in the index
		}
		return p.done(ctx, l.ID)
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "a"); err != nil {
			t.Fatal(err)
		}
		h.Advance(10 * time.Second)
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			return letters.Put(ctx, p.Storage(), letter{ID: "a", State: "pending", Text: "changed"})
		})
		h.Advance(time.Minute)
		wantCalls(t, o, "a", "a")
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			tasks, err := p.Rows().List(ctx, nil)
			if len(tasks) != 1 || tasks[0].Attempt != 0 || tasks[0].State != agent.RowsRunning {
				t.Errorf("tasks: %+v", tasks)
			}
			return err
		})
		h.Advance(2 * time.Minute)
		wantCalls(t, o)
		wantNothingLeft(t, ctx, h)
	})
}

// TestOnRowBatch inserts three rows together and a fourth during the call.
func TestOnRowBatch(t *testing.T) {
	o := &postOffice{}
	o.batch = func(p *postman, ctx context.Context, ls []letter) error {
		if err := dohost.Sleep(ctx, time.Minute); err != nil {
			return err
		}
		var err error
		for _, l := range ls {
			err = errors.Join(err, p.done(ctx, l.ID))
		}
		return err
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "a", "b", "c"); err != nil {
			t.Fatal(err)
		}
		h.Advance(10 * time.Second)
		if err := post(ctx, h, "d"); err != nil {
			t.Fatal(err)
		}
		h.Advance(10 * time.Second)
		wantCalls(t, o, "a,b,c")
		h.Advance(time.Minute)
		wantCalls(t, o, "d")
		h.Advance(time.Minute)
		wantNothingLeft(t, ctx, h)
	})
}

// TestOnRowBatchKeepsItsRows fails a batch after it has finished one row. The rest stays together, without later rows.
func TestOnRowBatchKeepsItsRows(t *testing.T) {
	o := &postOffice{}
	fails := 2
	o.batch = func(p *postman, ctx context.Context, ls []letter) error {
		if err := p.done(ctx, ls[0].ID); err != nil {
			return err
		}
		if len(ls) > 1 && fails > 0 {
			fails--
			return errors.New("the bag is torn")
		}
		var err error
		for _, l := range ls[1:] {
			err = errors.Join(err, p.done(ctx, l.ID))
		}
		return err
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "a", "b", "c", "d"); err != nil {
			t.Fatal(err)
		}
		h.Advance(500 * time.Millisecond)
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			tasks, err := p.Rows().List(ctx, nil)
			if len(tasks) != 1 || !slices.Equal(tasks[0].Keys, []string{"b", "c", "d"}) || tasks[0].State != agent.RowsWaiting {
				t.Errorf("tasks: %+v", tasks)
			}
			return err
		})
		if err := post(ctx, h, "e"); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Minute)
		wantCalls(t, o, "a,b,c,d", "e", "b,c,d", "c,d")
		wantNothingLeft(t, ctx, h)
	})
}

// TestOnRowsInParallel runs at most as many calls as the class allows.
func TestOnRowsInParallel(t *testing.T) {
	o := &postOffice{options: &agent.RowsOptions{Parallel: 3}}
	running, most := 0, 0
	o.deliver = func(p *postman, ctx context.Context, l letter) error {
		running++
		most = max(most, running)
		err := dohost.Sleep(ctx, time.Minute)
		running--
		return errors.Join(err, p.done(ctx, l.ID))
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "a", "b", "c", "d", "e", "f", "g"); err != nil {
			t.Fatal(err)
		}
		h.Advance(150 * time.Second)
		if got := o.took(); most != 3 || len(got) != 7 {
			t.Errorf("%d calls at a time, %q", most, got)
		}
		h.Advance(time.Minute)
		wantNothingLeft(t, ctx, h)
	})
}

// TestOnRowsParksRowThatDoesNotDecode writes a row of another type with the same index.
func TestOnRowsParksRowThatDoesNotDecode(t *testing.T) {
	o := &postOffice{}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			err := brokenLetters.Put(ctx, p.Storage(), brokenLetter{ID: "bad", State: "pending", Text: 7})
			return errors.Join(err, letters.Put(ctx, p.Storage(), letter{ID: "good", State: "pending"}))
		})
		h.Advance(time.Second)
		wantCalls(t, o, "good")
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			parked, err := p.Rows().List(ctx, &agent.RowsQuery{State: agent.RowsParked})
			if len(parked) != 1 || parked[0].Keys[0] != "bad" || !strings.Contains(parked[0].Error, `collection "letters", row "bad"`) {
				t.Errorf("parked: %+v", parked)
			}
			return err
		})
		id := ""
		for range 2 { // a retry parks it again, in the same task
			inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
				parked, err := p.Rows().List(ctx, &agent.RowsQuery{State: agent.RowsParked})
				if len(parked) != 1 || id != "" && parked[0].ID != id {
					t.Fatalf("parked: %+v, want %s", parked, id)
				}
				id = parked[0].ID
				_, err2 := p.Rows().Retry(ctx, parked[0].ID)
				return errors.Join(err, err2)
			})
			h.Advance(time.Second)
		}
		if err := post(ctx, h, "bad"); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Second)
		wantCalls(t, o, "bad")
		wantNothingLeft(t, ctx, h)
	})
}

// TestOnRowsManyPending has many pending rows, and few calls at a time.
func TestOnRowsManyPending(t *testing.T) {
	n := 3_000
	if invariants.Enabled { // the race detector
		n = 1_000
	}
	o := &postOffice{options: &agent.RowsOptions{Parallel: 10}}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		for from := 0; from < n; from += 1000 {
			var ids []string
			for i := range 1000 {
				ids = append(ids, fmt.Sprintf("%05d", from+i))
			}
			if err := post(ctx, h, ids...); err != nil {
				t.Fatal(err)
			}
		}
		h.Advance(time.Minute)
		got := o.took()
		slices.Sort(got)
		if got = slices.Compact(got); len(got) != n {
			t.Errorf("%d of %d rows", len(got), n)
		}
		wantNothingLeft(t, ctx, h)
	})
}

// TestOnRowsOfRolledBackWrites rolls back a write that had reset the position in the index.
func TestOnRowsOfRolledBackWrites(t *testing.T) {
	o := &postOffice{}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			failed := errors.New("rolled back")
			err := dohost.Transaction(ctx, func(ctx context.Context) error {
				return errors.Join(failed, letters.Put(ctx, p.Storage(), letter{ID: "a", State: "pending"}))
			})
			if !errors.Is(err, failed) {
				t.Error(err)
			}
			if _, set, _ := p.Object().GetAlarm(ctx); set {
				t.Error("a rolled back row has set the alarm")
			}
			return nil
		})
		h.Advance(time.Second)
		wantCalls(t, o)
		if err := post(ctx, h, "a"); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Second)
		wantCalls(t, o, "a")
		wantNothingLeft(t, ctx, h)
	})
}

// TestOnRowsNameLimit opens hosts with prefixes that make the name of the index as long as allowed, and longer.
func TestOnRowsNameLimit(t *testing.T) {
	const limit = 800
	name := func(n int) int { return len("letters/state/") + len(strconv.Quote(strings.Repeat("x", n))) }
	for n, ok := range map[int]bool{limit - name(0): true, limit - name(0) + 1: false} {
		class := agent.Bind(postmen, func(_ context.Context, a *agent.Agent[struct{}]) (*postman, error) { return &postman{a, nil}, nil }, nil,
			agent.OnRows(&letters, "state", func(*postman, context.Context, dohost.Row[letter]) error { return nil },
				&agent.RowsOptions{Prefix: dohost.Key(strings.Repeat("x", n))}))
		host, err := dohost.Open(t.TempDir(), nil, class)
		if err == nil {
			_ = host.Close()
		}
		if (err == nil) != ok {
			t.Errorf("a name of %d bytes: %.300v", name(n), err)
		}
	}
}

// TestOnRowsRefusals opens hosts with mistakes.
func TestOnRowsRefusals(t *testing.T) {
	method := func(*postman, context.Context, dohost.Row[letter]) error { return nil }
	pending := func(o agent.RowsOptions) *agent.RowsOptions {
		o.Prefix = dohost.KeyOf("pending")
		return &o
	}
	for want, entries := range map[string][]agent.Entry[postman]{
		`it has no index "other"`:             {agent.OnRows(&letters, "other", method, nil)},
		"without a collection or a method":    {agent.OnRows[postman, letter](&letters, "state", nil, nil)},
		"whose rows overlap":                  {agent.OnRows(&letters, "state", method, pending(agent.RowsOptions{})), agent.OnRows(&letters, "state", method, nil)},
		"Parallel is 1001: want 1 to 1,000":   {agent.OnRows(&letters, "state", method, pending(agent.RowsOptions{Parallel: 1001}))},
		"Retry.MaxElapsed is 1m0s: want zero": {agent.OnRows(&letters, "state", method, pending(agent.RowsOptions{Retry: dohost.RetryPolicy{MaxElapsed: time.Minute}}))},
		"Batch is 501: want 1 to 500":         {agent.OnRowBatch(&letters, "state", func(*postman, context.Context, []dohost.Row[letter]) error { return nil }, &agent.RowsOptions{Batch: 501})},
		"Retry.ShouldRetry is set: want nil":  {agent.OnRows(&letters, "state", method, &agent.RowsOptions{Retry: dohost.RetryPolicy{ShouldRetry: dohost.RetryAnyError}})},
	} {
		class := agent.Bind(postmen, func(_ context.Context, a *agent.Agent[struct{}]) (*postman, error) { return &postman{a, nil}, nil }, nil, entries...)
		host, err := dohost.Open(t.TempDir(), nil, class)
		if err == nil {
			_ = host.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
