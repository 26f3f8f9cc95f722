package budget

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var first, second = Object{"class", "first"}, Object{"class", "second"}

// unlent is the size that a lease may need in the end, for Reserve and Take: it is larger than the reserve, which lends such a lease no bytes.
const unlent = 1 << 40

func TestLeaseCountsOnlyBytesAboveFree(t *testing.T) {
	b := New(400)
	l := b.Lease(first)
	for _, tt := range []struct{ size, used int64 }{{10, 0}, {Free, 0}, {Free + 60, 60}, {Free, 60}, {Free + 100, 100}} {
		if err := l.Reserve(nil, tt.size, unlent); err != nil || b.Usage().Used != tt.used {
			t.Errorf("size %d: %v, used %d, want %d", tt.size, err, b.Usage().Used, tt.used)
		}
	}
	l.Release()
	l.Release()
	if u := b.Usage(); u != (Usage{Limit: 400}) || b.Largest() != Free+100 {
		t.Errorf("released: %+v, the largest lease has %d bytes", u, b.Largest())
	}
	if err := l.Reserve(nil, Free+101, unlent); !errors.Is(err, ErrExhausted) || b.Usage().Refused != 1 {
		t.Errorf("more than the largest: %v, %+v", err, b.Usage())
	}
	var none *Lease
	if err := none.Reserve(nil, 1<<40, unlent); err != nil {
		t.Error(err)
	}
	none.Release()
}

// TestSmallestNeedGetsBytesFirst has leases that wait, two of them for the same number of bytes, and one of another object.
// The largest lease of the first object begins to wait first.
func TestSmallestNeedGetsBytesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(400)
		holder := b.Lease(first)
		if err := holder.Reserve(nil, Free+100, unlent); err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 4)
		wait := func(name string, o Object, n int64) *Lease {
			l := b.Lease(o)
			go func() {
				if err := l.Reserve(nil, Free+n, unlent); err != nil {
					name += ": " + err.Error()
				}
				order <- name
			}()
			synctest.Wait()
			return l
		}
		large := wait("large", first, 80)
		small := wait("small", first, 65)
		later := wait("later", first, 65)
		wait("other", second, 90)
		if len(order) != 0 {
			t.Fatalf("%s did not wait", <-order)
		}
		for i, want := range []string{"small", "later", "large", "other"} {
			[]*Lease{holder, small, later, large}[i].Release()
			synctest.Wait()
			if len(order) != 1 {
				t.Fatalf("%d leases get bytes, want %s alone", len(order), want)
			}
			if got := <-order; got != want {
				t.Errorf("%s gets bytes, want %s", got, want)
			}
		}
	})
}

// TestReserveDoesNotDeadlock has two leases that each wait for the bytes of the other.
func TestReserveDoesNotDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(400)
		results := make(chan error, 2)
		began := time.Now()
		for range 2 {
			l := b.Lease(first)
			if err := l.Reserve(nil, Free+50, unlent); err != nil {
				t.Fatal(err)
			}
			go func() {
				err := l.Reserve(nil, Free+100, unlent)
				l.Release()
				results <- err
			}()
		}
		first, second := <-results, <-results
		if errors.Is(first, ErrExhausted) == errors.Is(second, ErrExhausted) && first == nil {
			t.Errorf("%v and %v, want one to give up", first, second)
		}
		if took := time.Since(began); took != Wait || b.Usage().Used != 0 {
			t.Errorf("took %v, %+v", took, b.Usage())
		}
	})
}

func TestReserveEndsWithQuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(400)
		holder, waiter := b.Lease(first), b.Lease(Object{})
		if err := holder.Reserve(nil, Free+90, unlent); err != nil {
			t.Fatal(err)
		}
		quit := make(chan struct{})
		ended := make(chan error, 1)
		go func() { ended <- waiter.Reserve(quit, Free+80, unlent) }()
		synctest.Wait()
		close(quit)
		if err := <-ended; !errors.Is(err, ErrExhausted) {
			t.Error(err)
		}
		if u := b.Usage(); u != (Usage{Used: 90, Limit: 400}) || !waiter.Idle() {
			t.Errorf("%+v", u)
		}
		if err := waiter.Reserve(nil, Free+70, unlent); err != nil {
			t.Errorf("a second attempt: %v", err)
		}
	})
}

