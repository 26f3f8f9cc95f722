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
	found := false
	s := doing(put)
	s.Check = func(ctx context.Context, h *Host) error {
		return things.Get(h, "a").Do(ctx, func(ctx context.Context, o *thing) (err error) {
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
	seen := 0
	for _, p := range base.points {
		if p.Op == "constructor" {
			continue
		}
		left := ""
		for _, ending := range []Ending{EndingFence, EndingCrash, EndingPowerCut, EndingKill} {
			tr := s.try(t, new(atomic.Int64), diskFirst, []interruption{{p, ending}})
			if tr.err != nil {
				t.Fatalf("%v at %v: %v", ending, p, tr.err)
			}
			if found {
				left += " " + ending.flag()
			}
		}
		if w, ok := want[p.Place]; !ok || left != w && left != " "+w {
			t.Errorf("at %v it is left by%s, want %q", p, left, w)
		}
		seen++
	}
	if seen != len(want) {
		t.Errorf("%d stages, want %d", seen, len(want))
	}
}

func TestEndingsHaveNames(t *testing.T) {
	for e, want := range map[Ending]string{-1: "ending -1", EndingNone: "none", EndingKill: "kill", 5: "ending 5", 9: "ending 9"} {
		if got := e.String(); got != want {
			t.Errorf("String of %d is %q, want %q", int(e), got, want)
		}
	}
	for w := EndingFence; w <= EndingKill; w++ {
		if got, err := parseEnding(w.flag()); err != nil || got != w {
			t.Errorf("%v: %v, %v", w, got, err)
		}
	}
	if _, err := parseEnding("none"); fmt.Sprint(err) != `ending "none": want one of fence, crash, power-cut, kill` {
		t.Error(err)
	}
}
