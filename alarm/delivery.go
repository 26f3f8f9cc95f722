package alarm

import "github.com/dohost/dohost/objectstore"

// Delivery is an alarm to deliver.
type Delivery struct {
	objectstore.Alarm
	// Raise says that the delivery is to count its run, durably, before it runs, as
	// Config.Raise would have if the object had not been in use; Suspects is what that
	// was called with.
	Raise, Suspects bool
}

// delivery is an alarm that is out.
type delivery struct {
	*entry
	waits bool
	next  *objectstore.AlarmChange // the newest change since it went out
}

// Counted notes that a delivery has counted its run, as Delivery.Raise asks for.
func (s *Scheduler) Counted(a objectstore.Alarm) { s.post(message{counted: &a}) }

// counted notes that a delivery has counted its run.
func (s *Scheduler) counted(a objectstore.Alarm) {
	if d := s.out[a.ID]; d != nil && d.Generation == a.Generation {
		d.count = countDone
	}
}

// Waits notes that a delivery which is out waits for something other than its
// object, and may do so for long: it holds up no others.
func (s *Scheduler) Waits(a objectstore.Alarm) { s.post(message{waits: &a}) }

// waits notes that a delivery waits.
func (s *Scheduler) waits(a objectstore.Alarm) {
	d := s.out[a.ID]
	if d == nil || d.Generation != a.Generation || d.waits {
		return
	}
	d.waits = true
	s.waiting++
	if d.boot {
		s.boot.away++
	}
}

// takeBack takes a delivery out of those that are out.
func (s *Scheduler) takeBack(d *delivery) {
	delete(s.out, d.ID)
	if d.waits {
		s.waiting--
		if d.boot {
			s.boot.away--
		}
	}
}

// room is how many more deliveries may go out.
func (s *Scheduler) room() int {
	return min(s.cfg.Concurrency-(len(s.out)-s.waiting), 16*s.cfg.Concurrency-len(s.out))
}
