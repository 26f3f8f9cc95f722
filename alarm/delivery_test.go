package alarm

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/objectstore"
)

// TestDeliveryThatWaitsFreesItsPlace lets deliveries wait, up to their own bound, and ends all of them: then as many
// deliveries as before may be out.
func TestDeliveryThatWaitsFreesItsPlace(t *testing.T) {
	for _, atStart := range []bool{false, true} {
		t.Run(fmt.Sprint("at the start ", atStart), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const rooms = 4
				x := newIndex()
				for i := range 200 {
					due := time.Now().Add(-time.Minute)
					if atStart {
						due = time.Now().Add(100 * time.Hour)
					}
					x.set(fmt.Sprintf("n%03d", i), due, func(s *objectstore.Slot) { s.AtStart = atStart })
				}
				c := Config{Concurrency: rooms}
				if atStart {
					c = Config{Group: rooms}
				}
				s := x.start(c)
				s.Start()
				synctest.Wait()
				out := 0
				next := func(want int, what string) []objectstore.Alarm {
					t.Helper()
					synctest.Wait()
					x.mu.Lock()
					defer x.mu.Unlock()
					fresh := x.delivered[out:]
					if out += len(fresh); len(fresh) != want {
						t.Fatalf("%d %s, want %d", len(fresh), what, want)
					}
					return fresh
				}
				first := next(rooms, "at first")
				for range 2 { // twice counts once
					for _, a := range first {
						s.MarkSuspended(a)
					}
				}
				second := next(rooms, "more, once those wait")
				for _, a := range append(first, second...) {
					x.done(a, false)
				}
				third := next(rooms, "once all are back")
				for _, a := range third[:rooms/2] {
					x.done(a, false)
				}
				next(rooms/2, "once half of them are back")
				s.Stop()
			})
		})
	}
}

// TestDeliveriesInProgressAreBounded lets all deliveries wait concurrently.
func TestDeliveriesInProgressAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIndex()
		for i := range 200 {
			x.set(fmt.Sprintf("n%03d", i), time.Now().Add(-time.Minute), nil)
		}
		s := x.start(Config{Concurrency: 4})
		x.onDeliver = func(a objectstore.Alarm) { s.MarkSuspended(a) }
		s.Start()
		synctest.Wait()
		if n := len(x.names()); n != 16*4 {
			t.Errorf("%d are out", n)
		}
		s.Stop()
	})
}
