package objectstore

import "time"

// maxLagMarks bounds the marks of a lagClock.
const maxLagMarks = 128

// lagClock measures for how long the oldest record that is not applied has been in the archive. Each mark is the newest record of a list
// that had a newer one than the list before. If there are too many, two neighbors become one with the earlier time: the measured time may
// then be too long, and is never too short.
type lagClock struct {
	marks []lagMark // in the order of their numbers and times; the records of the first one are not all applied
}

// lagMark is the time of the first list that had the records after the mark before, up to newest.
type lagMark struct {
	newest uint64
	at     time.Time
}

// listed is called with the newest record of each list. A list may have fewer records than the one before.
func (c *lagClock) listed(newest, applied uint64, now time.Time) {
	for n := len(c.marks); n > 0 && c.marks[n-1].newest > newest; n = len(c.marks) {
		if n > 1 && c.marks[n-2].newest >= newest {
			c.marks = c.marks[:n-1]
			continue
		}
		c.marks[n-1].newest = newest
	}
	if n := len(c.marks); n == 0 || c.marks[n-1].newest < newest {
		c.marks = append(c.marks, lagMark{newest, now})
	}
	c.applied(applied)
	if len(c.marks) <= maxLagMarks {
		return
	}
	merged := c.marks[:0]
	for i := 0; i < len(c.marks); i += 2 {
		m := c.marks[i]
		if i+1 < len(c.marks) {
			m.newest = c.marks[i+1].newest
		}
		merged = append(merged, m)
	}
	c.marks = merged
}

// applied is called with the last applied record.
func (c *lagClock) applied(record uint64) {
	for len(c.marks) > 0 && c.marks[0].newest <= record {
		c.marks = c.marks[1:]
	}
}

// lag returns the time since the oldest record that is not applied was found; zero if there is none.
func (c *lagClock) lag(now time.Time) time.Duration {
	if len(c.marks) == 0 {
		return 0
	}
	return now.Sub(c.marks[0].at)
}
