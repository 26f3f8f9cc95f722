package work

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	me    = "incarnation 2"
	other = "incarnation 1"
)

var now = time.UnixMilli(1_000_000_000_000)

// columns are the columns of the table in the package comment. A column with ' has items of another owner.
var columns = []struct {
	name  string
	state State
	owner string
}{
	{"W", Waiting, me}, {"R", Running, me}, {"W'", Waiting, other}, {"R'", Running, other}, {"C", Recovering, other},
	{"N", Notifying, ""}, {"E", Ended, me}, {"O", Orphaned, other}, {"D", Dead, other}, {"X", Cancelling, me}, {"P", Replaced, me},
	{"X'", Cancelling, other}, {"P'", Replaced, other}, {"W0", Waiting, ""},
}

var letters = map[State]string{
	Waiting: "W", Running: "R", Recovering: "C", Notifying: "N", Ended: "E", Orphaned: "O", Dead: "D", Cancelling: "X", Replaced: "P",
}

var kinds = []string{
	Begun: "Begun", Due: "Due", Stuck: "Stuck", Progressed: "Progressed", Returned: "Returned", HookCalled: "HookCalled",
	HookRunning: "HookRunning", HookReturned: "HookReturned", Decided: "Decided", Cancel: "Cancel", Restart: "Restart", Retry: "Retry", Resolve: "Resolve",
	Replace: "Replace",
}

// eachItem calls do with items of a column that differ in each field on which a decision may depend.
func eachItem(state State, owner string, do func(Item)) {
	hour := time.Hour.Milliseconds()
	for _, charges := range []Item{{}, {Attempt: 1, Stalls: 1}, {Attempt: 2, Stalls: 2}, {Attempt: 3, Failures: 3}, {Attempt: maxAttempts}} {
		for _, calls := range []int{0, 1, 2, MaxCalls - 1, MaxCalls} {
			for _, first := range []int64{0, now.UnixMilli() - 25*hour, now.UnixMilli() - hour} {
				for _, before := range []int64{0, now.UnixMilli(), now.UnixMilli() + 1} {
					it := charges
					it.State, it.Owner, it.Run, it.Calls, it.FirstCall, it.NotBefore = state, owner, 7, calls, first, before
					if state != Ended && state != Notifying {
						do(it)
						continue
					}
					for it.Outcome = Completed; it.Outcome <= Cancelled; it.Outcome++ {
						do(it)
					}
				}
			}
		}
	}
}

func eachPolicy(do func(*Policy)) {
	for bits := range 1 << 6 {
		is := func(n int) bool { return bits>>n&1 == 1 }
		for _, retries := range []int{-1, 0, 3} {
			for _, isolate := range []int{0, 1} {
				do(&Policy{
					Known: is(0), Resumable: is(1), RecoveryHook: is(2), EndHook: is(3), GiveUp: is(4), KeepPlace: is(5),
					MaxRetries: retries, Isolate: isolate, HookDelay: time.Minute, KeepCompleted: time.Hour, KeepFailed: 2 * time.Hour,
				})
			}
		}
	}
}

// eachEvent calls do with the events of a kind that differ in each field on which its step may depend.
func eachEvent(k EventKind, do func(Event)) {
	ev := Event{Kind: k, Owner: me, Run: 7}
	switch k {
	case Due:
		do(ev)
		ev.Alone = true
		do(ev)
	case Progressed, Returned, HookReturned:
		for bits := range 1 << 3 {
			ev.Failed, ev.Final, ev.Run = bits&1 == 1, bits>>1&1 == 1, 6+uint64(bits>>2)
			do(ev)
		}
	case Decided, Resolve:
		if k == Decided {
			do(ev)
		}
		for ev.Outcome = Completed; ev.Outcome <= Cancelled; ev.Outcome++ {
			do(ev)
		}
	default:
		do(ev)
	}
}

// cell is the entry of the table for the results of all steps of one kind of event from one column.
func cell(n int, k EventKind) (entry string, steps int) {
	found := map[string]bool{}
	eachPolicy(func(p *Policy) {
		eachItem(columns[n].state, columns[n].owner, func(it Item) {
			eachEvent(k, func(ev Event) {
				steps++
				next, eff := Step(it, ev, p, now)
				switch eff {
				case Refused:
					found["."] = true
				case Impossible:
					found["!"] = true
				case Delete:
					found["-"] = true
				case Wait:
					found["="] = true
				case CallHook:
					found["h"] = true
				default:
					found[letters[next.State]] = true
				}
			})
		})
	})
	for _, l := range strings.Split("WRCNEODXPh=-.!", "") {
		if found[l] {
			entry += l
		}
	}
	return entry, steps
}

// TestStepMatchesItsTable compares Step with the table in the package comment, for every state, event and policy.
func TestStepMatchesItsTable(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for _, line := range regexp.MustCompile(`(?m)^//\t(\w+) +(\S.*)$`).FindAllStringSubmatch(string(doc), -1) {
		if slices.Contains(kinds, line[1]) {
			rows[line[1]] = strings.Fields(line[2])
		}
	}
	steps := 0
	for k, name := range kinds {
		var got []string
		for n := range columns {
			entry, ran := cell(n, EventKind(k))
			got = append(got, entry)
			steps += ran
		}
		if !slices.Equal(got, rows[name]) {
			t.Errorf("the table has\n%-13s %s\nand Step\n%-13s %s", name, strings.Join(rows[name], " "), name, strings.Join(got, " "))
		}
	}
	t.Logf("%d steps", steps)
}
