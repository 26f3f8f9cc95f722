package dohost_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/examples/counter"
	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/objectstore"
)

// ledgered counts, and can go back.
type ledgered struct{ st *dohost.State }

const ledgereds dohost.Namespace[ledgered] = "ledgered"

func ledgeredClass() dohost.Class {
	return dohost.Bind(ledgereds, func(_ context.Context, st *dohost.State) (*ledgered, error) { return &ledgered{st}, nil }, nil)
}

func (l *ledgered) add(ctx context.Context, n int) (int, error) {
	old, _, err := dohost.Get[int](ctx, l.st.Storage(), "n")
	if err != nil {
		return 0, err
	}
	return old + n, dohost.Put(ctx, l.st.Storage(), "n", old+n)
}

func (l *ledgered) bookmark(ctx context.Context, n int) (dohost.Bookmark, error) {
	if _, err := l.add(ctx, n); err != nil {
		return "", err
	}
	return l.st.Bookmark(ctx)
}

func (l *ledgered) back(ctx context.Context, to dohost.Bookmark) (int, error) {
	if err := l.st.RestoreTo(ctx, dohost.RestorePoint{Bookmark: to}); !errors.Is(err, dohost.ErrConflict) {
		return 0, err
	}
	return l.add(ctx, 1000) // the bookmark is of another history, and the event continues
}

// TestObjectGoesBackToABookmark restores an object by its own code and by the host, and refuses other bookmarks.
func TestObjectGoesBackToABookmark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		a, err := objectstore.OpenDirArchive(fs, "/archive")
		if err != nil {
			t.Fatal(err)
		}
		h := openOn(t, fs, &dohost.Options{Ship: a}, ledgeredClass())
		time.Sleep(5 * time.Second) // the first base
		o := ledgereds.Get(h, "a")
		wants := func(want int) {
			t.Helper()
			if n, err := dohost.Call(t.Context(), o, (*ledgered).add, 0); err != nil || n != want {
				t.Errorf("the object has %d, %v; want %d", n, err, want)
			}
		}
		var marks []dohost.Bookmark
		for n := range 4 {
			b, err := dohost.Call(t.Context(), o, (*ledgered).bookmark, n+1)
			if err != nil || n > 0 && b <= marks[n-1] {
				t.Fatalf("bookmark %s after %v, %v", b, marks, err)
			}
			marks = append(marks, b)
		}
		_, err = dohost.Call(t.Context(), o, (*ledgered).back, marks[1])
		if why, ok := errors.AsType[*dohost.Fenced](err); !ok || why.Reason != "restored to an earlier state" {
			t.Errorf("the caller of RestoreTo got %v", err)
		}
		wants(3)
		undo, err := h.RestoreObject(t.Context(), o.ID(), dohost.RestorePoint{Bookmark: marks[3]})
		if err != nil || undo <= marks[3] {
			t.Errorf("undo %s after %s, %v", undo, marks[3], err)
		}
		wants(10)
		if _, err := h.RestoreObject(t.Context(), o.ID(), dohost.RestorePoint{Bookmark: undo}); err != nil {
			t.Error(err)
		}
		wants(3)
		if b, err := h.Bookmark(); err != nil || b <= undo {
			t.Errorf("the bookmark of the host is %s after %s, %v", b, undo, err)
		}
		foreign := marks[0][:17] + "00000001" + marks[0][25:]
		if n, err := dohost.Call(t.Context(), o, (*ledgered).back, foreign); err != nil || n != 1003 {
			t.Errorf("after a foreign bookmark: %d, %v", n, err)
		}
		for kind, to := range map[error]dohost.RestorePoint{
			dohost.ErrMisuse: {Bookmark: "x"}, dohost.ErrConflict: {Bookmark: foreign}, dohost.ErrNotFound: {Record: 1e6},
		} {
			if _, err := h.RestoreObject(t.Context(), o.ID(), to); !errors.Is(err, kind) {
				t.Errorf("as of %+v: %v, want %v", to, err, kind)
			}
		}
	})
}

// TestRestoreLeavesTheOldOrTheNewObjectWhereverThePowerFails cuts the power before each write of a restore, and opens the next host.
func TestRestoreLeavesTheOldOrTheNewObjectWhereverThePowerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		a, err := objectstore.OpenDirArchive(fs, "/archive")
		if err != nil {
			t.Fatal(err)
		}
		h := openOn(t, fs, &dohost.Options{Ship: a}, counter.Class())
		time.Sleep(5 * time.Second)
		c := counter.Counters.Get(h, "a")
		add := func(n int) {
			if _, err := dohost.Call(t.Context(), c, (*counter.Counter).Add, n); err != nil {
				t.Fatal(err)
			}
		}
		add(1)
		earlier, err := h.Bookmark()
		if err != nil {
			t.Fatal(err)
		}
		add(10)
		type image struct {
			fs   *objectstore.FS
			done bool
		}
		var mu sync.Mutex
		var images []image
		done := false
		fs.OnWrite(func(_, _ string, k int64) error {
			mu.Lock()
			defer mu.Unlock()
			images = append(images, image{fs.Crash([]int{0, 50, 100}[k%3], uint64(k)), done})
			return nil
		})
		if _, err := h.RestoreObject(t.Context(), c.ID(), dohost.RestorePoint{Bookmark: earlier}); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		done = true
		mu.Unlock()
		add(100)
		time.Sleep(3 * time.Second)
		fs.OnWrite(nil)
		mu.Lock()
		defer mu.Unlock()
		found := map[int]int{}
		step := 1
		if invariants.Enabled {
			step = 2
		}
		for i := 0; i < len(images); i += step {
			next := openOn(t, images[i].fs, nil, counter.Class())
			n, err := dohost.Call(t.Context(), counter.Counters.Get(next, "a"), (*counter.Counter).Add, 0)
			if found[n]++; err != nil || n != 1 && n != 101 && (n != 11 || images[i].done) {
				t.Errorf("image %d of %d, restored %t: the counter has %d, %v", i, len(images), images[i].done, n, err)
			}
			if err := next.Close(); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%d images: %v", len(images), found)
		if found[11] < 3 || found[1]+found[101] < 3 {
			t.Error("too few images were tried")
		}
	})
}
