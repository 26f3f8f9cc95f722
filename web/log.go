package web

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/dohost/dohost"
)

// LogListener writes the events of a host to l: incarnations, events and alarms at level debug, or at warn if an error ended them; reports of
// services at info; warnings for operators at warn; the failure of the store at error.
func LogListener(l *slog.Logger) dohost.Listener {
	log := func(problem error, msg string, args ...any) {
		if problem != nil {
			l.Warn(msg, append(args, "err", problem)...)
		} else {
			l.Debug(msg, args...)
		}
	}
	return dohost.Listener{
		Waking: func(id dohost.ID, e dohost.Epoch) { l.Debug("waking", "object", text{id}, "epoch", text{e}) },
		Live:   func(id dohost.ID, e dohost.Epoch) { l.Debug("live", "object", text{id}, "epoch", text{e}) },
		Fenced: func(e dohost.Ended) { // the object or the store caused the error
			args := []any{"object", text{e.ID}, "epoch", text{e.Epoch}, "reason", e.Cause.Reason, "place", e.Cause.Place, "age", e.Age}
			if p, ok := errors.AsType[*dohost.PanicError](e.Cause.Err); ok && p != nil {
				args = append(args, "stack", string(p.Stack))
			}
			log(e.Cause.Err, "fenced", args...)
		},
		EventEnded: func(e dohost.EndedEvent) {
			l.Debug("event ended", "object", text{e.ID}, "epoch", text{e.Epoch}, "op", e.Op, "took", e.Took, "err", e.Err)
		},
		Refused: func(id dohost.ID, e dohost.Epoch) { l.Debug("refused", "object", text{id}, "epoch", text{e}) },
		AlarmEnded: func(a dohost.AlarmRun) {
			log(a.Err, "alarm ended", "object", text{a.ID}, "scheduled", a.Scheduled, "late", a.Late, "attempt", a.Attempt)
		},
		AlarmParked: func(p dohost.ParkedAlarm) {
			l.Warn("alarm parked: the host does not deliver it until it is set or revived", "object", text{p.ID}, "reason", text{p.Reason},
				"scheduled", p.Scheduled, "attempts", p.Attempts, "deaths", p.Deaths, "lost", p.Lost, "err", p.Err)
		},
		AlarmStale: func(id dohost.ID) { l.Debug("alarm superseded", "object", text{id}) },
		TurnHeld: func(t dohost.LongTurn) {
			l.Warn("turn held: code that waits belongs in an Await", "object", text{t.ID}, "op", t.Op, "held", t.Held, "stack", t.Stack)
		},
		StoreFailed: func(err error) { l.Error("store failed: the host closes", "err", err) },
		Space: func(d dohost.DiskSpace) {
			switch {
			case d.Err != nil:
				l.Warn("the store cannot write its files: writes are refused", "folder", d.Dir, "free", d.Free, "err", d.Err)
			case d.Full:
				l.Warn("disk almost full: writes are refused", "folder", d.Dir, "free", d.Free, "reserve", d.Reserve)
			default:
				l.Warn("disk has space: writes are accepted again", "folder", d.Dir, "free", d.Free, "reserve", d.Reserve)
			}
		},
		Failed: func(err error) { l.Error("background work failed", "err", err) },
		Service: func(id dohost.ID, event string, attrs ...slog.Attr) {
			args := []any{"object", text{id}}
			for _, a := range attrs {
				args = append(args, a)
			}
			l.Info(event, args...)
		},
	}
}

// text logs a value by its String, which is not called for a line that is discarded.
type text struct{ fmt.Stringer }

// LogValue calls it.
func (t text) LogValue() slog.Value { return slog.StringValue(t.String()) }
