package budget

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestLeaseCountsOnlyBytesAboveFree(t *testing.T) {
	b := New(100)
	l := b.Lease()
	for _, tt := range []struct{ size, used int64 }{{10, 0}, {Free, 0}, {Free + 60, 60}, {Free, 60}, {Free + 100, 100}} {
		if err := l.Reserve(nil, tt.size); err != nil || b.Usage().Used != tt.used {
			t.Errorf("size %d: %v, used %d, want %d", tt.size, err, b.Usage().Used, tt.used)
		}
	}
	l.Release()
	l.Release()
	if u := b.Usage(); u != (Usage{Limit: 100}) {
		t.Errorf("released: %+v", u)
	}
	if err := l.Reserve(nil, Free+101); !errors.Is(err, ErrExhausted) || b.Usage().Refused != 1 {
		t.Errorf("more than there is: %v, %+v", err, b.Usage())
	}
	var none *Lease
	if err := none.Reserve(nil, 1<<40); err != nil {
		t.Error(err)
	}
	none.Release()
}

// TestReserveWaitsInOrder makes a large and then a small reservation wait. The small one does not overtake the large
// one.
func TestReserveWaitsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(100)
		first, large, small := b.Lease(), b.Lease(), b.Lease()
		if err := first.Reserve(nil, Free+60); err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 2)
		wait := func(name string, l *Lease, n int64) {
			go func() {
				if err := l.Reserve(nil, Free+n); err != nil {
					name += ": " + err.Error()
				}
				order <- name
			}()
			synctest.Wait()
		}
		wait("large", large, 100)
		wait("small", small, 10)
		if len(order) != 0 {
			t.Errorf("%s did not wait", <-order)
		}
		first.Release()
		synctest.Wait()
		if len(order) != 1 || <-order != "large" {
			t.Error("the large one is not the first")
		}
		large.Release()
		synctest.Wait()
		if len(order) != 1 || <-order != "small" {
			t.Error("the small one is not the second")
		}
		small.Release()
		if u := b.Usage(); u != (Usage{Limit: 100}) {
			t.Errorf("in the end: %+v", u)
		}
	})
}

// TestReserveDoesNotDeadlock has two holders that each wait for the bytes of the other.
func TestReserveDoesNotDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(100)
		results := make(chan error, 2)
		began := time.Now()
		for range 2 {
			l := b.Lease()
			if err := l.Reserve(nil, Free+50); err != nil {
				t.Fatal(err)
			}
			go func() {
				err := l.Reserve(nil, Free+100)
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
		b := New(100)
		holder, waiter, next := b.Lease(), b.Lease(), b.Lease()
		if err := holder.Reserve(nil, Free+50); err != nil {
			t.Fatal(err)
		}
		quit := make(chan struct{})
		ended, admitted := make(chan error, 1), make(chan error, 1)
		go func() { ended <- waiter.Reserve(quit, Free+80) }()
		synctest.Wait()
		go func() { admitted <- next.Reserve(nil, Free+50) }()
		synctest.Wait()
		close(quit)
		synctest.Wait()
		if err := <-ended; !errors.Is(err, ErrExhausted) {
			t.Error(err)
		}
		if err := <-admitted; err != nil || b.Usage().Used != 100 || b.Usage().Refused != 1 {
			t.Errorf("the one after it: %v, %+v", err, b.Usage())
		}
	})
}
