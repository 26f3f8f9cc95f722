package recovery

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost/ledger"
)

func TestMain(m *testing.M) {
	if status, is := Child(context.Background()); is {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

// TestRunReportsEveryMeasurement runs everything once, on the disk and with processes that are
// killed.
func TestRunReportsEveryMeasurement(t *testing.T) {
	o := Options{
		Dir: t.TempDir(), Seed: 1, Objects: 20, Fences: 30, Workers: 8, Ends: 3,
		Rest: time.Millisecond, Work: 20 * time.Millisecond,
	}
	ds, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	operations, err := RunOperations(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ds = append(ds, operations...)
	want := map[string]int{"R1": 30, "R1b": 30, "R2": 30, "R3": 20, "P12": 15, "R4": 24, "R5": 24, "R6": 24, "R6i": 24, "R6r": 24}
	ends := map[string]int{"P12": 15, "R4": 3, "R5": 3, "R6": 3, "R6i": 3, "R6r": 3}
	for _, d := range ds {
		if len(d.Took) != want[d.ID] || d.At(50) <= 0 || d.At(100) < d.At(0) {
			t.Errorf("%s: %d times, want %d; %v", d.ID, len(d.Took), want[d.ID], d.Took)
		}
		delete(want, d.ID)
		b := d.Cost
		if b == nil {
			continue
		}
		if b.Ends != ends[d.ID] || b.Steps == 0 || b.Lost != 0 || b.Doubled != 0 {
			t.Errorf("%s: %+v", d.ID, *b)
		}
		// A closed host has its log replayed too, but lost no writes.
		if b.Replayed == 0 {
			t.Errorf("%s: no log was read: %+v", d.ID, *b)
		}
		if d.ID != "R6" && b.Unknown > 0 || b.FalseUnknown > b.Unknown {
			t.Errorf("%s: %d outcomes are unknown, %d of them falsely", d.ID, b.Unknown, b.FalseUnknown)
		}
		if mayRepeat := d.ID == "P12" || d.ID == "R4" || d.ID == "R6i"; !mayRepeat && b.Repeated > 0 {
			t.Errorf("%s: %d effects were repeated", d.ID, b.Repeated)
		}
		if d.ID == "R5" && b.Redelivered > 0 {
			t.Errorf("a host that was closed has cut something off: %+v", *b)
		}
	}
	if len(want) > 0 {
		t.Errorf("not measured: %v", want)
	}
}

// TestCostCountsLostAndDoubledSteps checks books with lost and doubled steps.
func TestCostCountsLostAndDoubledSteps(t *testing.T) {
	sound := "b a 1\ne a 1\na a 1\nb a 2\ne a 2\na a 2\n"
	for _, c := range []struct {
		name string
		book string
		want Cost
	}{
		{"sound", sound, Cost{Steps: 2}},
		{"cut off before the effect", sound + "b a 3\n", Cost{Steps: 2}},
		{"repeated", sound + "b a 2\ne a 2\n", Cost{Steps: 2, Redelivered: 1, Repeated: 1}},
		{"repeated before the effect", sound + "b a 1\n", Cost{Steps: 2, Redelivered: 1}},
		{"acknowledged and gone", sound + "b a 3\ne a 3\na a 3\n", Cost{Steps: 2, Lost: 1}},
		{"of another object", sound + "b b 1\ne b 1\na b 1\n", Cost{Steps: 2, Lost: 1}},
		{"begun beyond what is there", sound + "b a 4\n", Cost{Steps: 2, Lost: 1}},
		{"acknowledged twice", sound + "a a 1\n", Cost{Steps: 2, Doubled: 1}},
		{"reported as unknown after its effect", sound + "b a 3\ne a 3\nu a 3\n", Cost{Steps: 2, Unknown: 1}},
		{"reported as unknown without an effect", sound + "b a 3\nu a 3\n", Cost{Steps: 2, Unknown: 1, FalseUnknown: 1}},
		{"reported as unknown before its effect", sound + "b a 3\nu a 3\ne a 3\n", Cost{Steps: 2, Unknown: 1, FalseUnknown: 1}},
		{
			"unknown after the effect of another object", sound + "b b 1\nu b 1\n",
			Cost{Steps: 2, Unknown: 1, FalseUnknown: 1},
		},
		{"there without its effect", strings.Replace(sound, "e a 2\n", "", 1), Cost{Steps: 2, Doubled: 1}},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, bookFile), []byte(c.book), 0o644); err != nil {
			t.Fatal(err)
		}
		if b, err := account(dir, map[string]int{"a": 2}); err != nil || b != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.name, b, err, c.want)
		}
	}
}

// TestPoliciesMustNotRepeatEffects checks the accounts of the policies with a repeated effect.
func TestPoliciesMustNotRepeatEffects(t *testing.T) {
	for p, allowed := range map[ledger.Policy]bool{
		0: true, ledger.PolicyAtMostOnce: false, ledger.PolicyIdempotent: true, ledger.PolicyReconcile: false,
	} {
		b := Cost{Policy: p, Repeated: 1}
		if err := b.wrong(); (err == nil) != allowed {
			t.Errorf("%v: %v", p, err)
		}
	}
}

// TestCostNamesUnknownOutcomes compares the line of a cost with operations, and of one without.
func TestCostNamesUnknownOutcomes(t *testing.T) {
	const want = "; 5 outcomes reported as unknown, 3 of them without an effect"
	b := Cost{Policy: ledger.PolicyAtMostOnce, Unknown: 5, FalseUnknown: 3}
	if s := b.String(); !strings.HasSuffix(s, want) {
		t.Errorf("%q", s)
	}
	if s := (&Cost{}).String(); strings.Contains(s, "unknown") {
		t.Errorf("%q", s)
	}
}

// The 99th of a hundred is not the last.
func TestPercentiles(t *testing.T) {
	for n, want := range map[int]map[float64]time.Duration{
		1:    {0: 1, 50: 1, 100: 1},
		20:   {0: 1, 5: 1, 50: 10, 90: 18, 99: 20, 100: 20},
		100:  {0: 1, 1: 1, 50: 50, 99: 99, 99.9: 100, 100: 100},
		1000: {10: 100, 99: 990, 99.9: 999, 100: 1000},
	} {
		d := Distribution{}
		for i := range n {
			d.Took = append(d.Took, time.Duration(i+1))
		}
		for percent, took := range want {
			if got := d.At(percent); got != took {
				t.Errorf("of %d, %v %%: %d, want %d", n, percent, got, took)
			}
		}
	}
}

func TestRunRefusesWrongOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"0 ends":       {Objects: 1, Fences: 1, Workers: 1, Work: time.Second},
		"-1ns of rest": {Objects: 1, Fences: 1, Workers: 1, Ends: 1, Rest: -1, Work: time.Second},
	} {
		o.Dir = t.TempDir()
		for name, run := range map[string]func(context.Context, Options) ([]Distribution, error){"Run": Run, "RunOperations": RunOperations} {
			if _, err := run(context.Background(), o); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}
