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
)

// oneByOne takes the letters of a batch out of the index one after the other, a minute each.
func oneByOne(p *postman, ctx context.Context, ls []letter) error {
	for _, l := range ls {
		if err := errors.Join(p.done(ctx, l.ID), dohost.Sleep(ctx, time.Minute)); err != nil {
			return err
		}
	}
	return nil
}

// TestOnRowBatchProgress interrupts the call of a batch, or fails it, each time after one of 20 rows has left the index.
func TestOnRowBatchProgress(t *testing.T) {
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprintf("%02d", i))
	}
	fail := func(p *postman, ctx context.Context, ls []letter) error {
		return errors.Join(p.done(ctx, ls[0].ID), dohost.Sleep(ctx, time.Second), errors.New("the bag is torn"))
	}
	for name, c := range map[string]struct {
		method func(*postman, context.Context, []letter) error
		end    func(h *dohosttest.Host)
	}{
		"interruptions": {oneByOne, func(h *dohosttest.Host) { h.Advance(time.Second); h.Crash() }},
		"kills":         {oneByOne, func(h *dohosttest.Host) { h.Advance(time.Second); h.Kill() }},
		"errors":        {fail, func(h *dohosttest.Host) { h.Advance(10 * time.Second) }},
	} {
		t.Run(name, func(t *testing.T) {
			o := &postOffice{batch: c.method}
			runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				if err := post(ctx, h, ids...); err != nil {
					t.Fatal(err)
				}
				for range ids {
					c.end(h)
				}
				inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
					parked, err := p.Rows().List(ctx, &agent.RowsQuery{State: agent.RowsParked})
					if len(parked) > 0 {
						t.Errorf("parked: %+v", parked)
					}
					return err
				})
				if calls := o.took(); len(calls) < 10 {
					t.Errorf("%d calls", len(calls))
				}
				h.Advance(time.Hour)
				wantNothingLeft(t, ctx, h)
			})
		})
	}
}

// TestOnRowBatchWithoutProgress has a batch that ends its process after it has taken one row out of the index.
func TestOnRowBatchWithoutProgress(t *testing.T) {
	o := &postOffice{}
	o.batch = func(p *postman, ctx context.Context, ls []letter) error {
		if ls[0].ID == "a" {
			if err := p.done(ctx, "a"); err != nil {
				return err
			}
		}
		return dohost.Sleep(ctx, time.Hour)
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "a", "b", "c"); err != nil {
			t.Fatal(err)
		}
		for range 8 {
			h.Advance(time.Second)
			h.Kill()
		}
		h.Advance(time.Second)
		wantCalls(t, o, "a,b,c", "b,c", "b,c", "b,c", "b,c")
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			parked, err := p.Rows().List(ctx, &agent.RowsQuery{State: agent.RowsParked})
			if len(parked) != 1 || !slices.Equal(parked[0].Keys, []string{"b", "c"}) {
				t.Errorf("parked: %+v", parked)
			}
			return err
		})
	})
}

