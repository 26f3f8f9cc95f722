package main

import (
	"context"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/ledger"
)

// TestVerifyNoticesWrongEffects has ten effects by each method, and then an effect that breaks the account.
func TestVerifyNoticesWrongEffects(t *testing.T) {
	b := small(t)
	runs := 0
	for name, method := range map[string]func(*spender, context.Context, int) (int, error){
		"do": (*spender).do, "by hand": (*spender).byHand, "awaited": (*spender).awaited,
	} {
		for fault, c := range map[string]struct {
			number int // of an effect more
			want   string
		}{
			"none":              {0, ""},
			"a number too high": {99, "has the receipt 11 for the number 99"},
			"a number again":    {3, "the objects have 10 effects, and 11 calls were answered"},
		} {
			runs++
			s, err := b.openEffects(ledger.PolicyAtMostOnce, method)
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				if err := s.effect(t.Context(), method); err != nil {
					t.Fatal(err)
				}
			}
			done := int64(10)
			if c.number > 0 {
				if _, err := dohost.Call(t.Context(), s.stub(0), method, c.number); err != nil {
					t.Fatal(err)
				}
				done++
			}
			want := c.want
			if name == "do" && fault == "a number again" { // an operation with the same number is not called again
				want = "the service has 10 effects, and 11 calls were answered"
			}
			err = s.verify(t.Context(), done)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %s: %v, want %q", name, fault, err, want)
			}
			if err := s.close(); err != nil {
				t.Error(err)
			}
		}
	}
	if t.Logf("%d runs", runs); runs == 0 {
		t.Error("nothing was tried")
	}
}

// TestListingOfAnotherSizeHasNoFigure measures an object that has an operation more than the measurement knows.
func TestListingOfAnotherSizeHasNoFigure(t *testing.T) {
	b := small(t)
	o, err := b.record(t.Context(), 20)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.measure(t.Context(), true); err != nil {
		t.Error(err)
	}
	if _, err := dohost.Call(t.Context(), o.stub(0), o.method, 1000); err != nil {
		t.Error(err)
	}
	const want = "61 operations were listed, want 60"
	if err := o.measure(t.Context(), true); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	for _, r := range growthRows {
		if f, err := o.times[r.id].figure(r.scale); err != nil || f.Value <= 0 || len(f.Rounds) != 1 || f.P99 < f.P50 {
			t.Errorf("%s: %+v, %v", r.id, f, err)
		}
	}
	if _, err := o.times["L9"].figure(1); err == nil {
		t.Error("a time that was not measured has a figure")
	}
	if o.bytes <= 0 {
		t.Errorf("an operation has %v bytes on the disk", o.bytes)
	}
	if err := o.close(); err != nil {
		t.Error(err)
	}
}
