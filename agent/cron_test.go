package agent

import (
	"strings"
	"testing"
	"time"
)

// occurrences walks through time minute by minute, and collects the times when a clock in the zone matches. It
// uses only the clock's readings. If the expression is not hourly, each time of day counts once, as soon as the
// clock reads it or a later time.
func occurrences(zone *time.Location, from, to time.Time, hourly bool, match func(time.Time) bool) (found []time.Time) {
	shown := func(t time.Time) time.Time {
		l := t.In(zone)
		return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC)
	}
	high := shown(from)
	for t := from.Add(time.Minute); !t.After(to); t = t.Add(time.Minute) {
		now := shown(t)
		if hourly {
			if match(now) {
				found = append(found, t)
			}
			continue
		}
		hit := false
		for w := high.Add(time.Minute); !w.After(now); w = w.Add(time.Minute) {
			hit = hit || match(w)
			high = w
		}
		if hit {
			found = append(found, t)
		}
	}
	return found
}

func at(minute int, hours ...int) func(time.Time) bool {
	return func(t time.Time) bool {
		for _, h := range hours {
			if t.Hour() == h && t.Minute() == minute {
				return true
			}
		}
		return false
	}
}

func minutes(of ...int) func(time.Time) bool {
	return func(t time.Time) bool {
		for _, m := range of {
			if t.Minute() == m {
				return true
			}
		}
		return false
	}
}

// TestCronMatchesReferenceOnClockChanges compares the parser with a walk, on days with a change of the clock.
func TestCronMatchesReferenceOnClockChanges(t *testing.T) {
	days := []struct{ zone, day string }{
		{"Europe/Berlin", "2026-03-29"}, {"Europe/Berlin", "2026-10-25"},
		{"America/New_York", "2026-03-08"}, {"America/New_York", "2026-11-01"},
		{"Africa/Cairo", "2026-04-24"}, {"Africa/Cairo", "2026-10-30"}, // at midnight
		{"Australia/Lord_Howe", "2026-04-05"}, {"Australia/Lord_Howe", "2026-10-04"}, // half an hour
		{"Asia/Kolkata", "2026-03-29"}, {"", "2026-03-29"}, // not at all
	}
	specs := []struct {
		expr   string
		hourly bool
		match  func(time.Time) bool
	}{
		{"30 2 * * *", false, at(30, 2)}, {"30 1 * * *", false, at(30, 1)}, {"15 2,3 * * *", false, at(15, 2, 3)},
		{"0 2 * * *", false, at(0, 2)}, {"0 3 * * *", false, at(0, 3)}, {"59 1 * * *", false, at(59, 1)},
		{"@daily", false, at(0, 0)}, {"30 0 * * *", false, at(30, 0)}, {"45 23 * * *", false, at(45, 23)},
		{"0 */2 * * *", false, at(0, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22)},
		{"@hourly", true, minutes(0)}, {"15 * * * *", true, minutes(15)}, {"*/20 * * * *", true, minutes(0, 20, 40)},
		{"40 0-23 * * *", true, minutes(40)},
		{"30 2 * * 0", false, func(l time.Time) bool { return l.Weekday() == time.Sunday && at(30, 2)(l) }},
	}
	for _, d := range days {
		zone, err := time.LoadLocation(d.zone)
		if err != nil {
			t.Fatal(err)
		}
		noon, err := time.ParseInLocation("2006-01-02 15", d.day+" 12", zone)
		if err != nil {
			t.Fatal(err)
		}
		from, to := noon.Add(-28*time.Hour).UTC(), noon.Add(28*time.Hour).UTC()
		for _, s := range specs {
			table, err := parseCron(s.expr, d.zone)
			if err != nil {
				t.Fatal(err)
			}
			want := occurrences(zone, from, to, s.hourly, s.match)
			next := from
			for _, w := range want {
				if next = table.next(next); !next.Equal(w) {
					t.Errorf("%q around %s in %q: %v, want %v", s.expr, d.day, d.zone, next.In(zone), w.In(zone))
					break
				}
			}
			// From anywhere, not only from an occurrence.
			for i, at := 0, from; at.Before(to); at = at.Add(7 * time.Minute) {
				for i < len(want) && !want[i].After(at) {
					i++
				}
				if got := table.next(at); i < len(want) && !got.Equal(want[i]) {
					t.Errorf("%q after %v in %q: %v, want %v", s.expr, at.In(zone), d.zone, got.In(zone), want[i].In(zone))
					break
				}
			}
		}
	}
}

