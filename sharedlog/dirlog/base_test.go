package dirlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/sharedlog"
)

// appendAll appends the next records, whose contents are their numbers.
func appendAll(t *testing.T, o *lease, count int) {
	t.Helper()
	for range count {
		n := o.number + 1
		if err := o.Append(t.Context(), n, fmt.Append(nil, n)); err != nil {
			t.Fatal(err)
		}
	}
}

// cut publishes a base and purges the records before it.
func cut(t *testing.T, o *lease, number uint64) {
	t.Helper()
	if err := writeBase(t, o, number); err != nil {
		t.Fatal(err)
	}
	if err := o.Purge(t.Context(), number); err != nil {
		t.Fatal(err)
	}
}

func writeBase(t *testing.T, o *lease, number uint64) error {
	return o.WriteBase(t.Context(), number, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "state %d", number)
		return err
	})
}

// revive makes a former owner believe that its lease is valid, as a machine does whose clock stood still.
func revive(o *lease) {
	o.invalid.Store(false)
	o.deadline.Store(int64(24 * time.Hour))
}

// TestSlotThatIsPurgedIsNotFilledAgain has a former owner whose next slots were filled and purged since.
func TestSlotThatIsPurgedIsNotFilledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := open(t)
		const start = slotsInFolder - 8
		if err := os.MkdirAll(a.folder(start), privateDirs); err != nil {
			t.Fatal(err)
		}
		if _, err := a.fill(start, &slot{kind: kindRecord, generation: 1, number: start, payload: fmt.Append(nil, start)}); err != nil {
			t.Fatal(err)
		}
		old := acquire(t, a)
		appendAll(t, old, 3)
		former := old.number
		old.endRenewals()
		o := acquire(t, b)
		appendAll(t, o, 10)
		cut(t, o, o.number-1)
		for range 2 {
			revive(old)
			if err := old.Append(t.Context(), former+1, []byte("late")); !errors.Is(err, sharedlog.ErrFenced) {
				t.Errorf("append of the former owner: %v", err)
			}
			revive(old)
			if err := writeBase(t, old, former); !errors.Is(err, sharedlog.ErrFenced) {
				t.Errorf("base of the former owner: %v", err)
			}
		}
		if files, err := os.ReadDir(filepath.Join(a.dir, "bases")); err != nil || len(files) != 1 {
			t.Errorf("there are %v, %v, want the newest base", files, err)
		}
		if files, err := os.ReadDir(a.folder(start)); err != nil || len(files) != 2 {
			t.Errorf("the first folder has %v, %v, want the beginnings of 2 ownerships", files, err)
		}
		appendAll(t, o, 1)
		if err := o.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		last, want := acquire(t, a), o.number-2
		for b, err := range last.Read(t.Context(), want) {
			if err != nil || string(b) != fmt.Sprint(want) {
				t.Fatalf("record %d is %q, %v", want, b, err)
			}
			want++
		}
		if want != o.number+1 {
			t.Errorf("the last record read is %d, want %d", want-1, o.number)
		}
	})
}

// TestPurgeThatIsLateRemovesOnlyRecordsOfItsBase has a former owner that continues with a purge after a take-over.
func TestPurgeThatIsLateRemovesOnlyRecordsOfItsBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := open(t)
		old := acquire(t, a)
		appendAll(t, old, 6)
		if err := writeBase(t, old, 4); err != nil {
			t.Fatal(err)
		}
		old.endRenewals()
		o := acquire(t, b)
		revive(old)
		if err := old.Purge(t.Context(), 5); err == nil {
			t.Error("records after the base were purged")
		}
		n := 0
		for _, err := range o.Read(t.Context(), 1) {
			if n++; n == 1 {
				if err := old.Purge(t.Context(), 4); err != nil { // no fence, but the next owner has the base
					t.Error(err)
				}
			} else if !errors.Is(err, sharedlog.ErrPurged) || n > 2 {
				t.Errorf("step %d of a read during a purge: %v", n, err)
			}
		}
		if n != 2 {
			t.Errorf("a read during a purge has %d steps", n)
		}
		n = 0
		for _, err := range o.Read(t.Context(), 4) {
			if n++; err != nil {
				t.Fatal(err)
			}
		}
		if n != 3 || o.Base() != 4 {
			t.Errorf("%d records follow the base of record %d", n, o.Base())
		}
	})
}

