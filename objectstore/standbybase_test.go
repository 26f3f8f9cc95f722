package objectstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/internal/frame"
)

// partsArchive is an archive that counts the reads of each part of a base.
type partsArchive struct {
	*memArchive
	onPart func(n frame.Name) error // called before a part is read, with the archive's lock
	reads  map[uint32]int           // that returned the part
}

func (a *partsArchive) Get(ctx context.Context, name string) ([]byte, error) {
	n, _ := frame.ParseName(name)
	var err error
	a.set(func(*memArchive) {
		if !n.Base() {
			return
		}
		if err = a.onPart(n); err == nil {
			a.reads[n.Part]++
		}
	})
	if err != nil {
		return nil, err
	}
	return a.memArchive.Get(ctx, name)
}

// wantReadOnce wants that each part of the base was read once, and the first part twice: for its identity, and for its rows.
func (a *partsArchive) wantReadOnce(t *testing.T, parts int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.reads) != parts {
		t.Errorf("%d parts were read, want %d", len(a.reads), parts)
	}
	for part, n := range a.reads {
		if want := map[bool]int{true: 2, false: 1}[part == 0]; n != want {
			t.Errorf("part %d was read %d times, want %d", part, n, want)
		}
	}
}

// newestBase returns the newest base of an archive.
func newestBase(t *testing.T, a *memArchive) archivedBase {
	t.Helper()
	list, err := a.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bases := parseObjects(list).bases
	return bases[len(bases)-1]
}

// TestStandbyContinuesItsFirstBase has a part of the base that cannot be read for ten minutes.
func TestStandbyContinuesItsFirstBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := archiveOf(t, 12)
		states, base := history(t, whole), newestBase(t, whole)
		if len(base.parts) < 2 {
			t.Fatalf("a base of %d parts", len(base.parts))
		}
		down, begun := true, time.Now()
		var tries []time.Time
		a := &partsArchive{memArchive: whole, reads: map[uint32]int{}}
		a.onPart = func(n frame.Name) error {
			if n.Part != 1 {
				return nil
			}
			if down {
				tries = append(tries, time.Now())
				return errors.New("down")
			}
			return nil
		}
		y := standbyOf(t, NewMemFS(), a)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- y.Follow(ctx) }()
		time.Sleep(10 * time.Minute)
		var seen []time.Time
		a.set(func(*memArchive) { seen = slices.Clone(tries) })
		why := fmt.Sprintf("1 of %d parts of the base of record %d are replayed: reading object %v of the archive: down; failure %d, the next try is at 2000-",
			len(base.parts), base.number, base.parts[1], len(seen))
		if st := y.Status(); !strings.Contains(st.Waiting, why) || st.Record != 0 {
			t.Errorf("the status is %+v, want %q", st, why)
		}
		if len(seen) < 10 || len(seen) > 20 {
			t.Errorf("%d tries in ten minutes", len(seen))
		}
		jitter := false
		for i := 1; i < len(seen); i++ {
			gap, least := seen[i].Sub(seen[i-1]), min(time.Second<<(i-1), time.Minute)
			if gap < least || gap > least*5/4 {
				t.Errorf("try %d came %v after the one before, want %v and up to a quarter more", i, gap, least)
			}
			jitter = jitter || gap > least
		}
		if !jitter {
			t.Error("the delays have no jitter")
		}
		if _, err := y.Promote(t.Context()); !errors.Is(err, ErrStandbyLags) || !strings.Contains(err.Error(), "down") {
			t.Errorf("promoted: %v", err)
		}
		a.set(func(*memArchive) { down = false })
		time.Sleep(2 * time.Minute)
		list, err := whole.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		records := parseObjects(list).records
		y.wantState(t, fmt.Sprint("after ", time.Since(begun)), states, records[len(records)-1].Last)
		a.wantReadOnce(t, len(base.parts))
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// largeArchive returns the archive of a host with a base of many parts of about 20 KiB.
func largeArchive(t *testing.T) *memArchive {
	t.Helper()
	a := newMemArchive()
	a.refuse = errors.New("down")
	s := shipTo(t, NewMemFS(), a, func(sh *Shipping) { sh.part = 20 << 10 })
	for i := range 40 {
		put(t, s, "o", fmt.Sprintf("%02d", i), strings.Repeat(fmt.Sprint(i), 4<<10))
	}
	a.set(func(a *memArchive) { a.refuse = nil })
	time.Sleep(time.Minute)
	wantShipped(t, s, a)
	s.Abandon()
	return a
}

// TestStandbyFirstBaseKeepsTheReserve has a disk without the reserve at the start of the base, and in the middle of it.
func TestStandbyFirstBaseKeepsTheReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole, fs := largeArchive(t), NewMemFS()
		base := newestBase(t, whole)
		if len(base.parts) < 6 {
			t.Fatalf("a base of %d parts", len(base.parts))
		}
		a := &partsArchive{memArchive: whole, reads: map[uint32]int{}}
		full := true
		a.onPart = func(n frame.Name) error {
			if full && int(n.Part) == len(base.parts)/2 {
				fs.SetFree(1)
			}
			return nil
		}
		fs.SetFree(1 << 40)
		y := standbyOf(t, fs, a)
		if err := y.runPass(t); err != nil {
			t.Fatalf("the disk is full in the middle: %v", err)
		}
		if st := y.Status(); !strings.Contains(st.Waiting, "disk almost full") || st.Record != 0 {
			t.Errorf("the disk is full in the middle: %+v", st)
		}
		if n := len(a.reads); n >= len(base.parts) {
			t.Errorf("%d of %d parts were read while the disk was full", n, len(base.parts))
		}
		y.wantWaits(t, "failure 2, ")
		full = false
		fs.SetFree(1 << 40)
		y.wantWaits(t, "")
		y.wantState(t, "the end", history(t, whole), base.number)
		a.wantReadOnce(t, len(base.parts))
	})
}

// TestStandbyFirstBaseIsClosed closes a standby with a part of a base, and opens it again.
func TestStandbyFirstBaseIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole, fs := archiveOf(t, 6), NewMemFS()
		fs.SetFree(1)
		y := standbyOf(t, fs, whole)
		y.wantWaits(t, "disk almost full")
		other := largeArchive(t)
		y.from.archive = other // the base is gone: the standby begins with another one
		fs.SetFree(1 << 40)
		y.wantWaits(t, "")
		y.wantState(t, "another base", history(t, other), y.Status().Record)
		fs = NewMemFS()
		fs.SetFree(1)
		y = standbyOf(t, fs, whole)
		y.wantWaits(t, "disk almost full")
		if err := y.Close(); err != nil {
			t.Fatal(err)
		}
		fs.SetFree(1 << 40)
		y = standbyOf(t, fs, whole)
		y.wantWaits(t, "")
		y.wantState(t, "opened again", history(t, whole), y.Status().Record)
	})
}
