package dohosttest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/dohost/dohost"
)

// TestWaysKeepOrLoseWritesAtEachStage ends a run of one write at each stage of the write, in each way,
// and then reads the write.
func TestWaysKeepOrLoseWritesAtEachStage(t *testing.T) {
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
	want := map[string]string{ // by place: the ways that keep it
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
		for _, way := range []Way{Fence, Crash, PowerCut, Kill} {
			tr := s.try(t, new(atomic.Int64), diskFirst, []ending{{p, way}})
			if tr.err != nil {
				t.Fatalf("%v at %v: %v", way, p, tr.err)
			}
			if found {
				left += " " + way.flag()
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

func TestWaysHaveNames(t *testing.T) {
	for w := Fence; w <= Kill; w++ {
		if got, err := parseWay(w.flag()); err != nil || got != w {
			t.Errorf("%v: %v, %v", w, got, err)
		}
	}
	if _, err := parseWay("none"); fmt.Sprint(err) != `way "none": want one of fence, crash, power-cut, kill` {
		t.Error(err)
	}
}
