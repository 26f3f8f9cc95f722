package alarm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/objectstore"
)

// index is the durable index, and a runtime that delivers, in memory.
type index struct {
	order sync.Mutex // held over a change of a slot and its report: the store reports changes in their order
	mu    sync.Mutex
	slots map[objectstore.ID]objectstore.Slot
	pos   map[objectstore.AlarmPos]objectstore.Alarm
	gen   uint64
	s     *Scheduler

	delivered []objectstore.Alarm
	at        []time.Time
	out       map[objectstore.ID]int
	doubles   []objectstore.ID
	onDeliver func(a objectstore.Alarm)
	at0       map[objectstore.AlarmPos]int
	rows      map[string]int // read, by class
	errs      int
}

func newIndex() *index {
	return &index{
		at0: map[objectstore.AlarmPos]int{}, slots: map[objectstore.ID]objectstore.Slot{},
		pos: map[objectstore.AlarmPos]objectstore.Alarm{}, out: map[objectstore.ID]int{}, rows: map[string]int{},
	}
}
func id(n string) objectstore.ID { return of("c", n) }

func of(class, n string) objectstore.ID { return objectstore.ID{Class: class, Name: n} }

func (x *index) set(n string, due time.Time, mod func(*objectstore.Slot)) { x.setOf("c", n, due, mod) }

func (x *index) setOf(class, n string, due time.Time, mod func(*objectstore.Slot)) {
	x.order.Lock()
	defer x.order.Unlock()
	x.mu.Lock()
	sl := objectstore.Slot{Due: due.Truncate(time.Millisecond).Round(0), Generation: x.generation()}
	if mod != nil {
		mod(&sl)
	}
	x.slots[of(class, n)] = sl
	s := x.s
	x.mu.Unlock()
	if s != nil {
		s.Changed([]objectstore.AlarmChange{{ID: of(class, n), Slot: sl, Set: true}})
	}
}
func (x *index) generation() uint64 { x.gen++; return x.gen }
func (x *index) clear(i objectstore.ID) {
	x.order.Lock()
	defer x.order.Unlock()
	x.clearLocked(i)
}

// clearLocked needs x.order.
func (x *index) clearLocked(i objectstore.ID) {
	x.mu.Lock()
	delete(x.slots, i)
	x.mu.Unlock()
	x.s.Changed([]objectstore.AlarmChange{{ID: i}})
}
func (x *index) done(a objectstore.Alarm, again bool) {
	if !again {
		x.order.Lock()
		x.mu.Lock()
		sl, ok := x.slots[a.ID]
		x.mu.Unlock()
		if ok && sl.Generation == a.Generation {
			x.clearLocked(a.ID)
		}
		x.order.Unlock()
	}
	x.mu.Lock()
	x.out[a.ID]--
	x.mu.Unlock()
	x.s.Done(a, again)
}

// sorted is the index of a class, or of the suspects.
func (x *index) sorted(class string) []objectstore.Alarm {
	var as []objectstore.Alarm
	for i, sl := range x.slots {
		queue := i.Class
		if sl.Suspect() {
			queue = ""
		}
		if queue == class && sl.Parked == objectstore.NotParked {
			as = append(as, objectstore.Alarm{ID: i, Due: sl.Due, Generation: sl.Generation, Suspect: sl.Suspect()})
		}
	}
	slices.SortFunc(as, compare)
	return as
}
func (x *index) classes(context.Context) (classes []string, _ error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.slots {
		if !slices.Contains(classes, i.Class) {
			classes = append(classes, i.Class)
		}
	}
	return classes, nil
}
func (x *index) window(ctx context.Context, class string, after objectstore.AlarmPos, limit int) ([]objectstore.Alarm, objectstore.AlarmPos, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	as := x.sorted(class)
	if p, ok := x.pos[after]; ok {
		i, _ := slices.BinarySearchFunc(as, p, compare)
		for i < len(as) && compare(as[i], p) <= 0 {
			i++
		}
		as = as[i:]
	}
	as = as[:min(limit, len(as))]
	pos := after
	if len(as) > 0 {
		pos = as[len(as)-1].Pos()
		x.pos[pos] = as[len(as)-1]
	}
	x.rows[class] += len(as)
	return as, pos, nil
}
func (x *index) startAlarms(ctx context.Context, class, after string, limit int) ([]objectstore.Alarm, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var as []objectstore.Alarm
	for _, a := range x.sorted(class) {
		if x.slots[a.ID].AtStart && a.ID.Name > after {
			as = append(as, a)
		}
	}
	slices.SortFunc(as, func(a, b objectstore.Alarm) int { return strings.Compare(a.ID.Name, b.ID.Name) })
	return as[:min(limit, len(as))], nil
}

