package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/goleak"

	"github.com/dohost/dohost/internal/crowd"
	"github.com/dohost/dohost/internal/recovery"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/ledger"
)

func TestMain(m *testing.M) {
	if status, is := tool(context.Background()); is {
		os.Exit(status)
	}
	if status, is := recovery.Child(context.Background()); is {
		os.Exit(status)
	}
	if status, is := crowd.Child(); is {
		os.Exit(status)
	}
	if status, is := plainChild(); is {
		os.Exit(status)
	}
	if status, is := child(context.Background()); is {
		os.Exit(status)
	}
	goleak.VerifyTestMain(m)
}

// small is a bench with minimal rounds, for tests of the program.
func small(t *testing.T) *bench {
	return &bench{
		dir: t.TempDir(), seed: 1, rounds: 1, duration: 5 * time.Millisecond, objects: 1000, rest: time.Millisecond,
	}
}

// TestExperimentsAllRunAndVerify runs the experiments that do not wait for the clock. Each verifies its counted
// operations.
func TestExperimentsAllRunAndVerify(t *testing.T) {
	waits := map[string]bool{"P9": true, "P10": true}
	b := small(t)
	for _, e := range experiments {
		if waits[e.id] {
			continue
		}
		if err := e.run(t.Context(), b); err != nil {
			t.Errorf("%s: %v", e.id, err)
		}
	}
	var ids []string
	for _, r := range b.result.Rows {
		ids = append(ids, r.ID)
		if r.Sides[0].Checked == 0 {
			t.Errorf("%s: nothing was checked", r.ID)
		}
	}
	const want = "R1 R1b R2 R3 P12 R4 R5 R6 R6i R6r U P1 P1a P2 P3 P3c P4 P4m P5 P6 P6h P7 P7g P8 P7a P11 P11m P13 P14 P14b P15 P15a P15b P15c C0 C1 C1c C2 C2c C3 C3c C4 C4c P16m P16 P16a L1 L2 W1 W2 W3 W4 W5 W6 W7 W8 L3 L3r L4 L4u L5 L6 PB1 PB2 PB3 PS1 PS2 PK1 PK2 PK3 PK4 PK5 PK6 I1 I2 SA1 SA2 SA3 SA4 SR1 SR2 SR3 SR4 SR5 SR6 P17 P17a " +
		"O1a O1b O1c O1d O1e O1f O2a O2b O2c O2d O2e S1 P18 SH1 SH2 SH3 E1 E1a A1 A2 A3"
	if got := strings.Join(ids, " "); got != want {
		t.Errorf("the rows are %s, want %s", got, want)
	}
	if curves, breakdowns := len(b.result.Curves), len(b.result.Breakdowns); curves != 11 || breakdowns != 2 {
		t.Errorf("%d curves, %d breakdowns", curves, breakdowns)
	}
	if err := b.result.write(t.TempDir()); err != nil {
		t.Error(err)
	}
}

// emptySide is a side that counts operations it has not made.
type emptySide struct{ rounds int }

func (l *emptySide) work(_ context.Context, m *meter) error {
	l.rounds++
	m.worker().did(time.Now())
	return nil
}

func (l *emptySide) verify(_ context.Context, done int64) error {
	if int(done) != l.rounds {
		return errors.New("rounds were not counted")
	}
	return errors.New("nothing is there")
}

func (l *emptySide) syncs() int64 { return 0 }

func (l *emptySide) close() error { return nil }

// A side that lost operations has no figure.
func TestSideWithLostOperationsHasNoFigure(t *testing.T) {
	fs, err := small(t).compare(t.Context(), named{"emptySide", &emptySide{}})
	if err == nil || err.Error() != "emptySide has no figure: nothing is there" {
		t.Errorf("%v, %v", fs, err)
	}
}

