package agent

import (
	"fmt"
	"strings"
	"time"

	"github.com/netresearch/go-cron"
)

// cronParser reads the five fields and the @ names. If both days of the month and days of the week are
// restricted, either suffices, as in other cron implementations; the parser's own default differs. The rarest
// time is 29 February, from 2096 to 2104.
var cronParser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow |
	cron.Descriptor | cron.DowOrDom).WithMaxSearchYears(9)

// cronSchedule is a parsed cron expression.
//
// The parser's own results are wrong where the clock changes: it runs a time that occurs twice twice, and skips
// times in a gap at midnight or of half an hour. So the parser gets wall clock times as if they were UTC, and
// next maps them to real times.
type cronSchedule struct {
	spec *cron.SpecSchedule
	zone *time.Location
	// hourly is set if the expression does not restrict the hours: it follows elapsed time.
	hourly bool
}

// parseCron parses a cron expression. The errors name the invalid part.
func parseCron(expr, zone string) (cronSchedule, error) {
	loc, err := time.LoadLocation(zone)
	if err != nil || loc == time.Local {
		return cronSchedule{}, fmt.Errorf("agent: zone %q is not in the host's time zone database: "+
			"want an IANA name such as %q", zone, "Europe/Berlin")
	}
	if strings.HasPrefix(expr, "TZ=") || strings.HasPrefix(expr, "CRON_TZ=") {
		return cronSchedule{}, fmt.Errorf("agent: cron %q: pass the zone as the argument, not in the expression", expr)
	}
	parsed, err := cronParser.Parse(expr)
	if err != nil {
		return cronSchedule{}, fmt.Errorf("agent: cron %q: %w", expr, err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return cronSchedule{}, fmt.Errorf("agent: cron %q: use Every for an interval", expr)
	}
	spec.Location = time.UTC
	const allHours = 1<<24 - 1
	return cronSchedule{spec, loc, spec.Hour&allHours == allHours}, nil
}

// next returns the first run after t, or zero if there is none.
//
// A time of day runs once a day. If the clock reads it twice, it runs the first time; if the clock is put
// forward past it, it runs at that moment. An hourly expression runs whenever the clock reads its minute.
func (c cronSchedule) next(t time.Time) time.Time {
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

// wall returns the clock's reading at t, as a time in UTC.
func wall(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}