// hostNumber is the generation of the host that delivers.
const hostNumber = 9

// deliver charges as the runtime does, and delivers the alarm if it still has to run.
func (x *index) deliver(d Delivery) {
	a := d.Alarm
	x.mu.Lock()
	sl, ok := x.slots[a.ID]
	if ok && sl.Generation == a.Generation && MustCharge(sl, d.Charge) {
		next, v := x.s.cfg.CrashLoop.Charge(sl, Run{HandlerBegins: true, Now: time.Now(), NewGeneration: x.generation})
		x.slots[a.ID] = next
		x.s.Changed([]objectstore.AlarmChange{{ID: a.ID, Slot: next, Set: true}})
		if !v.Runs() {
			x.mu.Unlock()
			x.s.Done(a, false)
			return
		}
	}
	x.delivered = append(x.delivered, a)
	x.at = append(x.at, time.Now())
	x.out[a.ID]++
	if x.out[a.ID] > 1 {
		x.doubles = append(x.doubles, a.ID)
	}
	f := x.onDeliver
	x.mu.Unlock()
	if f != nil {
		f(a)
	}
}
func (x *index) start(c Config) *Scheduler {
	c.StartBefore, c.CrashLoop.Host = x.gen+1, hostNumber
	c.Classes, c.Window, c.StartAlarms, c.Deliver = x.classes, x.window, x.startAlarms, x.deliver
	c.OnError = func(error) { x.mu.Lock(); x.errs++; x.mu.Unlock() }
	x.s = NewScheduler(context.Background(), c)
	return x.s
}
func (x *index) names() (ns []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, a := range x.delivered {
		ns = append(ns, a.ID.Name)
	}
	return
}

// lost makes a suspect: the previous host died while its delivery was out.
func lost(s *objectstore.Slot) { s.Charge.Host = hostNumber - 1 }

// A host that always has some alarm running must get to its suspects.
func TestSuspectsAreNotStarvedByABusyHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIndex()
		x.set("suspect", time.Now().Add(-time.Minute), lost)
		s := x.start(Config{CrashLoop: CrashLoop{Unclean: true}})
		x.onDeliver = func(a objectstore.Alarm) {
			if a.ID.Name == "suspect" {
				go x.done(a, false)
				return
			}
			go func() { time.Sleep(15 * time.Second); x.done(a, false) }()
		}
		for i := range 1000 { // one due every 10 s, each runs for 15 s
			x.set(fmt.Sprintf("n%04d", i), time.Now().Add(time.Duration(i)*10*time.Second), nil)
		}
		s.Start()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if !slices.Contains(x.names(), "suspect") {
			t.Errorf("suspect not delivered in 2 h; %d others were", len(x.names()))
		}
		s.Stop()
		time.Sleep(time.Minute)
	})
}

