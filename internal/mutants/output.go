package main

import (
	"regexp"
	"strconv"
	"strings"
)

// finding is a failure of a run that was ended somewhere.
type finding struct {
	where  string // what was done, at which point
	err    string
	run    string // how to replay it: the pattern for -run,
	plan   string // and the value of -dohosttest.replay
	replay string // the line
}

// findings is what the output of a failed test tells.
type findings struct {
	told      []finding // in full
	more      int       // that were only counted
	untouched string    // why a run failed in which nothing was ended
}

// count is how many runs failed: there are several ways of ending one at a point.
func (f *findings) count() int { return len(f.told) + f.more }

var (
	failureLine = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)$`)
	moreLine    = regexp.MustCompile(`^(\d+) more failures?\b`)
	replayLine  = regexp.MustCompile(`^\s*replay: (go test -run '(.*)' \. -dohosttest\.replay='(.*)')$`)
)

// notDeterministic is what a run is told that did not come to where it was to be ended.
// It finds no bug.
const notDeterministic = "the scenario is not deterministic"

// parseFindings reads the output of EveryPoint.
func parseFindings(output string) *findings {
	f := new(findings)
	var now *finding // being read
	reading := false // its error
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\n")
		if m := failureLine.FindStringSubmatch(line); m != nil {
			reading = strings.HasPrefix(m[1], "after a ")
			switch n := moreLine.FindStringSubmatch(m[1]); {
			case reading:
				f.told = append(f.told, finding{where: m[1]})
				now = &f.told[len(f.told)-1]
			case n != nil:
				count, _ := strconv.Atoi(n[1]) // it is digits
				f.more += count
			case f.untouched == "" && !strings.Contains(m[1], " points of "):
				f.untouched = m[1]
			}
			continue
		}
		text := strings.TrimSpace(line)
		if m := replayLine.FindStringSubmatch(line); m != nil && now != nil {
			now.replay, now.run, now.plan = m[1], m[2], m[3]
			now = nil
		}
		switch {
		case !reading:
		case text == "what happened:":
			reading = false
		case strings.HasPrefix(text, "and another, in the recovery from that: "):
			now.where += "; " + text
		default:
			now.err = strings.TrimSpace(now.err + "\n" + text)
		}
	}
	return f
}

// id is a name that is drawn anew in every run, of a feed's log.
var id = regexp.MustCompile(`\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b`)

// same says whether two failures tell the same error.
func same(a, b finding) bool {
	return id.ReplaceAllString(a.err, "") == id.ReplaceAllString(b.err, "")
}

// first is the first that is an error of the module, and not one of the harness.
func (f *findings) first() (finding, bool) {
	for _, found := range f.told {
		if !strings.Contains(found.err, notDeterministic) && found.plan != "" {
			return found, true
		}
	}
	return finding{}, false
}
