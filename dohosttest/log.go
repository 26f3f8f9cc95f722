package dohosttest

import (
	"fmt"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// listener notes what a host tells.
func (w *world) listener() dohost.Listener {
	j := &w.log
	return dohost.Listener{
		Fenced:      func(e dohost.Ended) { j.note(e.ID, "incarnation ended: %v", e.Why) },
		Refused:     func(id dohost.ID, _ dohost.Epoch) { j.note(id, "a write of an ended incarnation was refused") },
		EventEnded:  func(e dohost.EndedEvent) { j.ended(e.ID, e.Op, e.Err) },
		AlarmEnded:  func(a dohost.AlarmRun) { j.ended(a.ID, fmt.Sprintf("alarm, attempt %d,", a.Attempt), a.Err) },
		AlarmStale:  func(id dohost.ID) { j.note(id, "an alarm was overtaken by a newer one") },
		StoreFailed: func(err error) { j.note(dohost.ID{}, "%v", err) },
		Failed:      func(err error) { j.note(dohost.ID{}, "%v", err) },
	}
}

func (j *journal) ended(id dohost.ID, what string, err error) {
	if err != nil {
		j.note(id, "%s failed: %v", what, err)
	}
}

// textOf is lines as a person reads them.
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

// around is what happened shortly before and after the strikes.
func (j *journal) around(before, after int) string {
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
