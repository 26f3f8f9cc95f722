package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

type guest struct{ Name, Table string }

var guests = dohost.Collection[guest]{
	Name:    "guests",
	Key:     func(g guest) string { return g.Name },
	Indexes: []dohost.Index[guest]{{Name: "table", Of: func(g guest) dohost.Key { return dohost.KeyOf(g.Table) }}},
}

type party struct{ st *dohost.State }

const parties dohost.Namespace[party] = "party"

func newParty(_ context.Context, st *dohost.State) (*party, error) { return &party{st}, nil }

func (p *party) invite(ctx context.Context, g guest) error {
	return guests.Put(ctx, p.st.Storage(), g)
}

// listGuests lists the guests for operators, with their tables.
func listGuests(_ context.Context, v *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
	return func(yield func(dohost.Resource, error) bool) {
		for row, err := range guests.Scan(v, &dohost.Query[guest]{Index: "table"}) {
			d := dohost.Resource{Kind: "guest", ID: row.Key, State: row.Value.Table, Can: []dohost.Action{dohost.ActionCancel}}
			if at, _ := v.Alarm(); row.Value.Table == "" && at.IsZero() {
				d.Fault = "nobody will find a table for them"
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// cancelInvitation cancels an invitation.
func (p *party) cancelInvitation(ctx context.Context, r *dohost.AdminRequest) (bool, error) {
	return guests.Delete(ctx, p.st.Storage(), r.ID)
}

// Operators list the items of a party without waking it, and send guests away.
func ExampleHandlers_onInspect() {
	withHost(func(ctx context.Context, h *dohost.Host) {
		birthday := parties.Get(h, "birthday")
		for _, g := range []guest{{"Ada", "window"}, {"Bob", "door"}} {
			if err := dohost.CallNoResult(ctx, birthday, (*party).invite, g); err != nil {
				log.Fatal(err)
			}
		}
		h.Evict(birthday.ID(), dohost.EndFence)
		for d, err := range h.Details(ctx, birthday.ID()) {
			fmt.Println(d.Kind, d.ID, d.State, d.Can, err)
		}
		fmt.Println("in memory:", h.IsLive(birthday.ID()))
		fmt.Println(h.Operate(ctx, birthday.ID(), &dohost.AdminRequest{Action: dohost.ActionCancel, Kind: "guest", ID: "Ada"}))
		fmt.Println(h.Operate(ctx, birthday.ID(), &dohost.AdminRequest{Action: dohost.ActionCancel, Kind: "guest", ID: "Ada"}))
	}, dohost.Bind(parties, newParty, &dohost.Handlers[party]{OnInspect: listGuests, OnAdmin: (*party).cancelInvitation}))
	// Output:
	// guest Bob door [cancel] <nil>
	// guest Ada window [cancel] <nil>
	// in memory: false
	// true <nil>
	// false <nil>
}

func TestOperateAndCheckStoreReportProblems(t *testing.T) {
	disk := objectstore.NewMemFS()
	h := openOn(t, disk, nil,
		dohost.Bind(parties, newParty, &dohost.Handlers[party]{OnInspect: listGuests}),
		dohost.Bind(mapObjects, func(context.Context, *dohost.State) (*mapObject, error) { return &mapObject{}, nil }, nil))
	for id, want := range map[dohost.ID]error{
		{Class: "holder", Name: "a"}: nil,
		{Class: "nobody", Name: "a"}: nil,
	} {
		var got error
		for _, err := range h.Details(t.Context(), id) {
			got = err
		}
		if !errors.Is(got, want) {
			t.Errorf("%v: %v, want %v", id, got, want)
		}
	}
	for id, want := range map[dohost.ID]error{
		{Class: "holder", Name: "a"}: runtime.ErrNoMethod,
		{Class: "party", Name: "a"}:  runtime.ErrNoMethod,
		{Class: "nobody", Name: "a"}: runtime.ErrNoClass,
	} {
		if done, err := h.Operate(t.Context(), id, &dohost.AdminRequest{Action: dohost.ActionCancel, Kind: "guest", ID: "x"}); done || !errors.Is(err, want) {
			t.Errorf("%v: %t, %v, want %v", id, done, err, want)
		}
	}
	if err := dohost.CallNoResult(t.Context(), parties.Get(h, "a"), (*party).invite, guest{Name: "Cy"}); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	var problems []string
	s, err := objectstore.Open("data", &objectstore.Options{FS: disk, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	stats, err := kernel.CheckStore(t.Context(), s, func(p dohost.CheckProblem) { problems = append(problems, p.String()) },
		[]dohost.Class{dohost.Bind(parties, newParty, &dohost.Handlers[party]{OnInspect: listGuests})})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if want := []string{`party/a: guest "Cy": nobody will find a table for them`}; !slices.Equal(problems, want) || stats.Problems != 1 {
		t.Errorf("%d problems: %q", stats.Problems, problems)
	}
}

// A caller that does not wait for the end of an operation shares no memory with it: for the race detector.
func TestOperateSharesNoMemoryWithACallerThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil, dohost.Bind(parties, newParty,
			&dohost.Handlers[party]{
				OnAdmin: func(_ *party, ctx context.Context, _ *dohost.AdminRequest) (bool, error) {
					time.Sleep(time.Second)
					return true, nil
				},
			}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		done, err := h.Operate(ctx, dohost.ID{Class: "party", Name: "a"}, &dohost.AdminRequest{Action: dohost.ActionCancel, Kind: "guest", ID: "x"})
		if done || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%t, %v", done, err)
		}
	})
}

// A Snapshot that is kept yields no rows.
func TestViewIsInvalidAfterItsSequenceEnds(t *testing.T) {
	var kept *dohost.Snapshot
	h := open(t, nil, dohost.Bind(parties, newParty, &dohost.Handlers[party]{
		OnInspect: func(ctx context.Context, v *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
			kept = v
			return listGuests(ctx, v)
		},
	}))
	id := parties.Get(h, "a").ID()
	if err := dohost.CallNoResult(t.Context(), parties.Get(h, "a"), (*party).invite, guest{Name: "Dee"}); err != nil {
		t.Fatal(err)
	}
	for _, err := range h.Details(t.Context(), id) {
		if err != nil {
			t.Error(err)
		}
	}
	var got error
	for _, err := range guests.Scan(kept, nil) {
		got = err
	}
	if !errors.Is(got, dohost.ErrFenced) {
		t.Error(got)
	}
}