// TestLeasesOfAnObjectHaveAtMostHalfOfTheShare has 300 clients of one object that release nothing. The first ones get nearly
// half of the share of the rule, and the others wait. A lease of another object and leases of unknown objects do not wait.
func TestLeasesOfAnObjectHaveAtMostHalfOfTheShare(t *testing.T) {
	b := New(4000)
	for range 300 {
		b.Lease(first).Take(Free+10, unlent)
	}
	if u := b.Usage().Used; u < 1480 || u > 1500 {
		t.Errorf("the leases of an object have %d bytes, want half of 3000", u)
	}
	for _, o := range []Object{second, {}, {}} {
		if b.Lease(o).Take(Free+10, unlent) != nil {
			t.Errorf("a lease of %v waits", o)
		}
	}
	if len(b.groups) != 2 {
		t.Errorf("%d objects have an entry", len(b.groups))
	}
}

// TestLeasesOfAClientHaveAtMostAThirdOfTheShare takes and moves bytes until the client waits. Another client of the object
// does not wait. The first client gets its bytes when enough of its moved leases are released.
func TestLeasesOfAClientHaveAtMostAThirdOfTheShare(t *testing.T) {
	b := New(400)
	l := b.Lease(first)
	var moved []*Lease
	for l.Take(Free+10, unlent) == nil {
		moved = append(moved, l.Move(unlent))
	}
	if u := b.Usage().Used; u != 100 || len(moved) != 10 {
		t.Errorf("%d leases of a client have %d bytes by the rule", len(moved), u)
	}
	other := b.Lease(first)
	if other.Take(Free+30, unlent) != nil {
		t.Error("another client waits")
	}
	if l.Idle() {
		t.Error("the client has no bytes")
	}
	for _, m := range moved[:3] { // the third one ends the wait
		if l.held() != 0 {
			t.Errorf("the lease has %d bytes while the client has %d", l.held(), l.of.used)
		}
		m.Release()
	}
	if l.held() != 10 || b.Usage().Used != 110 {
		t.Errorf("the lease has %d bytes, %+v", l.held(), b.Usage())
	}
	for _, m := range append(moved[3:], l, other) {
		m.Release()
	}
	if !l.Idle() || b.Usage().Used != 0 || len(b.groups) != 0 {
		t.Errorf("in the end: %+v, %d objects", b.Usage(), len(b.groups))
	}
}

// TestLowerEndsAWait lowers the size of a lease that waits. The budget does not have the bytes for the first size, and has them for
// the second. The third size is below the bytes of the lease.
func TestLowerEndsAWait(t *testing.T) {
	b := New(400)
	holder, l := b.Lease(first), b.Lease(second)
	if holder.Take(Free+90, unlent) != nil || l.Take(Free+20, unlent) != nil {
		t.Fatal("there are no bytes")
	}
	ready := l.Take(Free+100, unlent)
	for _, tt := range []struct {
		size, held int64
		waits      bool
	}{{90, 20, true}, {70, 70, false}, {10, 10, false}} {
		l.Lower(Free+tt.size, unlent)
		waits := true
		select {
		case <-ready:
			waits = false
		default:
		}
		if waits != tt.waits || l.held() != tt.held {
			t.Errorf("size %d: it has %d, and waits: %t", tt.size, l.held(), waits)
		}
	}
	ready = l.Take(Free+200, unlent)
	l.Lower(Free+5, unlent) // fewer than it has
	if <-ready; l.held() != 5 || len(b.waiting) != 0 {
		t.Errorf("it has %d, %d objects wait", l.held(), len(b.waiting))
	}
}
