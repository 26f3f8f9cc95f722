package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/sharedlog/dirlog"
)

type note struct{ st *dohost.State }

func (n *note) Add(ctx context.Context, text string) (count int, err error) {
	if count, _, err = dohost.Get[int](ctx, n.st.Storage(), "count"); err != nil {
		return 0, err
	}
	return count + 1, dohost.PutMany(ctx, n.st.Storage(), map[string]any{"count": count + 1, "text": text})
}

// TestSharedLogInADirectoryIsCut opens hosts with empty folders on a log whose records are larger than its limit.
func TestSharedLogInADirectoryIsCut(t *testing.T) {
	const notes dohost.Namespace[note] = "note"
	folder := t.TempDir()
	log, err := dirlog.Open(filepath.Join(folder, "log"))
	if err != nil {
		t.Fatal(err)
	}
	class := dohost.Bind(notes, func(_ context.Context, st *dohost.State) (*note, error) { return &note{st}, nil }, nil)
	added := 0
	// add opens a host, and adds notes until the condition holds for it. It returns the number of records that the host has found.
	add := func(dir string, holds func(h *dohost.Host) bool) (newest uint64) {
		lease, err := log.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h, err := dohost.Open(filepath.Join(folder, dir), &dohost.Options{Lease: lease, BaseAfter: 20_000}, class)
		if err != nil {
			t.Fatal(err)
		}
		for begun := time.Now(); !holds(h); {
			added++
			n, err := dohost.Call(t.Context(), notes.Get(h, "a"), (*note).Add, strings.Repeat("x", 3000))
			if err != nil || n != added {
				t.Fatalf("%s: %d notes, want %d: %v", dir, n, added, err)
			}
			if time.Since(begun) > time.Minute {
				t.Fatalf("%s: the condition does not hold after %d notes: %+v", dir, added, h.Stats().Shared)
			}
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		return lease.Newest()
	}
	for _, dir := range []string{"a", "b", "c"} {
		before := uint64(0)
		add(dir, func(h *dohost.Host) bool {
			if now := h.Stats().Shared.Base; before == 0 {
				before = max(now, 1)
			} else if now > before {
				return true
			}
			return false
		})
	}
	// A host that ends right after its base has not purged the log. The next one does.
	newest := add("d", func(*dohost.Host) bool {
		slots, err := filepath.Glob(filepath.Join(folder, "log", "slots", "*", "*"))
		bases, err2 := os.ReadDir(filepath.Join(folder, "log", "bases"))
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		return len(slots) <= 10 && len(bases) == 1
	})
	if newest < 20 {
		t.Errorf("the log had only %d records", newest)
	}
}