func TestCronNextTimes(t *testing.T) {
	for _, tt := range []struct{ expr, zone, after, want string }{
		// 02:30 does not exist in Berlin on 29 March: it runs when the clock is put to 03:00.
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00", "2026-03-29T03:00:00+02:00"},
		{"30 2 * * *", "Europe/Berlin", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		// It occurs twice on 25 October: it runs the first time.
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+02:00", "2026-10-25T02:30:00+02:00"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T02:10:00+01:00", "2026-10-26T02:30:00+01:00"},
		// An hourly one runs in both of the repeated hours, without a gap.
		{"0 * * * *", "Europe/Berlin", "2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00"},
		{"0 * * * *", "Europe/Berlin", "2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00"},
		{"0 0 29 2 *", "", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"0 0 29 2 *", "", "2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"0 12 31 * *", "", "2026-01-31T12:00:00Z", "2026-03-31T12:00:00Z"},
		{"0 0 1 1 *", "", "2026-12-31T23:59:59.999Z", "2027-01-01T00:00:00Z"},
		{"@monthly", "America/New_York", "2026-01-31T23:00:00-05:00", "2026-02-01T00:00:00-05:00"},
		{"0 9 13 * FRI", "", "2026-02-01T00:00:00Z", "2026-02-06T09:00:00Z"}, // either day is enough
		{"0 9 * * 7", "", "2026-02-01T09:00:00Z", "2026-02-08T09:00:00Z"},
	} {
		table, err := parseCron(tt.expr, tt.zone)
		if err != nil {
			t.Fatal(err)
		}
		after, _ := time.Parse(time.RFC3339, tt.after)
		want, _ := time.Parse(time.RFC3339, tt.want)
		if got := table.next(after); !got.Equal(want) {
			t.Errorf("%q in %q after %s: %v, want %v", tt.expr, tt.zone, tt.after, got.In(want.Location()), want)
		}
	}
}

func TestScheduleFirstTime(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 5e6, time.UTC)
	for _, tt := range []struct {
		when When
		want time.Time
		err  string
	}{
		{After(0), now, ""},
		{After(time.Minute), now.Add(time.Minute), ""},
		{After(-1), now, "After(-1ns): want zero or more"},
		{After(1<<63 - 1), now.Add(1<<63 - 1), ""},
		{At(now.Add(-time.Hour)), now.Add(-time.Hour), ""},
		{At(time.Time{}), now, "not in the years 1970 to 9999"},
		{At(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)), now, "not in the years 1970 to 9999"},
		{Every(time.Millisecond), now.Add(time.Millisecond), ""},
		{Every(30 * 24 * time.Hour), now.Add(30 * 24 * time.Hour), ""},
		{Every(0), now, "Every(0s): want more than zero"},
		{Every(30*24*time.Hour + 1), now, "at most 720h0m0s"},
		{Cron("0 13 * * *", ""), now.Truncate(time.Hour).Add(time.Hour), ""},
		{Cron("0 13 * * *", "Mars/Phobos"), now, `zone "Mars/Phobos" is not in`},
		{Cron("0 13 * * *", "Local"), now, `zone "Local" is not in`},
		{Cron("TZ=UTC 0 13 * * *", ""), now, "pass the zone as the argument"},
		{Cron("@every 5m", ""), now, "use Every"},
		{Cron("@reboot", ""), now, "@reboot"},
		{Cron("0 25 * * *", ""), now, `cron "0 25 * * *"`},
		{Cron("* * * *", ""), now, `cron "* * * *"`},
		{Cron("0 0 0 1 1 *", ""), now, `cron "0 0 0 1 1 *"`},
		{Cron("", ""), now, `cron ""`},
		{Cron("0 0 30 2 *", ""), now, "never fires"},
		{When{}, now, "want one from After, At, Every or Cron"},
	} {
		got, err := tt.when.first(now)
		switch {
		case tt.err == "" && (err != nil || !got.Equal(tt.want)):
			t.Errorf("%+v: %v, %v; want %v", tt.when, got, err, tt.want)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%+v: %v, %v; want %q", tt.when, got, err, tt.err)
		}
	}
}