// TestOnRowBatchProgressAtEveryPoint compares the rows of tasks with those in the index, whenever the agent starts: a row leaves
// both in one batch, and so does a row that other code deletes and inserts again during the call.
func TestOnRowBatchProgressAtEveryPoint(t *testing.T) {
	var wrong []string
	o := &postOffice{batch: func(p *postman, ctx context.Context, ls []letter) error {
		for _, l := range ls {
			n, _, err := dohost.Get[int](ctx, p.Storage(), "receipt "+l.ID)
			err2 := dohost.Transaction(ctx, func(ctx context.Context) error {
				return errors.Join(dohost.Put(ctx, p.Storage(), "receipt "+l.ID, n+1), p.done(ctx, l.ID))
			})
			if err = errors.Join(err, err2); err != nil {
				return err
			}
			if err := dohost.Sleep(ctx, 300*time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	}}
	o.start = func(p *postman, ctx context.Context) error {
		tasks, err := p.Rows().List(ctx, nil)
		for _, task := range tasks {
			for _, key := range task.Keys {
				row, _, err2 := letters.Get(ctx, p.Storage(), key)
				if err = errors.Join(err, err2); err2 == nil && (row.Value.State != "pending" || task.State == agent.RowsParked) {
					wrong = append(wrong, fmt.Sprintf("%+v: %+v", task, row))
				}
			}
		}
		return err
	}
	s := o.scenario()
	s.Reset = func() { o.took(); wrong = nil }
	check := s.Check
	s.Check = func(ctx context.Context, h *dohosttest.Host) error {
		err := check(ctx, h)
		if len(wrong) > 0 {
			err = errors.Join(err, fmt.Errorf("tasks at a start of the agent: %q", wrong))
		}
		return err
	}
	dohosttest.EveryPoint(t, s)
}

// TestOnRowsReinsertedDuringCall deletes a row and inserts another one with its key, while the call for the first one runs. The
// call then fails, or is interrupted.
func TestOnRowsReinsertedDuringCall(t *testing.T) {
	for name, end := range map[string]func(h *dohosttest.Host){
		"error": func(h *dohosttest.Host) {},
		"crash": func(h *dohosttest.Host) { h.Crash() },
		"fence": func(h *dohosttest.Host) { h.Evict(dohost.ID{Class: "postman", Name: "a"}, dohost.EndFence) },
	} {
		for _, keys := range [][]string{{"a"}, {"a", "b"}} {
			for _, parallel := range []int{1, 2} {
				t.Run(fmt.Sprintf("%s/%q/%d", name, keys, parallel), func(t *testing.T) {
					testReinserted(t, end, parallel, keys)
				})
			}
		}
	}
}

func testReinserted(t *testing.T, end func(*dohosttest.Host), parallel int, keys []string) {
	positions := map[string]string{} // by the text of "a"
	o := &postOffice{options: &agent.RowsOptions{Parallel: parallel}}
	o.batch = func(p *postman, ctx context.Context, ls []letter) error {
		name := dohost.WorkPositionOf(ctx).Name()
		if at := slices.IndexFunc(ls, func(l letter) bool { return l.ID == "a" }); at >= 0 {
			positions[ls[at].Text] = name
			if ls[at].Text == "" {
				err := dohost.Sleep(ctx, time.Minute)
				_, err2 := letters.Update(ctx, p.Storage(), "a", func(*letter) error { return nil })
				return errors.Join(err, err2, errors.New("the bag is torn"))
			}
		}
		var err error
		for _, l := range ls {
			err = errors.Join(err, p.done(ctx, l.ID))
		}
		return err
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, keys...); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Second)
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			_, err := letters.Delete(ctx, p.Storage(), "a")
			return errors.Join(err, letters.Insert(ctx, p.Storage(), letter{ID: "a", State: "pending", Text: "new"}))
		})
		if err := post(ctx, h, "c"); err != nil { // another call, which reads the index until then
			t.Fatal(err)
		}
		h.Advance(time.Second)
		end(h)
		h.Advance(time.Hour)
		if len(positions) != 2 || positions[""] == positions["new"] {
			t.Errorf("positions: %q", positions)
		}
		wantNothingLeft(t, ctx, h)
	})
}

// TestOnRowsReinsertedByCall has a call during which other code, or the call of another row, takes its row out of the index or puts it
// into the index. The row is new work then, with another position, also if its call writes it before it fails. A row that only its own
// call puts back is not.
func TestOnRowsReinsertedByCall(t *testing.T) {
	for name, c := range map[string]struct {
		before, other, after string // writes of the row: "-" takes it out of the index, "+" puts it there or writes it
		positions            int
	}{
		"reinserted":               {"", "-+", "+", 2},
		"reinserted, and put back": {"", "-+", "-+", 2},
		"taken out":                {"", "-", "+", 2},
		"inserted":                 {"-", "+", "+", 2},
		"written":                  {"", "+", "+", 1},
		"written, and put back":    {"", "+", "-+", 1},
		"put back":                 {"-", "", "+", 1},
	} {
		for _, byCall := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/by a call %t", name, byCall), func(t *testing.T) {
				positions := map[string]bool{}
				o := &postOffice{options: &agent.RowsOptions{Parallel: 2}}
				o.deliver = func(p *postman, ctx context.Context, l letter) error {
					if l.ID == "b" {
						return errors.Join(p.write(ctx, c.other), p.done(ctx, "b"))
					}
					positions[dohost.WorkPositionOf(ctx).Name()] = true
					if l.Text == "new" {
						return p.done(ctx, "a")
					}
					return errors.Join(p.write(ctx, c.before), dohost.Sleep(ctx, time.Minute), p.write(ctx, c.after), errors.New("the bag is torn"))
				}
				runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
					if err := post(ctx, h, "a"); err != nil {
						t.Fatal(err)
					}
					h.Advance(time.Second)
					if byCall {
						if err := post(ctx, h, "b"); err != nil {
							t.Fatal(err)
						}
					} else {
						inPost(t, ctx, h, func(ctx context.Context, p *postman) error { return p.write(ctx, c.other) })
					}
					h.Advance(time.Hour)
					if len(positions) != c.positions {
						t.Errorf("the calls have the positions %v, want %d", positions, c.positions)
					}
					wantNothingLeft(t, ctx, h)
				})
			})
		}
	}
}

