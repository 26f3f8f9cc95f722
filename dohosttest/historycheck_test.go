package dohosttest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost/eviction"
)

// written returns a history of a register from lines: "0 calls 5" writes, "0 calls 0"
// reads, "0 has 5", "0 lost" and "0 refused" end the call. All lines happen at one instant.
func written(t *testing.T, lines string) *history {
	t.Helper()
	w := Workload[int, int, int]{Model: Model[int, int, int]{
		Init: func() int { return 0 },
		Step: func(s, in int) (int, int) {
			if in == 0 {
				return s, s
			}
			return in, in
		},
	}}
	h := &history{x: w.untyped(), run: &scenarioRun{began: time.Now()}}
	h.sub = h.x.fullHistory(0)
	open := map[int]*call{}
	for line := range strings.SplitSeq(lines, "; ") {
		f := strings.Fields(line)
		client, value := int(f[0][0]-'0'), 0
		if len(f) > 2 {
			value = int(f[2][0] - '0')
		}
		c := open[client]
		if f[1] == "calls" {
			c = &call{name: callName{client, len(h.calls)}, in: value}
			open[client], h.calls = c, append(h.calls, c)
			c.began = h.add(event{call: c})
			continue
		}
		c.ended = h.add(event{call: c, end: true})
		c.outcome, c.out = map[string]outcome{"has": answered, "lost": unknown, "refused": notRun}[f[1]], value
		c.err = errors.New(f[1])
	}
	return h
}

// Lines of one instant have an order. A call with an unknown result may take effect later,
// or never.
func TestLinearizableChecksHistories(t *testing.T) {
	for lines, legal := range map[string]bool{
		"0 calls 5; 0 has 5; 1 calls 0; 1 has 5":                                           true,
		"0 calls 5; 0 has 5; 1 calls 0; 1 has 0":                                           false,
		"0 calls 5; 1 calls 0; 0 has 5; 1 has 0":                                           true,
		"0 calls 5; 1 calls 0; 1 has 5; 0 has 5":                                           true,
		"0 calls 5; 1 calls 0; 1 has 7; 0 has 5":                                           false,
		"1 calls 0; 1 has 5; 0 calls 5; 0 has 5":                                           false,
		"0 calls 5; 0 lost; 1 calls 0; 1 has 0":                                            true,
		"0 calls 5; 0 lost; 1 calls 0; 1 has 5":                                            true,
		"0 calls 5; 0 lost; 1 calls 0; 1 has 0; 1 calls 0; 1 has 5; 0 calls 0; 0 has 5":    true,
		"0 calls 5; 0 lost; 1 calls 0; 1 has 5; 1 calls 0; 1 has 0":                        false,
		"1 calls 0; 1 has 5; 0 calls 5; 0 lost":                                            false,
		"0 calls 5; 0 lost; 0 calls 6; 0 has 6; 1 calls 0; 1 has 5":                        true,
		"0 calls 5; 0 lost; 0 calls 6; 0 has 6; 1 calls 0; 1 has 5; 1 calls 0; 1 has 6":    false,
		"0 calls 5; 0 refused; 1 calls 0; 1 has 0":                                         true,
		"0 calls 5; 0 refused; 1 calls 0; 1 has 5":                                         false,
		"0 calls 5; 1 calls 6; 0 has 5; 1 has 6; 2 calls 0; 3 calls 0; 2 has 5; 3 has 6":   false,
		"0 calls 5; 1 calls 6; 0 has 5; 2 calls 0; 2 has 5; 2 calls 0; 1 has 6; 2 has 6":   true,
		"0 calls 5; 1 calls 6; 0 has 5; 2 calls 0; 2 has 6; 2 calls 0; 1 has 6; 2 has 5":   false,
		"0 calls 5; 1 calls 6; 1 has 6; 0 has 5; 2 calls 0; 2 has 5; 2 calls 0; 2 has 6":   false,
		"0 calls 5; 2 calls 0; 0 has 5; 3 calls 0; 3 has 5; 2 has 0; 2 calls 0; 2 has 5":   true,
		"0 calls 5; 3 calls 0; 3 has 5; 2 calls 0; 0 has 5; 2 has 0; 2 calls 0; 2 has 5":   false,
		"0 calls 5; 0 lost; 0 calls 6; 0 lost; 1 calls 0; 1 has 6; 1 calls 0; 1 has 5":     true,
		"0 calls 5; 0 lost; 0 calls 6; 0 refused; 1 calls 0; 1 has 0; 2 calls 0; 2 has 5":  true,
		"0 calls 5; 0 has 5; 1 calls 6; 2 calls 0; 2 has 5; 2 calls 0; 2 has 6; 1 lost":    true,
		"0 calls 5; 0 has 5; 1 calls 6; 2 calls 0; 2 has 6; 2 calls 0; 2 has 6; 1 refused": false,
		"0 calls 5; 0 has 5; 1 calls 6; 2 calls 0; 2 has 5; 2 calls 0; 2 has 5; 1 refused": true,
	} {
		h := written(t, lines)
		if got := h.verify(); (got == nil) != legal || got != nil && !errors.Is(got, errNoOrder) {
			t.Errorf("%s\n%v, want linearizable: %v", h.table(), got, legal)
		}
	}
}

