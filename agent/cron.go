package agent

import (
	"fmt"
	"strings"
	"time"

	"github.com/netresearch/go-cron"
)

// cronParser reads the five fields and the @ names. Days of the month and of the week are
// alternatives if both are restricted, as everywhere but in the parser's own default. Nothing
// comes more rarely than 29 February, from 2096 to 2104.
var cronParser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow |
	cron.Descriptor | cron.DowOrDom).WithMaxSearchYears(9)

// timetable is a parsed cron expression.
//
// The parser's own answers are not used across a change of the clock: it runs a time that
// comes twice twice, and none that midnight's or half an hour's change skips. It is asked of
// wall clocks as if they were in UTC, and what a wall clock means is decided here.
type timetable struct {
	spec *cron.SpecSchedule
	zone *time.Location
	// hourly says that it has no hours of its own: it goes by the time that passes.
	hourly bool
}

// parseCron reads a cron expression. The errors name what is wrong.
func parseCron(expr, zone string) (timetable, error) {
	loc, err := time.LoadLocation(zone)
	if err != nil || loc == time.Local {
		return timetable{}, fmt.Errorf("agent: zone %q is not in the host's time zone database: "+
			"want an IANA name such as %q", zone, "Europe/Berlin")
	}
	if strings.HasPrefix(expr, "TZ=") || strings.HasPrefix(expr, "CRON_TZ=") {
		return timetable{}, fmt.Errorf("agent: cron %q: the zone is an argument of its own", expr)
	}
	parsed, err := cronParser.Parse(expr)
	if err != nil {
		return timetable{}, fmt.Errorf("agent: cron %q: %w", expr, err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return timetable{}, fmt.Errorf("agent: cron %q: use Every", expr)
	}
	spec.Location = time.UTC
	const allHours = 1<<24 - 1
	return timetable{spec, loc, spec.Hour&allHours == allHours}, nil
}

// next returns the first moment after t, or zero if none comes.
//
// A time of the day comes once a day. If the clock shows it twice, that is the first time; if
// the clock is put forward past it, it is the moment in which that happens. What runs every
// hour runs whenever the clock shows its minute.
func (c timetable) next(t time.Time) time.Time {
	t = t.Round(0).In(c.zone)
	from := wall(t)
	for {
		start, end := t.ZoneBounds()
		if shown := wall(start.Add(-1)); !c.hourly && !start.IsZero() && from.Before(shown) {
			from = shown
		}
		w := c.spec.Next(from)
		if w.IsZero() {
			return w
		}
		at := w.Add(t.Sub(wall(t)))
		if end.IsZero() || at.Before(end) {
			return at.UTC()
		}
		if !c.hourly && w.Before(wall(end)) {
			return end.UTC()
		}
		t, from = end, wall(end).Add(-1)
	}
}

// wall is what the clock shows at t, as a time in UTC.
func wall(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}
