package simtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// doc is an object that is exported, imported under another name and deleted: keys, a
// collection with its index and feed, and the alarm.
type doc struct {
	st *dohost.State
	w  *runRecord
}

var docs dohost.Namespace[doc] = "doc"

const pages = 2

func (d *doc) fill(ctx context.Context, k int) (none, error) {
	s := d.st.Storage()
	filled, _, err := dohost.Get[int](ctx, s, "filled")
	if err != nil || filled >= k {
		return none{}, err
	}
	due := time.Now().Add(time.Hour)
	return none{}, errors.Join(
		dohost.PutMany(ctx, s, map[string]int64{"filled": int64(k), fmt.Sprintf("page/%d", k): int64(k), "due": due.Add(time.Millisecond - 1).UnixMilli()}),
		books.Insert(ctx, s, book{ID: fmt.Sprint(k), Pages: 10 * k}),
		d.st.SetAlarm(ctx, due))
}

func (d *doc) onAlarm(ctx context.Context, a dohost.AlarmInfo) error {
	delivered, _, err := dohost.Get[int](ctx, d.st.Storage(), "delivered")
	due, _, err2 := dohost.Get[int64](ctx, d.st.Storage(), "due")
	if err == nil && err2 == nil && !d.w.onTime(a.Scheduled.UnixMilli(), due) {
		d.w.faultf("the alarm of %v fires at %d, it was set for %d", d.st.ID(), a.Scheduled.UnixMilli(), due)
	}
	return errors.Join(err, err2, dohost.Put(ctx, d.st.Storage(), "delivered", delivered+1))
}

// clear deletes everything.
func (d *doc) clear(ctx context.Context, _ none) (none, error) {
	return none{}, d.st.Storage().DeleteAll(ctx)
}

// docContents is all of a doc.
type docContents struct {
	Keys  map[string]int64
	Rows  rows
	Feed  []entry
	Alarm bool
}

func (d *doc) contents(ctx context.Context, _ none) (h docContents, err error) {
	h.Keys = map[string]int64{}
	for it, err := range dohost.All[int64](ctx, d.st.Storage(), nil) {
		if err != nil {
			return h, err
		}
		h.Keys[it.Key] = it.Value
	}
	s := &collectionObject{d.st}
	if h.Rows, err = s.rows(ctx, none{}); err != nil {
		return h, err
	}
	if h.Feed, err = s.entries(ctx, dohost.Position{}); err != nil {
		return h, err
	}
	_, h.Alarm, err = d.st.GetAlarm(ctx)
	return h, err
}

// exportRun has the client's copy of the doc that it moves.
type exportRun struct {
	runRecord
	exported docContents
}

// retryOnHost repeats a client's operation on the host itself, while a process ends.
func retryOnHost(h *dohosttest.Host, do func(try int) error) error {
	for try := 1; ; try++ {
		err := do(try)
		if err == nil {
			return nil
		}
		if ended := errors.Is(err, dohost.ErrFenced) || errors.Is(err, dohost.ErrClosed); !ended || try == 5 {
			return fmt.Errorf("try %d: %v", try, err)
		}
		h.Advance(time.Second)
	}
}

func (m *exportRun) fill(ctx context.Context, h *dohosttest.Host, name string) error {
	for k := 1; k <= pages; k++ {
		if _, err := retryCall(ctx, docs.Get(h, name), (*doc).fill, k); err != nil {
			return err
		}
	}
	return nil
}

func (m *exportRun) run(ctx context.Context, h *dohosttest.Host) (err error) {
	if err := m.fill(ctx, h, "a"); err != nil {
		return err
	}
	if m.exported, err = retryCall(ctx, docs.Get(h, "a"), (*doc).contents, none{}); err != nil {
		return err
	}
	// Export and import have no points, so the points of this client interrupt them.
	other := h.Client(func(ctx context.Context) error { return m.fill(ctx, h, "c") })
	var export bytes.Buffer
	err = retryOnHost(h, func(int) error {
		export.Reset()
		return h.Host().Export(ctx, docs.Get(h, "a").ID(), &export)
	})
	if err != nil {
		return fmt.Errorf("export: %v", err)
	}
	err = retryOnHost(h, func(try int) error {
		err := h.Host().Import(ctx, docs.Get(h, "b").ID(), bytes.NewReader(export.Bytes()))
		if try > 1 && errors.Is(err, dohost.ErrConflict) {
			err = nil // an earlier try was committed after all
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("import: %v", err)
	}
	_, err = retryCall(ctx, docs.Get(h, "a"), (*doc).clear, none{})
	return errors.Join(err, other.Wait())
}

func (m *exportRun) check(ctx context.Context, h *dohosttest.Host) error {
	there, err := h.Host().Exists(ctx, docs.Get(h, "a").ID())
	b, err2 := dohost.Call(ctx, docs.Get(h, "b"), (*doc).contents, none{})
	c, err3 := dohost.Call(ctx, docs.Get(h, "c"), (*doc).contents, none{})
	want := m.exported
	want.Keys = map[string]int64{"filled": pages, "page/1": 1, "page/2": 2, "due": m.exported.Keys["due"], "delivered": 1}
	want.Alarm = false
	err = errors.Join(err, err2, err3, m.err(), differ("a", there, false), differ("b", b, want))
	want.Keys["due"] = c.Keys["due"]
	want.Feed = slices.Clone(want.Feed)
	for i := range want.Feed {
		if i < len(c.Feed) {
			want.Feed[i].At.Log = c.Feed[0].At.Log // the log differs
		}
	}
	return errors.Join(err, differ("c", c, want))
}

// newExport has an export, an import under another name and a DeleteAll.
func newExport() dohosttest.Scenario {
	m := new(exportRun)
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(docs, func(_ context.Context, st *dohost.State) (*doc, error) {
			return &doc{st, &m.runRecord}, nil
		}, &dohost.Handlers[doc]{OnAlarm: (*doc).onAlarm})},
		Options: dohost.Options{Listener: m.listener()},
		Places:  objectPlaces,
		Reset:   func() { m.reset(); m.exported = docContents{} },
		Run:     m.run,
		Check:   m.check,
	}
}