// write makes the writes of TestOnRowsReinsertedByCall.
func (p *postman) write(ctx context.Context, writes string) (err error) {
	for _, w := range writes {
		if w == '-' {
			err = errors.Join(err, p.done(ctx, "a"))
		} else {
			err = errors.Join(err, letters.Put(ctx, p.Storage(), letter{ID: "a", State: "pending", Text: "new"}))
		}
	}
	return err
}

// TestOnRowsLeavesBeforeCrash ends the process after a row has left the index, and inserts it again.
func TestOnRowsLeavesBeforeCrash(t *testing.T) {
	o := &postOffice{}
	var positions []string
	o.deliver = func(p *postman, ctx context.Context, l letter) error {
		positions = append(positions, dohost.WorkPositionOf(ctx).Name())
		return errors.Join(p.done(ctx, l.ID), dohost.Sleep(ctx, time.Hour))
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "a"); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Second)
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			tasks, err := p.Rows().List(ctx, nil)
			if len(tasks) > 0 {
				t.Errorf("tasks of a row that has left the index: %+v", tasks)
			}
			return err
		})
		h.Crash()
		if err := post(ctx, h, "a"); err != nil {
			t.Fatal(err)
		}
		h.Advance(2 * time.Hour)
		if len(positions) != 2 || positions[0] == positions[1] {
			t.Errorf("positions: %q", positions)
		}
		wantNothingLeft(t, ctx, h)
	})
}

// TestOnRowsPutsRowBack has a method that takes its row out of the index while it works on it, and puts it back before it fails.
func TestOnRowsPutsRowBack(t *testing.T) {
	for _, batch := range []bool{false, true} {
		t.Run(fmt.Sprintf("batch %t", batch), func(t *testing.T) {
			positions := map[string]bool{}
			o := &postOffice{options: &agent.RowsOptions{Retry: dohost.RetryPolicy{MaxAttempts: 3}}}
			o.deliver = func(p *postman, ctx context.Context, l letter) error {
				if len(o.calls) > 100 { // ends a loop
					return p.done(ctx, l.ID)
				}
				positions[dohost.WorkPositionOf(ctx).Name()] = true
				err := errors.Join(p.done(ctx, l.ID), dohost.Sleep(ctx, time.Millisecond))
				return errors.Join(err, letters.Put(ctx, p.Storage(), letter{ID: l.ID, State: "pending"}), errors.New("fails"))
			}
			ids, want := []string{"a"}, []string{"a", "a", "a"}
			if batch {
				o.batch = func(p *postman, ctx context.Context, ls []letter) error { return o.deliver(p, ctx, ls[0]) }
				ids, want = []string{"a", "b"}, []string{"a,b", "a,b", "a,b"}
			}
			runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				if err := post(ctx, h, ids...); err != nil {
					t.Fatal(err)
				}
				h.Advance(time.Hour)
				wantCalls(t, o, want...)
				inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
					parked, err := p.Rows().List(ctx, &agent.RowsQuery{State: agent.RowsParked})
					if len(parked) != 1 || parked[0].Attempt != 3 || len(positions) != 1 {
						t.Errorf("parked: %+v, positions %v", parked, positions)
					}
					return err
				})
			})
		})
	}
}

// TestOnRowBatchParksTwoDamagedRows has two rows of a batch that stop to decode one after the other, at the same place.
func TestOnRowBatchParksTwoDamagedRows(t *testing.T) {
	o := &postOffice{batch: func(*postman, context.Context, []letter) error { return errors.New("fails") }}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "a", "b", "c", "d"); err != nil {
			t.Fatal(err)
		}
		h.Advance(500 * time.Millisecond)
		for _, id := range []string{"b", "c"} {
			inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
				return brokenLetters.Put(ctx, p.Storage(), brokenLetter{ID: id, State: "pending"})
			})
			h.Advance(500 * time.Millisecond)
		}
		wantCalls(t, o, "a,b,c,d", "a,c,d", "a,d")
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			parked, err := p.Rows().List(ctx, &agent.RowsQuery{State: agent.RowsParked})
			if len(parked) != 2 || strings.Count(strings.Join(o.reports, "\n"), "rows:parked") != 2 {
				t.Errorf("parked: %+v, reports %q", parked, o.reports)
			}
			return err
		})
	})
}
