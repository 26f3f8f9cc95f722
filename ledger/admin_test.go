package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// details returns the operations of an order that operators see.
func details(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) (all []dohost.Resource) {
	t.Helper()
	for r, err := range h.Host().Details(t.Context(), o.ID()) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind != ledger.ResourceOutcomes {
			all = append(all, r)
		}
	}
	return all
}

func TestOperatorSeesAndResolvesOperations(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.after = failures(2, errTimeout)
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		var ids []string
		for _, scope := range []string{"a", "b", "c"} {
			_, err := dohost.Call(t.Context(), o, (*order).payIn, scope)
			if scope != "c" {
				ids = append(ids, string(unknownID(t, err)))
			} else if err != nil {
				t.Fatal(err)
			}
			h.Advance(1e9)
		}
		h.EvictAll()
		all := details(t, h, o)
		if h.Host().IsLive(o.ID()) {
			t.Error("Details has woken the object")
		}
		if len(all) != 3 || all[0].ID != ids[0] || all[1].ID != ids[1] || all[2].State != "completed" || all[2].Can != nil {
			t.Fatalf("the items are %+v", all)
		}
		want := dohost.Resource{
			Kind: "operation", ID: ids[0], State: "unknown", Can: []dohost.Action{dohost.ActionDone, dohost.ActionNotDone},
			Text: `"charge" {"Order":"7","Cents":4200}, begun 2000-01-01T00:00:00Z, scope a, "timeout"`,
			Fields: map[string]string{
				"kind": "charge", "args": `{"Order":"7","Cents":4200}`, "since": "2000-01-01T00:00:00Z", "scope": "a", "error": "timeout",
			},
		}
		if got := fmt.Sprintf("%+v", all[0]); got != fmt.Sprintf("%+v", want) {
			t.Errorf("the item is %s, want %+v", got, want)
		}
		if last := all[2].Text; !strings.HasSuffix(last, `, scope c, result "`+receipt(ledger.ID(all[2].ID))+`"`) {
			t.Errorf("the completed item is %q", last)
		}
		if of := all[2].Fields; of["result"] != `"`+receipt(ledger.ID(all[2].ID))+`"` || of["error"] != "" {
			t.Errorf("the fields of the completed item are %q", of)
		}

		operate := func(a dohost.Action, kind, id, result string) (bool, error) {
			r := &dohost.AdminRequest{Action: a, Kind: kind, ID: id}
			if result != "" {
				r.Result = json.RawMessage(result)
			}
			return h.Host().Operate(t.Context(), o.ID(), r)
		}
		for _, test := range []struct {
			action           dohost.Action
			kind, id, result string
			want             string // of the error
		}{
			{dohost.ActionDone, "operation", "op_other", `"x"`, ""},
			{dohost.ActionCancel, "operation", ids[0], "", "operations do not allow the action cancel"},
			{dohost.ActionDone, "operation", ids[0], "1", `the result does not suit the kind "charge": json: cannot unmarshal number`},
			{dohost.ActionDone, "operation", ids[0], "", `the result does not suit the kind "charge": EOF`},
			{dohost.ActionDone, "operation", all[2].ID, `"x"`, "the operation has ended"},
			{dohost.ActionDone, "fiber", ids[0], `"x"`, `the object has no items of kind "fiber"`},
		} {
			done, err := operate(test.action, test.kind, test.id, test.result)
			if _, bad := errors.AsType[*dohost.ArgumentError](err); done || bad != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s of %s %s with %s: %v, %v; want %q", test.action, test.kind, test.id, test.result, done, err, test.want)
			}
		}
		if done, err := operate(dohost.ActionDone, "operation", ids[0], `"r_1"`); !done || err != nil {
			t.Errorf("done: %v, %v", done, err)
		}
		if done, err := operate(dohost.ActionNotDone, "operation", ids[1], ""); !done || err != nil {
			t.Errorf("not done: %v, %v", done, err)
		}
		if got, err := dohost.Call(t.Context(), o, (*order).payIn, "a"); err != nil || got != "r_1" || len(s.calls()) != 3 {
			t.Errorf("after done: %q, %v, %d calls", got, err, len(s.calls()))
		}
		if got, err := dohost.Call(t.Context(), o, (*order).payIn, "b"); err != nil || got != receipt(ledger.ID(ids[1])) || len(s.calls()) != 4 {
			t.Errorf("after not done: %q, %v, %d calls", got, err, len(s.calls()))
		}
	})
}

