package runtime

import (
	"context"
	"iter"
	"time"

	"github.com/dohost/dohost/objectstore"
)

// ParkedAlarm is an alarm that is no longer delivered, until its object sets an alarm or an
// operator revives it.
type ParkedAlarm struct {
	ID        ID
	Scheduled time.Time // when the last run was due
	Reason    objectstore.ParkReason
	// Attempts counts the runs that failed, Deaths the processes that ended while the handler
	// ran, and Lost those that ended during a delivery, before it.
	Attempts, Deaths, Lost int
	// Err is the text of the last failure, cut to 512 bytes; empty if no run failed.
	Err string
}

// ParkedAlarmOf describes the alarm of a slot, if it is parked.
func ParkedAlarmOf(id ID, s objectstore.Slot) (p ParkedAlarm, ok bool) {
	if s.Parked == objectstore.NotParked {
		return p, false
	}
	return ParkedAlarm{
		ID: id, Scheduled: s.Due, Reason: s.Parked, Err: s.Error,
		Attempts: s.Attempt, Deaths: int(s.Charge.Deaths), Lost: int(s.Charge.Lost),
	}, true
}

// ParkedAlarms yields the parked alarms of a class, or with an empty class of all classes,
// as they are on the disk, in order of ID, after an ID. It wakes no object, and reads no
// other alarms. The iteration may continue after objectstore.ErrDamaged.
func (h *Host) ParkedAlarms(ctx context.Context, class string, after ID) iter.Seq2[ParkedAlarm, error] {
	return func(yield func(ParkedAlarm, error) bool) {
		sn, err := h.store.Snapshot(ctx)
		if err != nil {
			yield(ParkedAlarm{}, err)
			return
		}
		defer sn.Close()
		for p, err := range sn.Parked(class, after) {
			parked, _ := ParkedAlarmOf(p.ID, p.Slot)
			if !yield(parked, err) {
				return
			}
		}
	}
}

// ParkedAlarm returns the object's alarm if it is parked.
func (s *State) ParkedAlarm(ctx context.Context) (p ParkedAlarm, ok bool, err error) {
	t, err := s.storage(ctx)
	if err != nil {
		return p, false, err
	}
	defer t.done()
	slot, _, err := s.incarnation().batch.Slot()
	if err != nil {
		return p, false, err
	}
	p, ok = ParkedAlarmOf(s.ID(), slot)
	return p, ok, nil
}

// parkedReport is the output of the batch that parks an alarm. The object's later outputs wait
// for the Listener, the committer does not.
type parkedReport struct {
	host  *Host
	alarm ParkedAlarm
}

// Release does nothing: the alarm is not parked.
func (p *parkedReport) Release(error) {}

// ReleaseAsync reports the alarm, which is parked durably.
func (p *parkedReport) ReleaseAsync(done func()) {
	p.host.emitting.Add(1)
	go func() {
		defer p.host.decrement(&p.host.emitting)
		defer done()
		call(p.host.lis.AlarmParked, p.alarm)
	}()
}
