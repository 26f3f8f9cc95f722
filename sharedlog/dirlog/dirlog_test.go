package dirlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/sharedlog"
	"github.com/dohost/dohost/sharedlog/logtest"
)

func TestConformance(t *testing.T) {
	var dirs sync.Map // by test
	logtest.Run(t, logtest.Implementation{
		Open: func(t *testing.T, again bool) sharedlog.Log {
			if !again {
				dirs.Store(t.Name(), t.TempDir())
			}
			dir, _ := dirs.Load(t.Name())
			l, err := Open(dir.(string))
			if err != nil {
				t.Fatal(err)
			}
			return l
		},
		Suspend:     func(o sharedlog.Lease) { o.(*lease).endRenewals() },
		VirtualTime: true,
	})
}

// open opens the log in a directory twice, as two processes do.
func open(t *testing.T) (a, b *Log) {
	t.Helper()
	dir := t.TempDir()
	a, err := Open(dir)
	b, err2 := Open(dir)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func acquire(t *testing.T, l *Log) *lease {
	t.Helper()
	o, err := l.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Release(context.WithoutCancel(t.Context())) })
	return o.(*lease)
}

// TestOwnerKeepsTheLogWhileItLives has a second host that waits for a minute.
func TestOwnerKeepsTheLogWhileItLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := open(t)
		o := acquire(t, a)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := b.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second owner: %v", err)
		}
		if !o.Valid() {
			t.Error("the lease is not valid")
		}
		if err := o.Append(t.Context(), 1, []byte("x")); err != nil {
			t.Error(err)
		}
	})
}

// TestTakeOverFromASilentOwner compares the end of the former lease with the beginning of the next one.
func TestTakeOverFromASilentOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := open(t)
		old := acquire(t, a)
		if err := old.Append(t.Context(), 1, []byte("x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Second + 500*time.Millisecond)
		old.endRenewals() // its process is stopped
		begun := time.Now()
		o := acquire(t, b)
		took := time.Since(begun)
		select {
		case <-old.Lost():
		default:
			t.Error("the former lease was not lost before the next one began")
		}
		if old.Valid() {
			t.Error("the former lease is valid")
		}
		if took < leaseTime-leaseTime/renewals || took > leaseTime+leaseTime/polls {
			t.Errorf("the log was free after %v", took)
		}
		// A former owner whose clock stands still, and which predicts numbers.
		old.invalid.Store(false)
		old.deadline.Store(int64(time.Hour))
		for range 2 {
			err := old.Append(t.Context(), 2, []byte("y"))
			if !errors.Is(err, sharedlog.ErrFenced) || !strings.HasPrefix(err.Error(), "dirlog: generation 1: sharedlog: ") {
				t.Errorf("append of the former owner: %v", err)
			}
			old.invalid.Store(false)
			if err := o.Append(t.Context(), o.number+1, []byte("z")); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestLogIsAcquiredByOneOfManyHosts has hosts that wait for an owner that releases the log, and for one that falls silent.
func TestLogIsAcquiredByOneOfManyHosts(t *testing.T) {
	t.Run("released", func(t *testing.T) {
		testWaitingHosts(t, func(o *lease) {
			if err := o.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("silent", func(t *testing.T) { testWaitingHosts(t, (*lease).endRenewals) })
}

func testWaitingHosts(t *testing.T, end func(*lease)) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := open(t)
		o := acquire(t, a)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		acquired := make(chan sharedlog.Lease, 8)
		for range cap(acquired) {
			l, err := Open(a.dir)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				next, err := l.Acquire(ctx)
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				acquired <- next
			}()
		}
		end(o)
		owners := 0
		for range cap(acquired) {
			if next := <-acquired; next != nil {
				owners++
				defer func() { _ = next.Release(context.WithoutCancel(t.Context())) }()
			}
		}
		if owners != 1 {
			t.Errorf("%d hosts have acquired the log", owners)
		}
	})
}

// TestLogIsFreeAfterItsRelease also checks that a release ends the renewals.
func TestLogIsFreeAfterItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := open(t)
		for n := range 5 {
			begun := time.Now()
			o := acquire(t, []*Log{a, b}[n%2])
			if time.Since(begun) > 0 || o.Generation() != uint64(n+1) {
				t.Errorf("generation %d after %v", o.Generation(), time.Since(begun))
			}
			if err := o.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, folder := range []string{"alive", "released", "tmp"} {
			if files, err := os.ReadDir(filepath.Join(a.dir, folder)); err != nil || len(files) > 1 {
				t.Errorf("%s has %v, %v", folder, files, err)
			}
		}
	})
}

// TestDirectoryThatIsUnreachable takes the directory away from its owner.
func TestDirectoryThatIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := open(t)
		o := acquire(t, a)
		if err := os.Rename(a.dir, a.dir+".away"); err != nil {
			t.Fatal(err)
		}
		if err := o.Append(t.Context(), 1, []byte("x")); !errors.Is(err, sharedlog.ErrUnavailable) {
			t.Errorf("append without the directory: %v", err)
		}
		time.Sleep(leaseTime)
		if o.Valid() {
			t.Error("the lease is valid, although it was not renewed")
		}
		<-o.Lost()
		if err := os.Rename(a.dir+".away", a.dir); err != nil {
			t.Fatal(err)
		}
		if err := o.Append(t.Context(), 1, []byte("x")); !errors.Is(err, sharedlog.ErrFenced) {
			t.Errorf("append after the end of the lease: %v", err)
		}
	})
}

// TestSlotsInSeveralFolders crosses the limits of folders, with changes of the owner.
func TestSlotsInSeveralFolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := open(t)
		const start = 2*slotsInFolder - 4
		if err := os.MkdirAll(a.folder(start), privateDirs); err != nil {
			t.Fatal(err)
		}
		first := slot{kind: kindRecord, generation: 1, number: start, payload: []byte("first")}
		if _, err := a.fill(start, &first); err != nil {
			t.Fatal(err)
		}
		n := uint64(start)
		for range 4 {
			o := acquire(t, a)
			if o.Newest() != n {
				t.Errorf("the newest record is %d, want %d", o.Newest(), n)
			}
			want := uint64(start)
			for b, err := range o.Read(t.Context(), start) {
				if text := fmt.Sprint(want); err != nil || string(b) != text && want != start {
					t.Fatalf("record %d is %q, %v", want, b, err)
				}
				want++
			}
			if want != n+1 {
				t.Errorf("%d records were read, want %d", want-start, n+1-start)
			}
			for range 3 {
				n++
				if err := o.Append(t.Context(), n, fmt.Append(nil, n)); err != nil {
					t.Fatal(err)
				}
			}
			if err := o.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestSlotWithDamageIsNamed changes each byte of a slot.
func TestSlotWithDamageIsNamed(t *testing.T) {
	s := slot{kindRecord, 7, 9, []byte("payload")}
	b := s.encode()
	for i := range b {
		b[i] ^= 1
		if got, err := decodeSlot(b); err == nil {
			t.Errorf("byte %d is changed: %+v", i, got)
		}
		b[i] ^= 1
	}
	for n := range b {
		if got, err := decodeSlot(b[:n]); err == nil {
			t.Errorf("%d bytes: %+v", n, got)
		}
	}
	if got, err := decodeSlot(b); err != nil || string(got.payload) != "payload" || got.number != 9 || got.generation != 7 {
		t.Errorf("%+v, %v", got, err)
	}
}