// TestOperatorSeesRunningOperation inspects an operation during its call.
func TestOperatorSeesRunningOperation(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.bank.Latency = 1e9
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		c := h.Client(func(ctx context.Context) error {
			_, err := pay(ctx, o)
			return err
		})
		h.Advance(1e9)
		all := details(t, h, o)
		if len(all) != 1 || all[0].State != "running" || all[0].Can != nil {
			t.Fatalf("the items are %+v", all)
		}
		_, err := h.Host().Operate(t.Context(), o.ID(), &dohost.AdminRequest{Action: dohost.ActionNotDone, Kind: "operation", ID: all[0].ID})
		if err == nil || !strings.Contains(err.Error(), "the operation is running") {
			t.Errorf("not done during the call: %v", err)
		}
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// TestOperatorCannotResolveUndeclaredKind runs a newer version of the program, without the kind.
func TestOperatorCannotResolveUndeclaredKind(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.after = failures(1, errTimeout)
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		_, err := pay(t.Context(), o)
		id := unknownID(t, err)
		other := newShop(ledger.PolicyAtMostOnce)
		other.kind.Name = "refund"
		if err := h.Restart(other.class()); err != nil {
			t.Fatal(err)
		}
		if all := details(t, h, o); len(all) != 1 || all[0].ID != string(id) || all[0].State != "unknown" {
			t.Errorf("the items are %+v", all)
		}
		_, err = h.Host().Operate(t.Context(), o.ID(), &dohost.AdminRequest{Action: dohost.ActionNotDone, Kind: "operation", ID: string(id)})
		if err == nil || !strings.Contains(err.Error(), `of kind "charge", which the class does not declare`) {
			t.Errorf("not done: %v", err)
		}
	})
}

// TestDeclareKeepsTheItemsOfTheClass adds operations to a class with items of its own.
func TestDeclareKeepsTheItemsOfTheClass(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	deleted := ""
	class := dohost.Bind(orders, func(_ context.Context, st *dohost.State) (*order, error) {
		return &order{st, s}, nil
	}, &dohost.Handlers[order]{
		Extensions: []dohost.ClassExtension{ledger.Declare(&s.kind)},
		OnInspect: func(context.Context, *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
			return func(yield func(dohost.Resource, error) bool) { yield(dohost.Resource{Kind: "line", ID: "1"}, nil) }
		},
		OnAdmin: func(_ *order, _ context.Context, r *dohost.AdminRequest) (bool, error) {
			deleted = r.Kind + " " + r.ID
			return true, nil
		},
	})
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		o := orders.Get(h, "7")
		if _, err := pay(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		h.EvictAll()
		if all := details(t, h, o); len(all) != 2 || all[0].Kind != "line" || all[1].Kind != "operation" {
			t.Errorf("the items are %+v", all)
		}
		for r := range h.Host().Details(t.Context(), o.ID()) { // a reader that stops early
			if r.Kind != "line" {
				t.Errorf("the first item is %+v", r)
			}
			break
		}
		req := &dohost.AdminRequest{Action: dohost.ActionDelete, Kind: "line", ID: "1"}
		if done, err := h.Host().Operate(t.Context(), o.ID(), req); !done || err != nil || deleted != "line 1" {
			t.Errorf("delete: %v, %v, %q", done, err, deleted)
		}
		if _, err := h.Host().Operate(t.Context(), o.ID(), nil); !errors.Is(err, dohost.ErrMisuse) {
			t.Errorf("a nil request: %v", err)
		}
	})
	if _, err := dohost.Open(t.TempDir(), nil, s.extended(ledger.Declare(&s.kind), ledger.Declare(&s.kind))); err == nil || !strings.Contains(err.Error(), `two extensions with the kind "operation"`) {
		t.Errorf("a class that is declared twice: %v", err)
	}
}
