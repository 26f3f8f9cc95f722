package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dohost/dohost/internal/recovery"

	"github.com/dohost/dohost"
)

func TestMain(m *testing.M) {
	if status, is := recovery.Child(context.Background()); is {
		os.Exit(status)
	}
	goleak.VerifyTestMain(m)
}

// small is a bench that takes no time and measures nothing of worth.
func small(t *testing.T) *bench {
	return &bench{dir: t.TempDir(), seed: 1, rounds: 1, duration: 5 * time.Millisecond, objects: 1000}
}

// TestEveryExperimentDoesItsWork runs those that do not wait for the clock: each checks
// that what it counted was done.
func TestEveryExperimentDoesItsWork(t *testing.T) {
	waits := map[string]bool{"P7": true, "P9": true, "P10": true, "P12": true}
	b := small(t)
	for _, e := range experiments {
		if waits[e.id] {
			continue
		}
		if err := e.run(t.Context(), b); err != nil {
			t.Errorf("%s: %v", e.id, err)
		}
	}
	for _, r := range b.result.Rows {
		if r.Sides[0].Checked == 0 {
			t.Errorf("%s: nothing was checked", r.ID)
		}
	}
	if rows, curves := len(b.result.Rows), len(b.result.Curves); rows < 30 || curves != 8 || len(b.result.Breakdowns) != 2 {
		t.Errorf("%d rows, %d curves, %d breakdowns", rows, curves, len(b.result.Breakdowns))
	}
	if err := b.result.write(t.TempDir()); err != nil {
		t.Error(err)
	}
}

// liar is a side that says it has done what it has not.
type liar struct{ rounds int }

func (l *liar) work(_ context.Context, m *meter) error {
	l.rounds++
	m.worker().did(time.Now())
	return nil
}

func (l *liar) verify(_ context.Context, done int64) error {
	if int(done) != l.rounds {
		return errors.New("rounds were not counted")
	}
	return errors.New("nothing is there")
}

func (l *liar) syncs() int64 { return 0 }

func (l *liar) close() error { return nil }

// A side that lost what it was asked to do has no figure.
func TestASideThatLosesHasNoFigure(t *testing.T) {
	if fs, err := small(t).compare(t.Context(), named{"liar", &liar{}}); err == nil || err.Error() != "liar has no figure: nothing is there" {
		t.Errorf("%v, %v", fs, err)
	}
}

// TestVerifyNoticesOneCall has each side asked for one operation more than it did, and
// for one less.
func TestVerifyNoticesOneCall(t *testing.T) {
	b := small(t)
	h, err := b.open(dohost.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := b.open(dohost.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.openFront()
	if err != nil {
		t.Fatal(err)
	}
	sides := map[string]side{
		"requests":   &posting{reached: f, objects: 10},
		"increments": &counting{host: h, objects: 10, callers: 4, method: (*subject).add},
		"appends":    &counting{host: rows, objects: 10, callers: 4, method: (*subject).append, appends: true},
	}
	for name, r := range map[string]*raw{
		"raw": {objects: 10, callers: 4}, "raw rows": {objects: 10, callers: 4, appends: true}, "pipeline": {objects: 1, depth: 8},
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

func TestVerdict(t *testing.T) {
	beside := func(value, other float64) []Figure {
		return []Figure{{Side: ours, Value: value}, {Side: limit, Value: other}}
	}
	least, most := Target{Text: "t", Beside: limit, Least: 0.9}, Target{Text: "t", Beside: limit, Most: 3}
	both := Target{Text: "t", Beside: limit, Least: 0.9, Times: 60}
	for _, c := range []struct {
		row  Row
		want string
	}{
		{Row{Sides: beside(90, 100), Target: least}, "met"},
		{Row{Sides: beside(89, 100), Target: least}, "not met"},
		{Row{Sides: beside(106, 100), Target: least}, "broken limit"},
		{Row{Sides: beside(90, 100)[:1], Target: least}, "no limit"},
		{Row{Sides: beside(300, 100), Target: most}, "met"},
		{Row{Sides: beside(301, 100), Target: most}, "not met"},
		{Row{Sides: beside(94, 100), Target: most}, "broken limit"},
		{Row{Sides: append(beside(90, 100), Figure{Side: workerd, Value: 1.5}), Target: both}, "met"},
		{Row{Sides: append(beside(90, 100), Figure{Side: workerd, Value: 1.6}), Target: both}, "not met"},
		{Row{Sides: append(beside(89, 100), Figure{Side: workerd, Value: 1.5}), Target: both}, "not met"},
		{Row{Sides: beside(90, 100), Target: both}, "met"},
		{Row{Sides: []Figure{{P50: 41, P99: 5}}, Target: Target{Text: "t", P50: 40}}, "not met"},
		{Row{Sides: []Figure{{P50: 40, P99: 51}}, Target: Target{Text: "t", P50: 40, P99: 50}}, "not met"},
		{Row{Sides: []Figure{{P50: 40, P99: 50}}, Target: Target{Text: "t", P50: 40, P99: 50}}, "met"},
		{Row{Sides: []Figure{{Value: 401}}, Target: Target{Text: "t", ValueMost: 400}}, "not met"},
		{Row{Sides: []Figure{{Value: 29}}, Target: Target{Text: "t", ValueLeast: 30}}, "not met"},
		{Row{Sides: []Figure{{Value: 29}}}, ""},
	} {
		if got := c.row.verdict(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.row, got, c.want)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-run P99":     `-run "P99": want some of R, P1`,
		"-run (":       "-run: error parsing regexp",
		"-rounds 0":    "want at least 1 round",
		"-for -1s":     "more than no time",
		"-endure 0":    "more than no time",
		"-objects 10":  "and 1000 objects",
		"extra":        `"extra": want flags only`,
		"-peer deno":   `-peer "deno": want workerd`,
		"-data /no/do": "no such file or directory",
	} {
		if err := run(t.Context(), strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
