package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// TestDecisionsAtTheSameTime lets 100 operators decide about one operation at the same time, half of them each way: one decision counts.
func TestDecisionsAtTheSameTime(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.after = failures(1, errTimeout)
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		_, err := pay(t.Context(), o)
		id := unknownID(t, err)
		var recorded, late atomic.Int64
		var clients []*dohosttest.Client
		for i := range 100 {
			r := &dohost.AdminRequest{Kind: ledger.ResourceKind, ID: string(id), Action: dohost.ActionNotDone}
			if i%2 == 0 {
				r.Action, r.Result = dohost.ActionDone, json.RawMessage(`"r_1"`)
			}
			clients = append(clients, h.Client(func(ctx context.Context) error {
				switch done, err := h.Host().Operate(ctx, o.ID(), r); {
				case done && err == nil:
					recorded.Add(1)
				case isArgumentError(err) && strings.Contains(err.Error(), "the operation has ended"):
					late.Add(1)
				default:
					t.Errorf("%s: %t, %v", r.Action, done, err)
				}
				return nil
			}))
		}
		for _, c := range clients {
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
		}
		h.Advance(time.Second)
		_, counts, err := outcomesOf(t.Context(), h, o)
		if recorded.Load() != 1 || late.Load() != 99 || err != nil || counts["unknown"] != 1 || counts["done"]+counts["not_done"] != 1 {
			t.Errorf("%d decisions were recorded, %d came too late, the counts are %v, %v", recorded.Load(), late.Load(), counts, err)
		}
	})
}

// TestDecisionsWithStrangeIDs decides about operations that the object does not have. None of these requests writes.
func TestDecisionsWithStrangeIDs(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.after = failures(1, errTimeout)
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		_, err := pay(t.Context(), orders.Get(h, "other"))
		other := string(unknownID(t, err))
		tried := 0
		for _, id := range []string{"", "op_", other, other + "\x00", "\xff", strings.Repeat("o", 1<<10), strings.Repeat("o", 1<<20)} {
			for _, a := range []dohost.Action{dohost.ActionDone, dohost.ActionNotDone} {
				done, err := h.Host().Operate(t.Context(), o.ID(), &dohost.AdminRequest{
					Action: a, Kind: ledger.ResourceKind, ID: id, Result: json.RawMessage(`"r_1"`),
				})
				if done || err != nil && (!isArgumentError(err) || len(err.Error()) > 1000) {
					t.Errorf("%s of %.20q: %t, %.1000v", a, id, done, err)
				}
				tried++
			}
			err := dohost.CallNoResult(t.Context(), o, (*order).notDone, ledger.ID(id))
			if !errors.Is(err, dohost.ErrNotFound) || len(err.Error()) > 1000 {
				t.Errorf("ResolveNotDone of %.20q: %.1000v", id, err)
			}
		}
		if all := operationsOf(t, o); len(all) != 0 || tried != 14 {
			t.Errorf("%d requests, and the operations are %+v", tried, all)
		}
		h.Advance(time.Second)
		if got, _, err := outcomesOf(t.Context(), h, o); got != "" || err != nil {
			t.Errorf("the counts are %q, %v", got, err)
		}
	})
}

// TestDecisionsWithStrangeResults resolves an operation with results that its kind cannot have.
func TestDecisionsWithStrangeResults(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.after = failures(1, errTimeout)
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		_, err := pay(t.Context(), o)
		id := unknownID(t, err)
		for _, result := range []string{
			"", " ", `"a" "b"`, `"a"}`, `"a`, "1", `{"A":1}`, strings.Repeat("[", 20000) + strings.Repeat("]", 20000), `"` + strings.Repeat("x", 9*mebibyte) + `"`,
		} {
			done, err := h.Host().Operate(t.Context(), o.ID(), &dohost.AdminRequest{
				Action: dohost.ActionDone, Kind: ledger.ResourceKind, ID: string(id), Result: json.RawMessage(result),
			})
			if done || !isArgumentError(err) || len(err.Error()) > 1000 {
				t.Errorf("%.20q: %t, %.1000v", result, done, err)
			}
		}
		if r := onlyOperation(t, o); r.Status != ledger.StatusUnknown {
			t.Errorf("the operation is %+v", r)
		}
	})
}

// TestCallsThatDoNotReturn ends the goroutine of a call, and of Find: the operation stays unknown, and is not repeated.
func TestCallsThatDoNotReturn(t *testing.T) {
	for name, end := range map[string]func(){"Goexit": runtime.Goexit, "a panic of nil": func() { panic(nil) }} {
		s := newShop(ledger.PolicyReconcile)
		s.after = func(context.Context, ledger.ID) error { end(); return nil }
		s.kind.Find = func(_ context.Context, id ledger.ID, _ charge) (string, ledger.Answer, error) {
			end()
			return receipt(id), ledger.AnswerDone, nil
		}
		s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
			for range 3 {
				if _, err := pay(t.Context(), o); err == nil {
					t.Errorf("%s: a Do has succeeded", name)
				}
				h.Advance(time.Minute)
			}
			if r := onlyOperation(t, o); r.Status != ledger.StatusUnknown || len(s.calls()) != 1 || s.bank.Total() != 1 {
				t.Errorf("%s: %d calls, the operation is %+v", name, len(s.calls()), r)
			}
		})
	}
}

// TestScopeThatIsLongIsCut has a scope that a client has chosen. The row of an operator's list keeps its start, and the ID has all of it.
func TestScopeThatIsLongIsCut(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		for _, end := range []string{"a", "b", "b"} {
			if _, err := dohost.Call(t.Context(), o, (*order).payIn, strings.Repeat("ä", 1<<20)+end); err != nil {
				t.Fatal(err)
			}
		}
		h.Advance(time.Second)
		list := details(t, h, o)
		for _, r := range list {
			if scope := r.Fields["scope"]; len(scope) != 4096 || len(r.Text) > 5000 {
				t.Errorf("the scope has %d bytes, the text %d", len(scope), len(r.Text))
			}
		}
		if len(list) != 2 {
			t.Errorf("%d operations, want 2", len(list))
		}
	})
}
