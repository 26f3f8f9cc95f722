package randagent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/internal/randtest"
)

// entry is a row. While it has a family, it is work: a method of [agent.OnRows] or a related function gets it.
type entry struct {
	Key    string
	Family family
	Number int // of its last write
	End    int // selects the end of the call for it
	N      int
	Code   []Instr
}

// family names an OnRows. It is the first part of the index keys of its rows.
type family string

const (
	single  family = "single"  // OnRows
	batched family = "batched" // OnRowBatch
	grouped family = "grouped" // OnRowGroups
)

// families are the options of the families. The model uses them, too.
var families = map[family]agent.RowsOptions{
	single:  {Prefix: dohost.KeyOf(single), Parallel: 1, Batch: 1, Retry: dohost.RetryPolicy{MaxAttempts: 3, BaseDelay: time.Second, MaxDelay: time.Minute}},
	batched: {Prefix: dohost.KeyOf(batched), Parallel: 2, Batch: 2, Retry: dohost.RetryPolicy{MaxAttempts: 4, BaseDelay: 500 * time.Millisecond, MaxDelay: 800 * time.Millisecond}},
	grouped: {Prefix: dohost.KeyOf(grouped), Parallel: 1, Batch: 2, Retry: dohost.RetryPolicy{MaxAttempts: 5, BaseDelay: time.Second, MaxDelay: 5 * time.Second}},
}

const byFamily = "family"

var entries = dohost.Collection[entry]{
	Name: "entries",
	Key:  func(e entry) string { return e.Key },
	Indexes: []dohost.Index[entry]{{Name: byFamily, Of: func(e entry) dohost.Key {
		if e.Family == "" {
			return ""
		}
		return dohost.KeyOf(e.Family) + dohost.KeyOf(rank(e.Number))
	}}},
}

// rank is the place of a row in its family. Rows of one rank are in the order of their keys.
func rank(number int) int { return number % 3 }

// group is the group of a row.
func group(number int) string { return fmt.Sprint(number % 2) }

// rowEntries returns the entries of the class.
func rowEntries() []agent.Entry[machine] {
	method := func(f family) func(*machine, context.Context, []dohost.Row[entry]) error {
		return func(a *machine, ctx context.Context, rows []dohost.Row[entry]) error { return a.runRows(ctx, f, rows) }
	}
	one := func(a *machine, ctx context.Context, row dohost.Row[entry]) error {
		return a.runRows(ctx, single, []dohost.Row[entry]{row})
	}
	options := func(f family) *agent.RowsOptions { o := families[f]; return &o }
	return []agent.Entry[machine]{
		agent.OnRows(&entries, byFamily, one, options(single)),
		agent.OnRowBatch(&entries, byFamily, method(batched), options(batched)),
		agent.OnRowGroups(&entries, byFamily, func(e entry) string { return group(e.Number) }, method(grouped), options(grouped)),
	}
}

// row is a row in the model. One without a family is not in the index, or was deleted.
type row struct {
	Number   int
	Family   family
	Position string // of the last call for it
}

// rowWork is the rows of a call in the model, from the begin of the call until no row is left. It may wait for another
// call, or be parked.
type rowWork struct {
	ID     string
	Family family
	Keys   []string // in the order of the calls
	State  agent.RowsState
	Charges
	Next     [2]int64 // the bounds of the time of the next call, in milliseconds
	Run      int      // the newest incarnation that is known to have begun a call
	Begun    []string // the rows when it began
	Called   int      // the incarnation of the call of the method, which has not ended
	CalledAt int      // the attempts then
	Position string
}

// Charges are the attempts of rows.
type Charges struct {
	Attempt  int // that failed or were interrupted
	Failures int // of those that count
	Stalls   int // interruptions that count
}

// rowRun is a call that has begun in this incarnation. The agent has it in memory, too, so that a rollback keeps it.
type rowRun struct {
	id      string
	family  family
	keys    []string
	charges Charges         // when it began
	changed map[string]bool // the rows that code outside of such calls has written since
	renewed map[string]bool // the rows that other code, or another call, has taken out of the index or put into it since
	called  bool
	numbers map[string]int // of its rows, when the method was called
	suspect bool           // it was interrupted more than once
}

// rowRunKey is the context key of the rowRun whose method is running.
type rowRunKey struct{}

// workOf returns the rows of an id.
func (m *model) workOf(id string) *rowWork {
	i := slices.IndexFunc(m.Work, func(w *rowWork) bool { return w.ID == id })
	if i < 0 {
		return nil
	}
	return m.Work[i]
}

// workWith returns the rows of a call that has a row.
func (m *model) workWith(f family, key string) *rowWork {
	i := slices.IndexFunc(m.Work, func(w *rowWork) bool { return w.Family == f && slices.Contains(w.Keys, key) })
	if i < 0 {
		return nil
	}
	return m.Work[i]
}

func (m *model) removeWork(id string) {
	m.Work = slices.DeleteFunc(m.Work, func(w *rowWork) bool { return w.ID == id })
}

// dueRows returns the rows of a family that are in no work, in the order of the index.
func (m *model) dueRows(f family) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(m.Rows)) {
		if m.Rows[key].Family == f && m.workWith(f, key) == nil {
			keys = append(keys, key)
		}
	}
	slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(rank(m.Rows[a].Number), rank(m.Rows[b].Number)) })
	return keys
}

