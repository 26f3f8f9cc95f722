package dohosttest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/dohost/dohost"
)

// TestEndingsKeepOrLoseWritesAtEachStage ends a run of one write at each stage of the write, with each ending,
// and then reads the write.
func TestEndingsKeepOrLoseWritesAtEachStage(t *testing.T) {
	for name, shared := range map[string]bool{"directory": false, "shared log": true} {
		t.Run(name, func(t *testing.T) { testEndingsAtEachStage(t, shared) })
	}
}

func testEndingsAtEachStage(t *testing.T, shared bool) {
	found := false
	s := doing(put)
	s.SharedLog = shared
	s.Check = func(ctx context.Context, h *Host) error {
		return testObjects.Get(h, "a").Do(ctx, func(ctx context.Context, o *testObject) (err error) {
			_, found, err = dohost.Get[int](ctx, o.st.Storage(), "k")
			return err
		})
	}
	base := s.try(t, new(atomic.Int64), diskFirst, nil)
	if base.err != nil {
		t.Fatal(base.err)
	}
	want := map[string]string{ // by place: the endings that keep it
		"start": "", "storage": "", "commit": "",
		"committed": "fence",
		"sync":      "fence crash kill",
		"durable":   "fence crash power-cut kill", "release": "fence crash power-cut kill", "end": "fence crash power-cut kill",
	}
	if shared { // a record on its way is in the log or not; after it is, no end can lose it
		want["sync"] = "fence crash"
		for _, place := range []string{"durable", "release", "end"} {
			want[place] += " take-over"
		}
	}
	seen := 0
	for _, p := range base.points {
		if p.Op == "constructor" {
			continue
		}
		left := ""
		for _, ending := range s.endings() {
			tr := s.try(t, new(atomic.Int64), diskFirst, []interruption{{p, ending}})
			if tr.err != nil {
				t.Fatalf("%v at %v: %v", ending, p, tr.err)
			}
			if found {
				left += " " + endingFlag(ending)
			}
		}
		if w, ok := want[p.Place.String()]; !ok || left != w && left != " "+w {
			t.Errorf("at %v it is left by%s, want %q", p, left, w)
		}
		seen++
	}
	if seen != len(want) {
		t.Errorf("%d stages, want %d", seen, len(want))
	}
}

func TestEndingsHaveNames(t *testing.T) {
	for _, e := range interruptions {
		if got, err := parseEnding(endingFlag(e)); err != nil || got != e {
			t.Errorf("%v: %v, %v", e, got, err)
		}
	}
	for _, name := range []string{"none", "restart", ""} {
		if _, err := parseEnding(name); fmt.Sprint(err) != fmt.Sprintf("ending %q: want one of fence, crash, power-cut, kill, take-over, full-disk", name) {
			t.Error(err)
		}
	}
}
