package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
)

// A fiber without a call of its hook, or with two, has no figure.
func TestFiberInterruptionCheckFindsLostAndDoubledHooks(t *testing.T) {
	const sound = "o a 1\no b 2\nh b 2\nh a 1\n"
	for _, c := range []struct{ name, roll, want string }{
		{"sound", sound, ""},
		{"told twice", sound + "h a 1\n", "the hook of a was called 2 times"},
		{"not told", strings.Replace(sound, "h a 1\n", "", 1), "2 fibers were started and 1 hooks called"},
		{"told of another's", strings.Replace(sound, "h a 1", "h a 2", 1), "the hook of a was called 0 times"},
		{"opened twice", sound + "o a 3\n", "a has opened two fibers"},
		{"one too few", "o a 1\nh a 1\n", "1 fibers were started and 1 hooks called, want 2"},
		{"cut off", sound + "h\n", "line"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "roll"), []byte(c.roll), 0o644); err != nil {
			t.Fatal(err)
		}
		fibers, err := checkFiberLog(dir, 2)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v; want %q", c.name, fibers, err, c.want)
		}
	}
}

// A fiber that still exists after its hook, as the log has it, has no figure.
func TestFiberInterruptionCheckFindsRemainingFiber(t *testing.T) {
	dir := t.TempDir()
	h, r, err := openSleepers(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := sleepers.Get(h, name(0))
	err = together(2, func(i int) error {
		if i > 0 {
			<-r.all
			h.Evict(s.ID(), dohost.EndFence)
			return nil
		}
		if _, err := dohost.Call(t.Context(), s, (*sleeper).sleep, 0); !errors.Is(err, dohost.ErrFenced) {
			return err
		}
		return nil
	})
	text, rerr := os.ReadFile(r.f.Name())
	if err := errors.Join(err, rerr, h.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.f.WriteString("h" + string(text[1:])); err != nil {
		t.Fatal(err)
	}
	if err := noFibers(t.Context(), dir, 1); err == nil {
		t.Error("a fiber that was left is not noticed")
	}
	if err := noFibers(t.Context(), dir, 1); err == nil || !strings.Contains(err.Error(), "was called 2 times") {
		t.Errorf("a hook that was told again: %v", err)
	}
}

// A fence without a resumed fiber, or a resumption too many, has no figure.
func TestFiberResumptionCheckCountsFences(t *testing.T) {
	for off, want := range map[int]string{0: "", 1: "want 4 and 4", -1: "want 2 and 2"} {
		r, err := small(t).openResuming(3)
		if err != nil {
			t.Fatal(err)
		}
		err = r.begin(t.Context())
		for range 2 {
			if err == nil {
				_, err = r.end(t.Context(), 1)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		r.fences[1] += off
		if err := r.verify(t.Context()); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+d: %v, want %q", off, err, want)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Lost items are counted, and a lost item that was acknowledged is an error.
func TestCheckpointLossIsCountedInItems(t *testing.T) {
	durable, set := saveMode{durable: true}, saveMode{}
	at := func(items int) copyCheckpoint { return copyCheckpoint{source, items, items * (items - 1) / 2} }
	for _, c := range []struct {
		way         saveMode
		done, acked int
		p           copyCheckpoint
		want        int // -1: an error
	}{
		{durable, 10, 10, at(10), 0},
		{durable, 10, 11, at(11), 0}, // killed before the file has it
		{durable, 19, 10, at(10), 9},
		{durable, 19, 10, at(9), -1},        // acknowledged, and lost
		{set, 19, 10, at(9), 10},            // not acknowledged
		{set, 19, 10, copyCheckpoint{}, 19}, // no checkpoint is on the disk
		{set, 10, 10, at(12), -1},           // of items that were never taken
		{set, 10, 10, copyCheckpoint{source, 5, 11}, -1},
	} {
		got, err := c.way.lost(c.done, c.acked, c.p)
		if (err != nil) != (c.want < 0) || err == nil && got != c.want {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
}

// TestCheckpointIsDueByItemsOrTime counts the checkpoints of 25 items, each of a tenth of the period.
func TestCheckpointIsDueByItemsOrTime(t *testing.T) {
	want := map[string]int{"C0": 0, "C1": 25, "C1c": 25, "C2": 2, "C2c": 2, "C3": 2, "C3c": 2, "C4": 0, "C4c": 0}
	for _, w := range saveModes(time.Second) {
		n, since := 0, time.Duration(0)
		for items := 1; items <= 25; items++ {
			if since += 100 * time.Millisecond; w.due(items, since) {
				n, since = n+1, 0
			}
		}
		if n != want[w.id] || w.end != strings.HasPrefix(w.id, "C4") || w.durable == strings.HasSuffix(w.id, "c") && w.id != "C0" {
			t.Errorf("%s: %d checkpoints, want %d; %+v", w.id, n, want[w.id], w)
		}
	}
}