// A first-pass delivery that was cut off waits in memory; the second pass must not deliver the alarm a second time,
// nor count the cut-off run as one of the seven.
func TestDeliveryCutOffIsNotCountedAsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIndex()
		start := time.Now()
		x.set("a", start.Add(-time.Minute), nil)
		x.set("suspect", start.Add(-time.Second), lost)
		x.set("later", start.Add(40*time.Millisecond), nil)
		s := x.start(Config{CrashLoop: CrashLoop{Unclean: true}})
		n, most := 0, 0
		x.onDeliver = func(a objectstore.Alarm) {
			if a.ID.Name != "a" {
				go x.done(a, false)
				return
			}
			n++
			x.mu.Lock()
			c := x.slots[a.ID].Charge
			most = max(most, x.slots[a.ID].Attempt+int(c.Deaths+c.Lost))
			x.mu.Unlock()
			if n < 8 { // evicted immediately, 7 times: the next is 32 ms later
				go x.done(a, true)
				return
			}
			go func() { time.Sleep(10 * time.Second); x.done(a, false) }()
		}
		s.Start()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(x.doubles) > 0 {
			t.Errorf("two deliveries at once of %v", x.doubles)
		}
		if most > 0 {
			t.Errorf("%d failures and deaths are counted, though every run was only cut off", most)
		}
		if !slices.Contains(x.names(), "suspect") {
			t.Error("suspect never delivered")
		}
		s.Stop()
		time.Sleep(time.Minute)
	})
}

// A start alarm that is changed while it waits must not stop the start pass.
func TestStartPassContinuesAfterAlarmChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIndex()
		start := time.Now()
		atStart := func(s *objectstore.Slot) { s.AtStart = true }
		x.set("due1", start.Add(-time.Minute), nil)
		x.set("due2", start.Add(-time.Minute), nil)
		for _, n := range []string{"k1", "k2", "k3", "k4", "k5"} {
			x.set(n, start.Add(30*time.Hour), atStart)
		}
		s := x.start(Config{Concurrency: 2, Group: 2})
		x.onDeliver = func(a objectstore.Alarm) { go func() { time.Sleep(time.Second); x.done(a, false) }() }
		s.Start()
		time.Sleep(500 * time.Millisecond)
		x.set("k1", time.Now().Add(20*time.Hour), atStart) // an event re-arms it while it waits
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		for _, n := range []string{"k2", "k3", "k4", "k5"} {
			if !slices.Contains(x.names(), n) {
				t.Errorf("%s was not delivered at the start; delivered: %v", n, x.names())
			}
		}
		s.Stop()
		time.Sleep(time.Minute)
	})
}

// A clock set back must not delay an entry that waits for milliseconds.
func TestDeliveryCutOffIsRetriedAfterClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIndex()
		var mu sync.Mutex
		var off time.Duration
		x.set("a", time.Now().Add(-24*time.Hour), nil)
		s := x.start(Config{})
		s.now = func() time.Time { mu.Lock(); defer mu.Unlock(); return time.Now().Round(0).Add(off) }
		n := 0
		x.onDeliver = func(a objectstore.Alarm) {
			n++
			if n < 12 {
				go x.done(a, true)
				return
			}
			go x.done(a, false)
		}
		s.Start()
		time.Sleep(300 * time.Millisecond) // in the middle of the doubling
		mu.Lock()
		off = -time.Hour
		mu.Unlock()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n < 12 {
			t.Errorf("%d deliveries two minutes after the clock went back an hour, though the alarm is a day overdue", n)
		}
		s.Stop()
		time.Sleep(time.Minute)
	})
}

// An alarm that is set while the start pass runs is not one that the host found.
func TestStartPassSkipsNewAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIndex()
		atStart := func(s *objectstore.Slot) { s.AtStart = true }
		x.set("a1", time.Now().Add(time.Hour), atStart)
		x.set("a2", time.Now().Add(time.Hour), atStart)
		s := x.start(Config{Group: 2})
		x.onDeliver = func(a objectstore.Alarm) { go func() { time.Sleep(time.Second); x.done(a, false) }() }
		s.Start()
		time.Sleep(500 * time.Millisecond)
		x.set("new", time.Now().Add(30*time.Minute), atStart)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if slices.Contains(x.names(), "new") {
			t.Error("an alarm set after the start, due in 30 min, was delivered early")
		}
		s.Stop()
		time.Sleep(time.Minute)
	})
}

func TestSchedulerDropsChangesAfterStop(t *testing.T) {
	x := newIndex()
	s := x.start(Config{})
	s.Start()
	s.Stop()
	for i := range 1000 {
		x.set("a", time.Now().Add(time.Duration(i)), nil)
	}
	if len(s.inbox) > 0 {
		t.Errorf("%d messages are kept after Stop", len(s.inbox))
	}
}
