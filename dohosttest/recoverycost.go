package dohosttest

import (
	"fmt"
	"time"
)

// RecoveryCost is the cost of endings: the additional work of the runs with endings, compared with
// the untouched run. Work that a run saves is subtracted.
type RecoveryCost struct {
	Effects      int           // requests that repeat the effect of their key
	Bytes        int           // of these requests
	Events       int           // additional events
	Incarnations int           // additional incarnations
	Time         time.Duration // additional virtual time, until the run was at rest
	// Unknown is the number of additional reports of unknown outcomes: [dohost.State.Report] of an event whose name ends in
	// ":unknown", such as "ledger:unknown" and "chat:unknown". FalseUnknown is the number of these reports about outcomes without an effect,
	// according to [Scenario.HadEffect]; zero without that function.
	Unknown, FalseUnknown int

	judged bool // there was a HadEffect
}

func (b *RecoveryCost) add(c RecoveryCost) {
	b.Effects += c.Effects
	b.Bytes += c.Bytes
	b.Events += c.Events
	b.Incarnations += c.Incarnations
	b.Time += c.Time
	b.Unknown += c.Unknown
	b.FalseUnknown += c.FalseUnknown
	b.judged = b.judged || c.judged
}

// String formats the cost as a line. It omits unknown outcomes if their number is zero.
func (b RecoveryCost) String() string {
	s := fmt.Sprintf("%s repeated (%d bytes), %s redelivered, %s more, %v",
		count(b.Effects, "effect"), b.Bytes, count(b.Events, "event"), count(b.Incarnations, "incarnation"), b.Time.Round(time.Millisecond))
	if b.Unknown == 0 {
		return s
	}
	s += fmt.Sprintf(", %s reported as unknown", count(b.Unknown, "outcome"))
	if b.judged {
		s += fmt.Sprintf(" (%d of them without an effect)", b.FalseUnknown)
	}
	return s
}

// count formats a number of things.
func count(n int, thing string) string {
	if n == 1 || n == -1 {
		return fmt.Sprintf("%d %s", n, thing)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
