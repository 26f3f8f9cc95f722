package alarm

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/objectstore"
)

// TestSchedulerMemoryIsBoundedPerClass has a class with very many overdue alarms and handlers that never return,
// and another class with a few alarms that become due one by one.
func TestSchedulerMemoryIsBoundedPerClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIndex()
		for i := range 10_000 {
			x.setOf("slow", fmt.Sprintf("%05d", i), time.Now().Add(-time.Hour), nil)
		}
		for i := range 60 {
			x.setOf("good", fmt.Sprint(i), time.Now().Add(time.Duration(i)*time.Minute), nil)
		}
		late := time.Duration(0)
		x.onDeliver = func(a objectstore.Alarm) {
			if a.ID.Class == "good" {
				late = max(late, time.Since(a.Due))
				go x.done(a, false)
			}
		}
		s := x.start(Config{Limit: 256, Concurrency: 8})
		s.Start()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		good, slow := 0, 0
		for _, a := range x.delivered {
			if a.ID.Class == "good" {
				good++
			} else {
				slow++
			}
		}
		if good != 60 || late > time.Second || slow != 8 {
			t.Errorf("%d good ones ran, %v late at most; %d slow ones are out", good, late, slow)
		}
		if n, _ := s.Pending(); n > 2*256 || x.rows["slow"] > 512 {
			t.Errorf("%d in memory, %d rows read of the slow class", n, x.rows["slow"])
		}
		s.Stop()
	})
}

// TestSchedulerReservesDeliveriesForEachClass fills the places of the host with classes that have handlers that never
// return.
func TestSchedulerReservesDeliveriesForEachClass(t *testing.T) {
	for _, waits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			x := newIndex()
			for class := range 5 {
				for i := range 400 {
					x.setOf(fmt.Sprint("c", class), fmt.Sprintf("%03d", i), time.Now().Add(time.Duration(class)*time.Minute), nil)
				}
			}
			s := x.start(Config{Concurrency: 8, HostConcurrency: 16, Reserve: 2})
			if waits {
				x.onDeliver = func(a objectstore.Alarm) { s.MarkSuspended(a) }
			}
			s.Start()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			out := map[string]int{}
			for _, a := range x.delivered {
				out[a.ID.Class]++
			}
			times := 1
			if waits {
				times = suspendedFactor
			}
			if got, want := fmt.Sprint(out), fmt.Sprintf("map[c0:%d c1:%d c2:%d c3:%d c4:%d]", 8*times, 8*times, 2*times, 2*times, 2*times); got != want {
				t.Errorf("waiting %v: out %v, want %v", waits, got, want)
			}
			s.Stop()
		})
	}
}

// TestAlarmParkedIsNotDelivered parks an alarm that is in memory, one that is out, and one
// that is on the disk alone.
func TestAlarmParkedIsNotDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIndex()
		park := func(s *objectstore.Slot) { s.Parked = objectstore.ParkedFailed }
		x.set("stored", time.Now(), park)
		x.set("memory", time.Now().Add(time.Minute), nil)
		x.set("out", time.Now(), nil)
		s := x.start(Config{})
		s.Start()
		synctest.Wait()
		out := x.delivered[0]
		x.set("memory", time.Now().Add(time.Minute), park)
		x.set("out", time.Now(), park)
		x.s.Done(out, false)
		time.Sleep(time.Hour)
		if got := x.names(); !slices.Equal(got, []string{"out"}) {
			t.Errorf("delivered %v", got)
		}
		x.set("memory", time.Now(), nil) // revived
		synctest.Wait()
		if got := x.names(); !slices.Equal(got, []string{"out", "memory"}) {
			t.Errorf("delivered %v", got)
		}
		s.Stop()
	})
}

// TestSuspectsRunLastAndOneAtATime has suspects of two classes among other alarms, after the death of the previous
// host and after its closing.
func TestSuspectsRunLastAndOneAtATime(t *testing.T) {
	for _, unclean := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			x := newIndex()
			for i := range 20 {
				class := fmt.Sprint("c", i%2)
				x.setOf(class, fmt.Sprint("suspect", i), time.Now().Add(-time.Hour), lost)
				x.setOf(class, fmt.Sprint("good", i), time.Now().Add(-time.Minute), nil)
			}
			x.setOf("c0", "good at the start", time.Now().Add(time.Hour), func(s *objectstore.Slot) { s.AtStart = true })
			var mu sync.Mutex // guards out and most
			out, most := 0, 0
			x.onDeliver = func(a objectstore.Alarm) {
				suspect := strings.HasPrefix(a.ID.Name, "suspect")
				if suspect {
					mu.Lock()
					out++
					most = max(most, out)
					mu.Unlock()
				}
				go func() {
					time.Sleep(time.Second)
					if suspect {
						mu.Lock()
						out--
						mu.Unlock()
					}
					x.done(a, false)
				}()
			}
			s := x.start(Config{CrashLoop: CrashLoop{Unclean: unclean}})
			s.Start()
			time.Sleep(time.Minute)
			synctest.Wait()
			names := x.names()
			mu.Lock()
			defer mu.Unlock()
			if len(names) != 41 || unclean && (most != 1 || strings.Contains(fmt.Sprint(names[21:]), "good")) {
				t.Errorf("unclean %v: %d suspects at a time; delivered %v", unclean, most, names)
			}
			if !unclean && most != 20 {
				t.Errorf("after a clean end %d suspects at a time", most)
			}
			s.Stop()
		})
	}
}

// TestSuspectsDoNotWaitForLaterAlarms has many alarms of another class that were not due at the start. The scheduler has read only the first
// ones of them.
func TestSuspectsDoNotWaitForLaterAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIndex()
		x.setOf("b", "suspect", time.Now().Add(-time.Minute), lost)
		for i := range 100 {
			x.setOf("a", fmt.Sprintf("%02d", i), time.Now().Add(time.Hour), nil)
		}
		s := x.start(Config{Limit: 16, CrashLoop: CrashLoop{Unclean: true}})
		s.Start()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := x.names(); !slices.Equal(got, []string{"suspect"}) {
			t.Errorf("within a minute %v were delivered, want the suspect", got)
		}
		s.Stop()
	})
}

// TestSuspectThatIsDueLaterRunsOnTime has a suspect that is due after the start, and no other alarm that would wake the scheduler.
func TestSuspectThatIsDueLaterRunsOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIndex()
		due := time.Now().Add(10 * time.Second)
		x.set("suspect", due, lost)
		var delivered time.Time
		x.onDeliver = func(objectstore.Alarm) { delivered = time.Now() }
		s := x.start(Config{CrashLoop: CrashLoop{Unclean: true}})
		s.Start()
		time.Sleep(time.Hour)
		synctest.Wait()
		if !delivered.Equal(due) {
			t.Errorf("delivered at %v; want %v", delivered, due)
		}
		s.Stop()
	})
}
