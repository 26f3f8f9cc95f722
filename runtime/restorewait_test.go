package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/objectstore"
)

// TestRestoreWaitsForAnImport restores an object while an import has it, and gives up, and then waits.
func TestRestoreWaitsForAnImport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := shipping(t, objectstore.NewMemFS())
		if _, err := add(t.Context(), h, "b", 1); err != nil {
			t.Fatal(err)
		}
		o := h.classes["counter"].objectOf("a")
		if ok, err := o.claim(); !ok || err != nil {
			t.Fatal(ok, err)
		}
		now := bookmark(t, h, "b")
		o.mu.Lock()
		o.deferredSlots = &slotEdit{delivery: &delivery{alarm: objectstore.Alarm{ID: o.id()}}} // as a failed delivery leaves
		o.mu.Unlock()
		brief, end := context.WithTimeout(t.Context(), 10*time.Second)
		defer end()
		if _, err := h.RestoreObject(brief, id("a"), now); !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "dohost: restoring counter/a: ") {
			t.Errorf("while the object is imported: %v", err)
		}
		calls := make(chan error, 2)
		go func() { _, err := add(t.Context(), h, "a", 1); calls <- err }()
		go func() { _, err := h.RestoreObject(t.Context(), id("a"), now); calls <- err }()
		time.Sleep(5 * time.Second)
		if len(calls) > 0 {
			t.Errorf("a call or a restore did not wait: %v", <-calls)
		}
		o.endClaim()
		begun := time.Now()
		for range 2 {
			if err := <-calls; err != nil {
				t.Error(err)
			}
		}
		if waited := time.Since(begun); waited > time.Second {
			t.Errorf("the restore waited %v for the events", waited)
		}
		wantTotal(t, h, "a", 1)
	})
}

// listedArchive counts its lists: each restore makes one.
type listedArchive struct {
	objectstore.Archive
	lists atomic.Int64
}

func (a *listedArchive) List(ctx context.Context) ([]objectstore.ArchiveObject, error) {
	a.lists.Add(1)
	return a.Archive.List(ctx)
}

// TestRestoresThatWaitAreBounded restores more objects than may have their state in memory, while none of them can be replaced.
func TestRestoresThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, err := objectstore.OpenDirArchive(objectstore.NewMemFS(), "/archive")
		if err != nil {
			t.Fatal(err)
		}
		a := &listedArchive{Archive: dir}
		h := open(t, objectstore.NewMemFS(), Options{Store: objectstore.Options{Ship: &objectstore.Shipping{Archive: a}}})
		time.Sleep(5 * time.Second)
		if _, err := add(t.Context(), h, "b", 1); err != nil {
			t.Fatal(err)
		}
		now := bookmark(t, h, "b")
		time.Sleep(5 * time.Second)
		before := a.lists.Load()
		ctx, giveUp := context.WithCancel(t.Context())
		results := make(chan error, maxRestores+1)
		var claimed []*object
		for i := range maxRestores + 1 {
			name := fmt.Sprint("imported", i)
			o := h.classes["counter"].objectOf(name)
			if ok, err := o.claim(); !ok || err != nil {
				t.Fatal(ok, err)
			}
			claimed = append(claimed, o)
			go func() { _, err := h.RestoreObject(ctx, id(name), now); results <- err }()
		}
		time.Sleep(5 * time.Second)
		if n := a.lists.Load() - before; n != maxRestores {
			t.Errorf("%d of %d restores have read the archive, want %d", n, maxRestores+1, maxRestores)
		}
		giveUp()
		for range maxRestores + 1 {
			if err := <-results; !errors.Is(err, context.Canceled) {
				t.Errorf("a restore that was given up: %v", err)
			}
		}
		for _, o := range claimed {
			o.endClaim()
		}
		if _, err := h.RestoreObject(t.Context(), id("b"), now); err != nil {
			t.Error(err)
		}
		wantTotal(t, h, "b", 1)
	})
}

// TestBookmarkBeforeAReplacementHasAllCommits restores an object with commits that the disk does not have yet.
func TestBookmarkBeforeAReplacementHasAllCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := shipping(t, fs)
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		earlier := bookmark(t, h, "a")
		state, err := h.store.ArchivedState(t.Context(), id("a"), earlier)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := add(t.Context(), h, "a", 10); err != nil {
			t.Fatal(err)
		}
		release := fs.HoldSyncs()
		answered := make(chan error, 1)
		go func() {
			answered <- do(t.Context(), h, "a", "no wait", func(ctx context.Context, c *counter) error {
				return c.s.Put(ctx, kv, []byte("x"), []byte{0, 0, 0, 0, 0, 0, 0, 7}, true)
			})
		}()
		synctest.Wait()
		type result struct {
			undo objectstore.Bookmark
			err  error
		}
		results := make(chan result, 1)
		go func() {
			r := &replacement{state: state, done: make(chan struct{})}
			err := h.lookup(id("a")).deferReplacement(t.Context(), r, nil)
			results <- result{r.undo, errors.Join(err, r.wait(t.Context()))}
		}()
		time.Sleep(time.Second)
		if len(results) > 0 || len(answered) == 0 {
			t.Error("the restore did not wait for the disk, or a call that writes without waiting did")
		}
		release()
		r := <-results
		if err := errors.Join(<-answered, r.err); err != nil {
			t.Fatal(err)
		}
		wantTotal(t, h, "a", 1)
		if _, err := h.RestoreObject(t.Context(), id("a"), objectstore.RestorePoint{Bookmark: r.undo}); err != nil {
			t.Fatal(err)
		}
		wantTotal(t, h, "a", 11)
		err = do(t.Context(), h, "a", "get", func(ctx context.Context, c *counter) error {
			if x, err := c.get(ctx, "x"); err != nil || x != 7 {
				t.Errorf("x is %d, %v", x, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestHostClosesDuringARestore closes a host whose archive takes no records.
func TestHostClosesDuringARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := pausedShipping(t)
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		now := bookmark(t, h, "a")
		done := make(chan error, 1)
		go func() { _, err := h.RestoreObject(t.Context(), id("a"), now); done <- err }()
		synctest.Wait()
		begun := time.Now()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, ErrClosed) || time.Since(begun) > 0 {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}
