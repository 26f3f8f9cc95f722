package dohosttest

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/dohost/dohost"
)

// payer is an object that has an effect, and reports an interrupted one as unknown.
type payer struct {
	st   *dohost.State
	bank *FakeService
}

const payers dohost.Namespace[payer] = "payer"

// Pay returns the stored outcome, which never changes: "done", or "unknown" after an interruption.
func (p *payer) Pay(ctx context.Context) (string, error) {
	outcome, begun, err := dohost.Get[string](ctx, p.st.Storage(), "outcome")
	if err != nil || outcome != "" {
		return outcome, err
	}
	if begun {
		p.st.Report(ctx, "bank:unknown", slog.String("operation", p.st.ID().Name))
		return "unknown", dohost.Put(ctx, p.st.Storage(), "outcome", "unknown")
	}
	if err := dohost.Put(ctx, p.st.Storage(), "outcome", ""); err != nil {
		return "", err
	}
	err = dohost.Await(ctx, func(ctx context.Context) error { return p.bank.Call(ctx, p.st.ID().Name, "") })
	if err != nil {
		return "", err
	}
	p.st.Report(ctx, "bank:done", slog.String("operation", p.st.ID().Name))
	return "done", dohost.Put(ctx, p.st.Storage(), "outcome", "done")
}

// TestCostCountsUnknownOutcomes compares the cost with the outcomes that the client of each run got, and with the book of
// the bank at that time.
func TestCostCountsUnknownOutcomes(t *testing.T) {
	bank := &FakeService{}
	var unknown, falsely int
	s := Scenario{
		Classes: []dohost.Class{dohost.Bind(payers, func(_ context.Context, st *dohost.State) (*payer, error) {
			return &payer{st, bank}, nil
		}, nil)},
		Services: []*FakeService{bank},
		Run: func(ctx context.Context, h *Host) error {
			return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
				outcome, err := dohost.CallNoArg(ctx, payers.Get(h, "a"), (*payer).Pay)
				if outcome == "unknown" {
					unknown++
					if bank.Effects("a") == 0 {
						falsely++
					}
				}
				return err
			})
		},
		Check:     func(context.Context, *Host) error { return nil },
		HadEffect: func(id string) bool { return bank.Effects(id) > 0 },
	}
	r := explore(t, &s)
	for _, f := range r.reported(t.Name()) {
		t.Error(f)
	}
	t.Log(r.summary())
	if falsely == 0 || unknown == falsely {
		t.Errorf("%d unknown outcomes, %d of them without an effect: want some of both kinds", unknown, falsely)
	}
	if r.Cost.Unknown != unknown || r.Cost.FalseUnknown != falsely {
		t.Errorf("the cost is %v, and the clients got %d unknown outcomes, %d of them without an effect", r.Cost, unknown, falsely)
	}
	want := fmt.Sprintf(", %d outcomes reported as unknown (%d of them without an effect); the longest", unknown, falsely)
	if text := r.summary(); !strings.Contains(text, want) {
		t.Errorf("the summary is %q, want %q in it", text, want)
	}

	s.HadEffect = nil
	want = fmt.Sprintf(", %d outcomes reported as unknown; the longest", unknown)
	if text := explore(t, &s).summary(); !strings.Contains(text, want) {
		t.Errorf("without HadEffect the summary is %q, want %q in it", text, want)
	}
}

// TestCostSubtractsUnknownOutcomesOfTheUntouchedRun compares two runs with unknown outcomes.
func TestCostSubtractsUnknownOutcomesOfTheUntouchedRun(t *testing.T) {
	of := func(unknown, falsely int64) *trial {
		tr := &trial{run: &scenarioRun{}}
		tr.run.unknown.Store(unknown)
		tr.run.falseUnknown.Store(falsely)
		return tr
	}
	if b := of(5, 3).recoveryCost(of(2, 1)); b.Unknown != 3 || b.FalseUnknown != 2 {
		t.Errorf("the cost is %+v", b)
	}
}