// divide divides due rows into the rows of calls.
func (m *model) divide(f family, keys []string) (batches [][]string) {
	last := map[string]int{}
	for _, key := range keys {
		of := ""
		if f == grouped {
			of = group(m.Rows[key].Number)
		}
		at, ok := last[of]
		if !ok || len(batches[at]) == families[f].Batch {
			at = len(batches)
			batches, last[of] = append(batches, nil), at
		}
		batches[at] = append(batches[at], key)
	}
	return batches
}

// reset makes rows due as if no call had failed.
func (w *rowWork) reset() {
	w.State, w.Charges, w.Next, w.Called = agent.RowsWaiting, Charges{}, [2]int64{}, 0
}

// changeRows executes an instruction for rows.
func (x *execution) changeRows(ctx context.Context, m *model, in Instr) error {
	if in.Op == RetryRows {
		w, ok := randtest.At(slices.DeleteFunc(slices.Clone(m.Work), func(w *rowWork) bool { return len(w.Keys) == 0 }), in.K)
		if !ok {
			return nil
		}
		existed, err := x.Rows().Retry(ctx, w.ID)
		if err != nil {
			return err
		}
		x.expect(in, w, existed, w.State != agent.RowsRunning)
		if existed {
			w.reset()
		}
		return x.save(ctx, m)
	}
	if in.Op == RemoveRow {
		if err := x.takeRow(ctx, m, rowKey(in.K+in.N), in.N%2 == 0); err != nil {
			return err
		}
		return x.save(ctx, m)
	}
	return x.putRows(ctx, m, in)
}

// putRows writes up to three rows. Some stay in their family, and some are deleted before.
func (x *execution) putRows(ctx context.Context, m *model, in Instr) error {
	number := m.number()
	for i := range 1 + in.N/10%3 {
		e := entry{Key: rowKey(in.K + i*(1+in.N%2)), Number: number + 2*i, End: in.N / 4 % ends, N: in.N, Code: in.Body}
		e.Family = [...]family{single, batched, grouped, batched}[in.N%4]
		if r := m.Rows[e.Key]; r != nil && r.Family != "" && in.K%2 == 1 {
			e.Family = r.Family
		}
		if in.N%3 == 0 {
			if err := x.takeRow(ctx, m, e.Key, true); err != nil {
				return err
			}
		}
		if err := entries.Put(ctx, x.Storage(), e); err != nil {
			return err
		}
		x.written(ctx, m, e.Key, e.Family, e.Number)
		m.Next = max(m.Next, e.Number)
	}
	return x.save(ctx, m)
}

func rowKey(k int) string { return fmt.Sprint("row ", k%6) }

// takeRow deletes a row, or takes it out of the index.
func (a *machine) takeRow(ctx context.Context, m *model, key string, remove bool) error {
	r := m.Rows[key]
	if r == nil || r.Family == "" {
		return nil
	}
	if remove {
		existed, err := entries.Delete(ctx, a.Storage(), key)
		if err != nil {
			return err
		}
		if !existed {
			a.w.Faultf("%s does not exist", key)
		}
	} else if _, err := entries.Update(ctx, a.Storage(), key, func(e *entry) error { e.Family = ""; return nil }); err != nil {
		return err
	}
	a.written(ctx, m, key, "", r.Number)
	return nil
}

// written changes the model after a write of a row.
func (a *machine) written(ctx context.Context, m *model, key string, to family, number int) {
	r := m.Rows[key]
	if r == nil {
		r = &row{}
		m.Rows[key] = r
	}
	from := r.Family
	r.Family, r.Number = to, number
	caller, _ := ctx.Value(rowRunKey{}).(*rowRun)
	for f := range families {
		if run := a.runOver(f, key); run != nil {
			if caller != run && (f == from) != (f == to) {
				run.renewed[key] = true
			}
			m.writtenDuring(run, caller, key, f == to)
			continue
		}
		w := m.workWith(f, key)
		switch {
		case w == nil:
		case f != to:
			if w.Keys = slices.DeleteFunc(w.Keys, func(k string) bool { return k == key }); len(w.Keys) == 0 {
				m.removeWork(w.ID)
			}
		case w.State != agent.RowsRunning && caller == nil:
			w.reset()
		}
	}
}

// runOver returns the call of this incarnation that has begun with a row.
func (a *machine) runOver(f family, key string) *rowRun {
	for _, run := range a.runs {
		if run.family == f && slices.Contains(run.keys, key) {
			return run
		}
	}
	return nil
}

// writtenDuring changes the model after a write of a row during a call for it. A row that the call itself takes out of the
// index is progress, unless the call puts it back. A renewed row is new work: if the call puts it back, it is due.
func (m *model) writtenDuring(run, caller *rowRun, key string, listed bool) {
	if caller == nil {
		run.changed[key] = true
	}
	w := m.workOf(run.id)
	if w == nil {
		return
	}
	in := slices.Contains(w.Keys, key)
	switch {
	case in && !listed:
		w.Keys = slices.DeleteFunc(w.Keys, func(k string) bool { return k == key })
		if caller == run && len(w.Keys) > 0 {
			w.Charges, w.CalledAt = Charges{}, 0
		}
	case !in && listed && caller == run && !run.renewed[key]:
		before := w.Keys
		w.Keys = slices.DeleteFunc(slices.Clone(run.keys), func(k string) bool { return k != key && !slices.Contains(before, k) })
		w.Charges, w.CalledAt = run.charges, run.charges.Attempt
	}
}

func (w *rowWork) String() string {
	return fmt.Sprintf("%s rows %q (%s, id %s, %+v, next %v)", w.Family, w.Keys, w.State, w.ID, w.Charges, w.Next)
}