// TestVerifyNoticesOneCall verifies each side with one operation more than it made, and with one less.
func TestVerifyNoticesOneCall(t *testing.T) {
	b := small(t)
	b.duration = 50 * time.Millisecond // enough for one operation on a busy machine
	h, err := b.open(dohost.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := b.open(dohost.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.openHTTPHost()
	if err != nil {
		t.Fatal(err)
	}
	items, err := b.openCopying(saveModes(time.Second)[1])
	if err != nil {
		t.Fatal(err)
	}
	heard, err := b.openStreamSide(t.Context(), 10, true)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := b.openStreamSide(t.Context(), 10, false)
	if err != nil {
		t.Fatal(err)
	}
	operations, err := b.openEffects(ledger.PolicyReconcile, (*spender).do)
	if err != nil {
		t.Fatal(err)
	}
	operations.objects, operations.callers = 10, 4
	effects, err := b.openEffects(ledger.PolicyAtMostOnce, (*spender).byHand)
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := b.openShipping(&counting{objects: 10, callers: 4, method: (*subject).add})
	if err != nil {
		t.Fatal(err)
	}
	sides := map[string]side{
		"shipped":    shipped,
		"operations": operations,
		"effects":    effects,
		"chunks":     heard,
		"replies":    alone,
		"requests":   &postSide{httpServer: f, objects: 10},
		"increments": &counting{host: h, objects: 10, callers: 4, method: (*subject).add},
		"items":      items,
		"appends":    &counting{host: rows, objects: 10, callers: 4, method: (*subject).append, appends: true},
	}
	for name, r := range map[string]*raw{
		"raw":       {objects: 10, callers: 4},
		"raw rows":  {objects: 10, callers: 4, appends: true},
		"pipeline":  {objects: 1, depth: 8},
		"raw chain": {objects: 10, callers: 4, appends: true, size: 300, commits: 3},
	} {
		if err := r.open(b); err != nil {
			t.Fatal(err)
		}
		sides[name] = r
	}
	for name, s := range sides {
		r, err := oneRound(t.Context(), s, b.duration)
		if err != nil || r.ops == 0 || r.syncs == 0 {
			t.Errorf("%s: %d operations, %d syncs, %v", name, r.ops, r.syncs, err)
		}
		for d := int64(-1); d <= 1; d++ {
			if err := s.verify(t.Context(), r.ops+d); (err == nil) != (d == 0) {
				t.Errorf("%s: %d of %d operations: %v", name, r.ops+d, r.ops, err)
			}
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}

// The limit of increments stores one number for each object: the last.
func TestVerifyNoticesOldNumberInTheLimit(t *testing.T) {
	b := small(t)
	for name, r := range map[string]*raw{"callers": {objects: 10, callers: 4}, "pipeline": {objects: 1, depth: 8}} {
		if err := r.open(b); err != nil {
			t.Fatal(err)
		}
		done, err := oneRound(t.Context(), r, b.duration)
		if err == nil {
			err = r.verify(t.Context(), done.ops)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := r.db.Set(r.key(0, 0), value(r.counts[0]-1), pebble.NoSync); err != nil {
			t.Error(err)
		}
		if err := r.verify(t.Context(), done.ops); err == nil {
			t.Errorf("%s: the last number but one was not noticed", name)
		}
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}
}

// A cold wake visits each object once before it visits one again.
func TestWakeOfColdObjectsVisitsAllInTurn(t *testing.T) {
	w := newWalk(1, 10)
	var seen []int
	for range 20 {
		seen = append(seen, w.step())
	}
	if !slices.Equal(seen[:10], seen[10:]) || slices.IsSorted(seen[:10]) {
		t.Errorf("the order is %v", seen)
	}
	if all := slices.Sorted(slices.Values(seen[:10])); !slices.Equal(all, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("the objects are %v", all)
	}
}

// A store without one of its alarms, or with an alarm at another time, has no figure.
func TestAlarmsInTheStoreAreCounted(t *testing.T) {
	b := small(t)
	s, err := b.storeAlarms(100)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.verify(t.Context(), b); err != nil {
		t.Error(err)
	}
	s.n++
	if err := s.verify(t.Context(), b); err == nil || !strings.Contains(err.Error(), "100 alarms are in the index") {
		t.Error(err)
	}
	s.n--
	s.first = s.first.Add(time.Second)
	if err := s.verify(t.Context(), b); err == nil || !strings.Contains(err.Error(), "is due at") {
		t.Error(err)
	}
}

// The notes name only the operations that were verified.
func TestResultNotesListCheckedOperations(t *testing.T) {
	r := Results{Rows: []Row{
		{ID: "X1", Notes: []string{"a note"}, Sides: []Figure{{Side: ours, Checked: 7}, {Side: limit}}},
		{ID: "X2", Sides: []Figure{{Side: ours}}},
	}}
	text, err := r.markdown()
	if err != nil {
		t.Fatal(err)
	}
	const want = "- X1: a note; operations that were checked: 7 dohost.\n"
	if !strings.Contains(text, want) || strings.Contains(text, "- X2") {
		t.Error(text)
	}
}

func TestTargetResult(t *testing.T) {
	compared := func(value, other float64) []Figure {
		return []Figure{{Side: ours, Value: value}, {Side: limit, Value: other}}
	}
	minimum, maximum := Target{Text: "t", Reference: limit, MinRatio: 0.9}, Target{Text: "t", Reference: limit, MaxRatio: 3}
	both := Target{Text: "t", Reference: limit, MinRatio: 0.9, Times: 60}
	for _, c := range []struct {
		row  Row
		want string
	}{
		{Row{Sides: compared(90, 100), Target: minimum}, "met"},
		{Row{Sides: compared(89, 100), Target: minimum}, "not met"},
		{Row{Sides: compared(106, 100), Target: minimum}, "broken limit"},
		{Row{Sides: compared(90, 100)[:1], Target: minimum}, "no limit"},
		{Row{Sides: compared(300, 100), Target: maximum}, "met"},
		{Row{Sides: compared(301, 100), Target: maximum}, "not met"},
		{Row{Sides: compared(94, 100), Target: maximum}, "broken limit"},
		{Row{Sides: append(compared(90, 100), Figure{Side: workerd, Value: 1.5}), Target: both}, "met"},
		{Row{Sides: append(compared(90, 100), Figure{Side: workerd, Value: 1.6}), Target: both}, "not met"},
		{Row{Sides: append(compared(89, 100), Figure{Side: workerd, Value: 1.5}), Target: both}, "not met"},
		{Row{Sides: compared(90, 100), Target: both}, "met"},
		{Row{Sides: []Figure{{P50: 41, P99: 5}}, Target: Target{Text: "t", P50: 40}}, "not met"},
		{Row{Sides: []Figure{{P50: 40, P99: 51}}, Target: Target{Text: "t", P50: 40, P99: 50}}, "not met"},
		{Row{Sides: []Figure{{P50: 40, P99: 50}}, Target: Target{Text: "t", P50: 40, P99: 50}}, "met"},
		{Row{Sides: []Figure{{Value: 401}}, Target: Target{Text: "t", MaxValue: 400}}, "not met"},
		{Row{Sides: []Figure{{Value: 29}}, Target: Target{Text: "t", MinValue: 30}}, "not met"},
		{Row{Sides: []Figure{{Value: 29}}}, ""},
	} {
		if got := c.row.targetResult(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.row, got, c.want)
		}
	}
}

func TestFlagsAreValidated(t *testing.T) {
	for args, want := range map[string]string{
		"-run P99":     `-run "P99": want some of R, U, P1`,
		"-run (":       "-run: error parsing regexp",
		"-rounds 0":    "want at least 1 round",
		"-for -1s":     "durations above 0",
		"-endure 0":    "durations above 0",
		"-objects 10":  "and at least 1000 objects",
		"extra":        `"extra": want flags only`,
		"-peer deno":   `-peer "deno": want workerd, @durable-streams/server, or both`,
		"-data /no/do": "no such file or directory",
	} {
		if err := run(t.Context(), strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
