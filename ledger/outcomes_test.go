package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// outcomesOf returns the counts of unknown outcomes of an order, as an operator sees them.
func outcomesOf(ctx context.Context, h *dohosttest.Host, o dohost.Stub[order]) (text string, counts map[string]int64, err error) {
	for r, err := range h.Host().FindDetails(ctx, o.ID(), &dohost.DetailQuery{Kind: ledger.ResourceOutcomes}) {
		if err != nil {
			return "", nil, err
		}
		text, counts = text+r.ID+", "+r.Text, r.Counts
	}
	return text, counts, nil
}

func wantOutcomes(t *testing.T, h *dohosttest.Host, o dohost.Stub[order], want string) {
	t.Helper()
	h.Advance(time.Second) // the disk has the last event
	if got, _, err := outcomesOf(t.Context(), h, o); err != nil || got != want {
		t.Errorf("the counts are %q, %v; want %q", got, err, want)
	}
}

// TestOutcomesAreCounted makes four operations unknown, and resolves three of them: one by the program, one by an operator, and one
// without a Do that has seen its interruption. The counts stay when the rows are gone.
func TestOutcomesAreCounted(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.kind.Keep = time.Hour
	s.after = failures(3, errTimeout)
	var reports reportCounts
	s.listener.Service = reports.add
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		in := func(scope string) ledger.ID {
			t.Helper()
			_, err := dohost.Call(t.Context(), o, (*order).payIn, scope)
			return unknownID(t, err)
		}
		a, b := in("a"), in("b")
		wantOutcomes(t, h, o, "charge, AtMostOnce, 2 unknown so far, none resolved")
		in("a") // it is unknown as before
		if err := dohost.CallNoResult(t.Context(), o, (*order).notDone, a); err != nil {
			t.Fatal(err)
		}
		if err := dohost.CallNoResult(t.Context(), o, (*order).notDone, a); !errors.Is(err, ledger.ErrEnded) {
			t.Errorf("a second decision: %v", err)
		}
		wantOutcomes(t, h, o, "charge, AtMostOnce, 2 unknown so far, 1 resolved: 1 without an effect (100 % false unknowns)")
		operate := func(a dohost.Action, kind string, id ledger.ID) error {
			r := &dohost.AdminRequest{Action: a, Kind: kind, ID: string(id)}
			if a == dohost.ActionDone {
				r.Result = json.RawMessage(`"r_1"`)
			}
			_, err := h.Host().Operate(t.Context(), o.ID(), r)
			return err
		}
		if err := operate(dohost.ActionDone, ledger.ResourceKind, b); err != nil {
			t.Fatal(err)
		}
		wantOutcomes(t, h, o, "charge, AtMostOnce, 2 unknown so far, 2 resolved: 1 without an effect (50 % false unknowns)")
		if err := operate(dohost.ActionDone, ledger.ResourceOutcomes, "charge"); !isArgumentError(err) {
			t.Errorf("an action on the counts: %v", err)
		}

		in("d") // it stays unknown
		s.after = func(context.Context, ledger.ID) error { panic("the call ends its incarnation") }
		if _, err := dohost.Call(t.Context(), o, (*order).payIn, "c"); err == nil {
			t.Fatal("the call did not end its incarnation")
		}
		s.after = nil
		for _, op := range operationsOf(t, o) {
			if op.Scope == "c" {
				if err := operate(dohost.ActionNotDone, ledger.ResourceKind, op.ID); err != nil {
					t.Fatal(err)
				}
			}
		}
		h.Advance(time.Second)
		if got := reports.text(); got != "ledger:interrupted 1, ledger:resolved 3, ledger:unknown 4" {
			t.Errorf("the reports are %s", got)
		}
		const last = "charge, AtMostOnce, 4 unknown so far, 3 resolved: 2 without an effect (67 % false unknowns)"
		wantOutcomes(t, h, o, last)
		h.Advance(2 * time.Hour)
		for i := range 3 { // each new operation deletes two expired rows
			if _, err := dohost.Call(t.Context(), o, (*order).payIn, fmt.Sprint("new", i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.Restart(); err != nil {
			t.Fatal(err)
		}
		wantOutcomes(t, h, o, last)
	})
}

// reportCounts counts the reports of a host by their events.
type reportCounts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *reportCounts) add(_ dohost.ID, event string, _ ...slog.Attr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[event]++
}

func (c *reportCounts) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, event := range slices.Sorted(maps.Keys(c.of)) {
		all = append(all, fmt.Sprint(event, " ", c.of[event]))
	}
	return strings.Join(all, ", ")
}

func isArgumentError(err error) bool {
	_, ok := errors.AsType[*dohost.ArgumentError](err)
	return ok
}

// TestAnswerOfFindResolvesUnknownOutcome lets Find decide about an operation after the answer Unknown.
func TestAnswerOfFindResolvesUnknownOutcome(t *testing.T) {
	reports := map[ledger.Answer]string{
		ledger.AnswerUnknown: "[]",
		ledger.AnswerDone:    "[kind=charge [policy=Reconcile outcome=done]]",
		ledger.AnswerNotDone: "[kind=charge [policy=Reconcile outcome=not-done]]",
	}
	for answer, want := range map[ledger.Answer]string{
		ledger.AnswerUnknown: "charge, Reconcile, 1 unknown so far, none resolved",
		ledger.AnswerDone:    "charge, Reconcile, 1 unknown so far, 1 resolved: 0 without an effect (0 % false unknowns)",
		ledger.AnswerNotDone: "charge, Reconcile, 1 unknown so far, 1 resolved: 1 without an effect (100 % false unknowns)",
	} {
		s := newShop(ledger.PolicyReconcile)
		s.before = failures(1, errTimeout)
		now := ledger.AnswerUnknown
		var reported []string
		s.listener.Service = func(_ dohost.ID, event string, attrs ...slog.Attr) {
			if event == "ledger:resolved" {
				reported = append(reported, fmt.Sprint(attrs[0], attrs[2:]))
			}
		}
		s.kind.Find = func(_ context.Context, id ledger.ID, _ charge) (string, ledger.Answer, error) {
			return receipt(id), now, nil
		}
		s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
			for range 2 {
				_, err := pay(t.Context(), o)
				unknownID(t, err)
			}
			wantOutcomes(t, h, o, "charge, Reconcile, 1 unknown so far, none resolved")
			now = answer
			if _, err := pay(t.Context(), o); (err != nil) != (answer == ledger.AnswerUnknown) {
				t.Errorf("after the answer %d: %v", answer, err)
			}
			wantOutcomes(t, h, o, want)
			if got, want := fmt.Sprint(reported), reports[answer]; got != want {
				t.Errorf("the reports are %s, want %s", got, want)
			}
		})
	}
	// An answer to the first question is no unknown outcome.
	s := newShop(ledger.PolicyReconcile)
	s.after = failures(1, errTimeout)
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		if _, err := pay(t.Context(), o); err != nil {
			t.Error(err)
		}
		wantOutcomes(t, h, o, "")
	})
}
