package dohosttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
)

// TestPointsBetweenIncarnations finds the points of records without an incarnation: after a fence
// of a committed batch, and of an import.
func TestPointsBetweenIncarnations(t *testing.T) {
	s := doing(put)
	base := s.try(t, new(atomic.Int64), diskFirst, nil)
	at := slices.IndexFunc(base.points, func(p Point) bool { return p.Place == eviction.PlaceCommitted && p.Event == 1 })
	if base.err != nil || at < 0 {
		t.Fatalf("%v: %v", base.err, base.points)
	}
	fenced := s.try(t, new(atomic.Int64), diskFirst, []interruption{{base.points[at], eviction.EndFence}})
	if got, want := between(fenced), "[sync 1 durable 1]"; fenced.err != nil || got != want {
		t.Errorf("after a fence: %v, %v; want %v", fenced.err, got, want)
	}

	run := s.Run
	s.Run = func(ctx context.Context, h *Host) error {
		if err := run(ctx, h); err != nil {
			return err
		}
		var archive bytes.Buffer
		if err := h.Host().Export(ctx, dohost.ID{Class: "thing", Name: "a"}, &archive); err != nil {
			return err
		}
		return h.Host().Import(ctx, dohost.ID{Class: "thing", Name: "b"}, &archive)
	}
	imported := s.try(t, new(atomic.Int64), diskFirst, nil)
	if got, want := between(imported), "[sync 1 durable 1]"; imported.err != nil || got != want {
		t.Errorf("of an import: %v, %v; want %v", imported.err, got, want)
	}
	for _, p := range imported.points {
		if endings := fmt.Sprint((&Scenario{}).endingsAt(p)); p.Incarnation == 0 && endings != map[string]string{"sync": "[power cut kill]", "durable": "[power cut]"}[p.Place.String()] {
			t.Errorf("%v: %v", p, endings)
		}
	}
}

// TestPointsOfRecordsAreNumbered has an event with two records.
func TestPointsOfRecordsAreNumbered(t *testing.T) {
	s := doing(func(ctx context.Context, t *testObject) error {
		return errors.Join(put(ctx, t), dohost.Sleep(ctx, time.Second), dohost.Put(ctx, t.st.Storage(), "k", 2))
	})
	tr := s.try(t, new(atomic.Int64), diskFirst, nil)
	var at []string
	for _, p := range tr.points {
		if p.Op == "record" {
			at = append(at, p.name())
		}
	}
	want := "incarnation 1, event 1 record, sync 1; incarnation 1, event 1 record, durable 1; incarnation 1, event 1 record, sync 2; incarnation 1, event 1 record, durable 2"
	if got := strings.Join(at, "; "); tr.err != nil || got != want {
		t.Errorf("%v, %s; want %s", tr.err, got, want)
	}
}

// between lists the points of no incarnation.
func between(tr *trial) string {
	var at []string
	for _, p := range tr.points {
		if p.Incarnation == 0 {
			at = append(at, fmt.Sprintf("%s %d", p.Place, p.N))
		}
	}
	return fmt.Sprint(at)
}