// TestPurgeWhileRecordsAreRead removes the slots of a purge one by one, and reads from each record after each.
func TestPurgeWhileRecordsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := open(t)
		o := acquire(t, a)
		appendAll(t, o, 3)
		if err := writeBase(t, o, 2); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := o.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			o = acquire(t, a)
			appendAll(t, o, 3)
		}
		if err := writeBase(t, o, 8); err != nil {
			t.Fatal(err)
		}
		if err := o.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		o = acquire(t, a)
		tried := 0
		for slot := uint64(1); ; slot++ {
			for from := uint64(1); from <= 9; from++ {
				tried++
				next := from
				for b, err := range o.Read(t.Context(), from) {
					if errors.Is(err, sharedlog.ErrPurged) && next < 8 {
						next = 10
						break
					}
					if err != nil || string(b) != fmt.Sprint(next) {
						t.Fatalf("%d slots are purged, from record %d: record %d is %q, %v", slot-1, from, next, b, err)
					}
					next++
				}
				if next != 10 {
					t.Fatalf("%d slots are purged, from record %d: the end is after record %d", slot-1, from, next-1)
				}
			}
			s, err := a.read(slot)
			if err != nil {
				t.Fatal(err)
			}
			if s.number == 8 {
				break
			}
			if s.kind != kindOwner {
				_ = os.Remove(a.path(slot))
			}
		}
		if tried < 9*9 {
			t.Errorf("only %d reads were tried", tried)
		}
		if err := os.Remove(a.path(o.acquired.slot - 1)); err != nil { // the record after the base
			t.Fatal(err)
		}
		for _, err := range o.Read(t.Context(), 9) {
			if err == nil || errors.Is(err, sharedlog.ErrPurged) {
				t.Errorf("a lost record: %v", err)
			}
		}
	})
}

// TestBaseWithUnknownOutcome appends and purges after a base that may be published.
func TestBaseWithUnknownOutcome(t *testing.T) {
	for _, filled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, _ := open(t)
			o := acquire(t, a)
			appendAll(t, o, 5)
			b := base{number: 4, size: 7, slot: o.slot + 1, generation: o.generation}
			if err := os.WriteFile(b.file(a), []byte("state 4"), private); err != nil {
				t.Fatal(err)
			}
			o.unknown = &slot{kindBase, o.generation, o.number, b.encode()}
			if filled {
				if _, err := a.fill(b.slot, o.unknown); err != nil {
					t.Fatal(err)
				}
			}
			if err := o.Purge(t.Context(), 4); err == nil {
				t.Error("records were purged after a base that may not be published")
			}
			if err := writeBase(t, o, 5); !errors.Is(err, sharedlog.ErrUnavailable) {
				t.Errorf("another base: %v", err)
			}
			appendAll(t, o, 1)
			if err := o.Append(t.Context(), 6, []byte("6")); err != nil {
				t.Errorf("a repetition: %v", err)
			}
			if err := o.Purge(t.Context(), 4); err != nil {
				t.Error(err)
			}
			if err := o.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			next := acquire(t, a)
			if next.Base() != 4 || next.Newest() != 6 {
				t.Errorf("the next owner has base %d and record %d", next.Base(), next.Newest())
			}
		})
	}
}

// TestBaseIsPublishedByItsSlot has files of bases that were not published, and damages the published one.
func TestBaseIsPublishedByItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := open(t)
		o := acquire(t, a)
		appendAll(t, o, 5)
		if err := writeBase(t, o, 3); err != nil {
			t.Fatal(err)
		}
		appendAll(t, o, 1)
		for _, slot := range []uint64{2, o.slot, o.slot + 1, o.slot + 2} {
			f := base{slot: slot, generation: o.generation}
			if err := os.WriteFile(f.file(a), []byte("state 9"), private); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := acquire(t, b)
		if next.Base() != 3 {
			t.Fatalf("the base is that of record %d", next.Base())
		}
		if files, err := os.ReadDir(filepath.Join(a.dir, "bases")); err != nil || len(files) != 1 {
			t.Errorf("there are %v, %v, want the newest base", files, err)
		}
		path := next.acquired.file(b)
		for what, damage := range map[string]func() error{
			"a base without its end": func() error { return os.Truncate(path, 3) },
			"no base":                func() error { return os.Remove(path) },
		} {
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			if r, err := next.ReadBase(t.Context()); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v, %v", what, r, err)
			}
			if err := os.WriteFile(path, []byte("state 3"), private); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestOwnerThatWasSuspendedRemovesNoNewerBase has an owner that was suspended when it had acquired the log, before it removed old bases.
func TestOwnerThatWasSuspendedRemovesNoNewerBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := open(t)
		old := acquire(t, a)
		appendAll(t, old, 3)
		if err := writeBase(t, old, 1); err != nil {
			t.Fatal(err)
		}
		old.endRenewals()
		o := acquire(t, b)
		if err := writeBase(t, o, 3); err != nil {
			t.Fatal(err)
		}
		a.cleanBases(old.generation, &old.base)
		if err := o.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, err := acquire(t, a).ReadBase(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(r); err != nil || string(text) != "state 3" {
			t.Errorf("the base is %q, %v", text, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}