func TestHistoryDifferences(t *testing.T) {
	const a = "0 calls 5; 0 has 5; 1 calls 0; 1 has 5"
	for b, same := range map[string]bool{
		a:                                        true,
		"0 calls 5; 0 has 5; 1 calls 0; 1 has 4": false,
		"0 calls 5; 0 has 5; 1 calls 1; 1 has 5": false,
		"0 calls 5; 0 has 5; 2 calls 0; 2 has 5": false,
		"0 calls 5; 0 has 5; 1 calls 0; 1 lost 5":             false,
		"0 calls 5; 1 calls 0; 0 has 5; 1 has 5":              false,
		"0 calls 5; 0 has 5; 1 calls 0":                       false,
		"0 calls 5; 0 has 5; 1 calls 0; 1 has 5; 0 calls 5":   false,
		"0 calls 5; 0 has 5; 1 calls 0; 1 has 5; 1 refused 5": false,
	} {
		one, other := written(t, a), written(t, b)
		for _, h := range []*history{one, other} {
			for i := range h.events {
				h.events[i].after = time.Duration(i)
			}
		}
		if err := differAt(one, other); (err == nil) != same {
			t.Errorf("%s: %v", b, err)
		}
	}
	one, other := written(t, a), written(t, a)
	other.events[1].after += time.Hour
	if differAt(one, other) == nil {
		t.Error("an hour later is the same")
	}
	for i, h := range []*history{one, other} {
		h.events = []event{{ending: 0}}
		h.run.endings = []interruption{{Point{Index: i}, eviction.EndFence}}
	}
	if differAt(one, other) == nil {
		t.Error("another ending is the same")
	}
}

func TestHistoryOverlaps(t *testing.T) {
	for lines, want := range map[string]int{
		"0 calls 5; 0 has 5; 1 calls 0; 1 has 5":                       0,
		"0 calls 5; 1 calls 0; 0 has 5; 1 has 0":                       1,
		"0 calls 5; 1 calls 0; 2 calls 0; 0 has 5; 1 has 0; 2 has 0":   3,
		"0 calls 5; 1 calls 0; 0 lost; 1 has 0; 2 calls 0; 2 has 0":    0,
		"0 calls 5; 1 calls 0; 0 refused; 1 has 0; 2 calls 0; 2 has 0": 0,
	} {
		if got := written(t, lines).overlaps(); got != want {
			t.Errorf("%s: %d, want %d", lines, got, want)
		}
	}
}

// The table of a history has a column for each client.
func TestHistoryTable(t *testing.T) {
	got := written(t, "0 calls 5; 2 calls 0; 0 lost; 0 calls 6; 2 has 5; 0 refused").table()
	const want = `
┌    client 0 calls 5
│ ┌  client 2 calls 0
? │  client 0: the outcome of 5 is unknown: lost
┌ │  client 0 calls 6
│ └  client 2 gets 5 from 0
└    client 0: 6 did not run: refused
`
	var lines strings.Builder
	for line := range strings.Lines(got) {
		_, after, _ := strings.Cut(line, "s  ")
		lines.WriteString(after)
	}
	if lines.String() != want[1:] {
		t.Errorf("%s", got)
	}
}
