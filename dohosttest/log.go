package dohosttest

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// listener records the events of a process until it is ended.
func (w *scenarioRun) listener(p *process) dohost.Listener {
	note := func(id dohost.ID, format string, args ...any) {
		if !p.dying.Load() {
			w.log.addText(id, format, args...)
		}
	}
	ended := func(id dohost.ID, what string, err error) {
		if err != nil {
			note(id, "%s failed: %v", what, err)
		}
	}
	return dohost.Listener{
		Fenced: func(e dohost.Ended) {
			if e.Cause.Reason == dohost.ReasonPanic && !p.dying.Load() {
				w.panics.Add(1)
			}
			w.log.addText(e.ID, "incarnation ended: %v", e.Cause)
		},
		Refused:     func(id dohost.ID, _ dohost.Epoch) { note(id, "a write of an ended incarnation was refused") },
		EventEnded:  func(e dohost.EndedEvent) { ended(e.ID, e.Op, e.Err) },
		AlarmEnded:  func(a dohost.AlarmRun) { ended(a.ID, fmt.Sprintf("alarm, attempt %d,", a.Attempt), a.Err) },
		AlarmParked: func(p dohost.ParkedAlarm) { note(p.ID, "the alarm was parked: %v", p.Reason) },
		AlarmStale:  func(id dohost.ID) { note(id, "an alarm was superseded by a newer one") },
		StoreFailed: func(err error) { note(dohost.ID{}, "%v", err) },
		Failed:      func(err error) { note(dohost.ID{}, "%v", err) },
		Service: func(id dohost.ID, event string, attrs ...slog.Attr) {
			if strings.HasSuffix(event, ":unknown") && !p.dying.Load() {
				w.countUnknown(id, event, attrs)
			}
		},
	}
}

// countUnknown counts the report of an unknown outcome.
func (w *scenarioRun) countUnknown(id dohost.ID, event string, attrs []slog.Attr) {
	w.unknown.Add(1)
	of := ""
	for _, a := range attrs {
		if a.Key == "operation" || a.Key == "call" {
			of = a.Value.String()
		}
	}
	had := ""
	if w.hadEffect != nil && !w.hadEffect(of) {
		w.falseUnknown.Add(1)
		had = ", without an effect"
	}
	w.log.addText(id, "%s %s%s", event, of, had)
}

// textOf formats lines for a person.
func textOf(lines []line) string {
	var b strings.Builder
	for _, l := range lines {
		who, text := l.id.String(), l.text
		if l.id == (dohost.ID{}) {
			who = "host"
		}
		if l.point != nil {
			text = l.point.name()
		}
		fmt.Fprintf(&b, "%10v  %s: %s\n", l.after.Round(time.Microsecond), who, text)
	}
	return b.String()
}

// around returns the lines shortly before and after the endings.
func (j *eventLog) around(before, after int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var b strings.Builder
	last := 0
	for i, l := range j.lines {
		if l.point != nil || !strings.HasSuffix(l.text, " here") {
			continue
		}
		from, to := max(last, i-before), min(len(j.lines), i+after+1)
		if from > last {
			b.WriteString("       ...\n")
		}
		if to > from {
			b.WriteString(textOf(j.lines[from:to]))
			last = to
		}
	}
	return b.String()
}
