package objectstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// partArchive is an archive whose Put calls fail with the name of a part of a base.
func partArchive(fail func(name string) error) *memArchive {
	a := newMemArchive()
	a.onPut = func(name string) error {
		if strings.Contains(name, ".base.") {
			return fail(name)
		}
		return nil
	}
	return a
}

// snapshotsOf returns the number of snapshots that are open.
func snapshotsOf(s *Store) int {
	s.snapshots.mu.Lock()
	defer s.snapshots.mu.Unlock()
	return len(s.snapshots.open)
}

// TestBaseThatCannotBePutIsDropped has an archive that fails after the first part of a base: in all puts, or only in puts of bases.
func TestBaseThatCannotBePutIsDropped(t *testing.T) {
	for _, all := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a, fault, down := newMemArchive(), errors.New("a fault"), false
			a.refuse = fault // until there are some rows
			s := shipTo(t, NewMemFS(), a, func(sh *Shipping) { sh.part = 1 })
			defer s.Abandon()
			for i := range 5 {
				put(t, s, fmt.Sprint("o", i), "n", "1")
			}
			a.set(func(a *memArchive) {
				a.refuse = nil
				a.onPut = func(name string) error {
					if down = down || strings.HasSuffix(name, "base.00001"); down && (all || strings.Contains(name, ".base.")) {
						return fault
					}
					return nil
				}
			})
			time.Sleep(10 * time.Second)
			if n := snapshotsOf(s); n != 1 {
				t.Fatalf("%d snapshots during a base", n)
			}
			dropped := 0
			for range 2 * 60 {
				put(t, s, "o", "n", "2")
				time.Sleep(time.Minute)
				if snapshotsOf(s) == 0 {
					dropped++
				}
			}
			if dropped < 2*60-20 {
				t.Errorf("all puts fail: %v: no base was open at %d of 120 minutes", all, dropped)
			}
			a.set(func(a *memArchive) { a.onPut = nil })
			time.Sleep(maxBaseDelay + time.Minute)
			wantShipped(t, s, a)
			if n := snapshotsOf(s); n != 0 {
				t.Errorf("%d snapshots after the base", n)
			}
		})
	}
}

// waitingArchive has a Put that waits for the end of its context.
type waitingArchive struct {
	*memArchive
	parts bool // only for parts of bases
}

func (a waitingArchive) Put(ctx context.Context, name string, content []byte) error {
	if a.parts && !strings.Contains(name, ".base.") {
		return a.memArchive.Put(ctx, name, content)
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// TestArchiveThatDoesNotAnswerIsOneThatFails has puts that return with their context only.
func TestArchiveThatDoesNotAnswerIsOneThatFails(t *testing.T) {
	for _, parts := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a := waitingArchive{newMemArchive(), parts}
			s := shipTo(t, NewMemFS(), a)
			defer s.Abandon()
			put(t, s, "o", "n", "1")
			time.Sleep(2 * time.Second)
			put(t, s, "o", "n", "2")
			time.Sleep(3 * callTime)
			if st := s.Stats().Ship; !errors.Is(st.Err, context.DeadlineExceeded) || parts && st.Records != 0 {
				t.Errorf("only parts of bases: %v: %+v", parts, st)
			}
			dropped := 0
			for range 10 {
				time.Sleep(10 * time.Minute)
				if snapshotsOf(s) == 0 {
					dropped++
				}
			}
			if dropped == 0 {
				t.Errorf("only parts of bases: %v: a base is kept", parts)
			}
		})
	}
}

// wantRecordsShipped puts a record each minute for two hours, and wants each in the archive two seconds later, with few attempts
// to make a base.
func wantRecordsShipped(t *testing.T, s *Store, why error) {
	t.Helper()
	for i := range 120 {
		put(t, s, "other", "n", fmt.Sprint(i))
		time.Sleep(2 * time.Second)
		if st := s.Stats().Ship; st.Records != 0 || !errors.Is(st.Err, why) || !st.NeedsBase {
			t.Fatalf("minute %d: %+v", i, st)
		}
		time.Sleep(58 * time.Second)
	}
	if st := s.Stats().Ship; st.Failures < 3 || st.Failures > 70 {
		t.Errorf("%d attempts in two hours", st.Failures)
	}
}

func TestBaseThatFailsDelaysNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fault := errors.New("a fault")
		s := shipTo(t, NewMemFS(), partArchive(func(string) error { return fault }))
		defer s.Abandon()
		wantRecordsShipped(t, s, fault)
	})
	synctest.Test(t, func(t *testing.T) {
		fs := damagedStore(t, false)
		flip(t, fs, func(table []byte) int { return len(table) / 2 })
		s := shipTo(t, fs, newMemArchive())
		defer s.Abandon()
		wantRecordsShipped(t, s, ErrDamaged)
	})
}

// TestRecordsAreShippedBeforeTheNextPartOfABase commits many records while each part of a base takes a second.
func TestRecordsAreShippedBeforeTheNextPartOfABase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newMemArchive()
		a.refuse = errors.New("down")
		s := shipTo(t, NewMemFS(), a, func(sh *Shipping) { sh.part, sh.shipment = 1, 1000 })
		defer s.Abandon()
		for i := range 8 {
			put(t, s, fmt.Sprint("o", i), "n", "1")
		}
		var mu sync.Mutex // guards names
		var names []string
		burst := make(chan struct{})
		a.set(func(a *memArchive) {
			a.refuse = nil
			a.onPut = func(name string) error {
				mu.Lock()
				names = append(names, name)
				mu.Unlock()
				if strings.HasSuffix(name, "base.00002") {
					close(burst)
				}
				time.Sleep(time.Second)
				return nil
			}
		})
		<-burst
		for range 10 {
			put(t, s, "o0", "n", strings.Repeat("x", 1000))
		}
		time.Sleep(2 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		order := ""
		for _, name := range names {
			if strings.Contains(name, ".base.") {
				order += "b"
			} else {
				order += "r"
			}
		}
		if !strings.HasPrefix(order, "bbbrrrrrrrrrrb") {
			t.Errorf("objects are put in the order %s", order)
		}
		wantShipped(t, s, a)
	})
}

// gatedArchive waits with each part of a base, and refuses it then.
type gatedArchive struct {
	*memArchive
	open chan struct{}
}

func (a gatedArchive) Put(ctx context.Context, name string, content []byte) error {
	if strings.Contains(name, ".base.") {
		<-a.open
		return errors.New("a fault")
	}
	return a.memArchive.Put(ctx, name, content)
}

// TestCloseShipsTheRecordsOfAFailedPart closes the store during a put of a base, which fails then.
func TestCloseShipsTheRecordsOfAFailedPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := gatedArchive{newMemArchive(), make(chan struct{})}
		s := shipTo(t, NewMemFS(), a)
		put(t, s, "o", "n", "1")
		time.Sleep(2 * time.Second)
		put(t, s, "o", "n", "2")
		go func() {
			time.Sleep(time.Second)
			close(a.open)
		}()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if st := s.Stats().Ship; st.Records != 0 || !strings.Contains(a.names(), ".records.") {
			t.Errorf("after Close: %+v, %s", st, a.names())
		}
	})
}
