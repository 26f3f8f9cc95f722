package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// finding is a failure of a run with an ending.
type finding struct {
	where  string // the ending and its point
	err    string
	run    string // how to replay it: the pattern for -run,
	plan   string // and the value of -dohosttest.replay
	replay string // the line
}

// findings is the content of the output of a failed test.
type findings struct {
	printed       []finding // printed in full
	more          int       // failures that were only counted
	withoutEnding string    // the failure of a run without an ending
}

// count returns how many runs failed: a point has a run for each way of ending it.
func (f *findings) count() int { return len(f.printed) + f.more }

var (
	failureLine = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)$`)
	moreLine    = regexp.MustCompile(`^(\d+) more failures?\b`)
	replayLine  = regexp.MustCompile(`^\s*replay: (go test -run '(.*)' \. -dohosttest\.replay='(.*)')$`)
)

// notDeterministic is the error of a run that did not reach the point of its ending. It
// finds no bug.
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
				f.printed = append(f.printed, finding{where: m[1]})
				now = &f.printed[len(f.printed)-1]
			case n != nil:
				count, _ := strconv.Atoi(n[1]) // the pattern matches digits only
				f.more += count
			case f.withoutEnding == "" && !strings.Contains(m[1], " points of "):
				f.withoutEnding = m[1]
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
		case text == "log:":
			reading = false
		case strings.HasPrefix(text, "and another, in the recovery from that: "):
			now.where += "; " + text
		default:
			now.err = strings.TrimSpace(now.err + "\n" + text)
		}
	}
	return f
}

// id is a random name, different in every run: a ULID, or the ID of an operation or of a call.
var id = regexp.MustCompile(`\b([0-7][0-9A-HJKMNP-TV-Z]{25}|(op|call)_[0-9a-z]{26})\b`)

// same reports whether two failures have the same error.
func same(a, b finding) bool {
	return id.ReplaceAllString(a.err, "") == id.ReplaceAllString(b.err, "")
}

// failedTest is the line of a failed test that is no subtest.
var failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// takeFailures reads the output of a failed plain test.
func (v *trialResult) takeFailures(output string) error {
	failed := failedTest.FindAllStringSubmatch(output, -1)
	if len(failed) == 0 {
		return fmt.Errorf("no test has failed, but the process:\n%s", tail(output))
	}
	v.found = len(failed)
	v.first = finding{where: failed[0][1], replay: fmt.Sprintf("go test -run '%s' .", v.s.run)}
	for line := range strings.Lines(output) {
		if m := failureLine.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			v.first.err = m[1]
			break
		}
	}
	return nil
}

// first returns the first failure with an error of the module, not of the harness.
func (f *findings) first() (finding, bool) {
	for _, found := range f.printed {
		if !strings.Contains(found.err, notDeterministic) && found.plan != "" {
			return found, true
		}
	}
	return finding{}, false
}
