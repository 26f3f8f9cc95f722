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
	added, newest := 0, uint64(0)
	for round := range 3 {
		lease, err := log.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		newest = lease.Newest()
		h, err := dohost.Open(filepath.Join(folder, string(rune('a'+round))), &dohost.Options{Lease: lease, BaseAfter: 20_000}, class)
		if err != nil {
			t.Fatal(err)
		}
		before := h.Stats().Shared.Base
		for begun := time.Now(); h.Stats().Shared.Base == before; {
			added++
			n, err := dohost.Call(t.Context(), notes.Get(h, "a"), (*note).Add, strings.Repeat("x", 3000))
			if err != nil || n != added {
				t.Fatalf("round %d: %d notes, want %d: %v", round, n, added, err)
			}
			if time.Since(begun) > time.Minute {
				t.Fatalf("no base after %d notes: %+v", added, h.Stats().Shared)
			}
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	slots, err := filepath.Glob(filepath.Join(folder, "log", "slots", "*", "*"))
	bases, err2 := os.ReadDir(filepath.Join(folder, "log", "bases"))
	if err != nil || err2 != nil || newest < 10 || len(slots) > int(newest) || len(bases) != 1 {
		t.Errorf("%d slots and %d bases are left of more than %d records: %v, %v", len(slots), len(bases), newest, err, err2)
	}
}
