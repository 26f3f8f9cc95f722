package main

import (
	"strings"
	"testing"

	"github.com/dohost/dohost/internal/recovery"
	"github.com/dohost/dohost/ledger"
)

// TestUnknownsThatAreFalseAreASharePerPolicy makes the row of known costs.
func TestUnknownsThatAreFalseAreASharePerPolicy(t *testing.T) {
	r, ok := falseUnknowns([]recovery.Distribution{
		{ID: "R1"}, {ID: "R4", Cost: &recovery.Cost{Redelivered: 7}},
		{ID: "R6", Cost: &recovery.Cost{Policy: ledger.PolicyAtMostOnce, Steps: 900, Redelivered: 50, Unknown: 40, FalseUnknown: 10}},
		{ID: "R6i", Cost: &recovery.Cost{Policy: ledger.PolicyIdempotent, Steps: 800, Redelivered: 60, Repeated: 30}},
	})
	if !ok || len(r.Sides) != 2 {
		t.Fatalf("%+v", r)
	}
	if f := r.Sides[0]; f.Side != ours || f.Value != 20 || f.Checked != 900 {
		t.Errorf("AtMostOnce: %+v", f)
	}
	if f := r.Sides[1]; f.Side != "Idempotent" || f.Value != 0 || f.Checked != 800 {
		t.Errorf("Idempotent: %+v", f)
	}
	const want = "AtMostOnce: 40 of 50 interrupted steps were reported as unknown, 10 of them without an effect; 0 effects were repeated"
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, want) {
		t.Error(notes)
	}
	if r, ok := falseUnknowns([]recovery.Distribution{{ID: "R1"}}); ok {
		t.Errorf("without operations: %+v", r)
	}
}
