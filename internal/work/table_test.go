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

var letters = [...]byte{
	Waiting: 'W', Running: 'R', Recovering: 'C', Notifying: 'N', Ended: 'E', Orphaned: 'O', Dead: 'D', Cancelling: 'X', Replaced: 'P',
}

// kinds are the names of the kinds of events.
func kinds() (names []string) {
	for k := range Replace + 1 {
		names = append(names, k.String())
	}
	return names
}

// eachItem calls do with items of a column that differ in each field on which a decision may depend.
func eachItem(state State, owner string, do func(Item)) {
	hour := time.Hour.Milliseconds()
	for _, charges := range []Item{{}, {Attempt: 1, Stalls: 1}, {Attempt: 2, Stalls: 2, FirstStall: now.UnixMilli() - 25*hour}, {Attempt: 3, Failures: 3}, {Attempt: maxAttempts}} {
		for _, calls := range []int{0, 1, 2, MaxCalls} {
			for _, at := range []struct{ first, before int64 }{
				{}, {-25 * hour, 0}, {-25 * hour, now.UnixMilli()}, {-hour, 0}, {-hour, now.UnixMilli()}, {-hour, now.UnixMilli() + 1},
			} {
				if at.first != 0 {
					at.first += now.UnixMilli()
				}
				it := charges
				it.State, it.Owner, it.Run, it.Calls, it.FirstCall, it.NotBefore = state, owner, 7, calls, at.first, at.before
				if state != Ended && state != Notifying {
					if charges == (Item{}) || state != Replaced { // Replace clears the charges of a new payload
						do(it)
					}
					continue
				}
				for it.Outcome = Completed; it.Outcome <= Skipped; it.Outcome++ {
					do(it)
				}
			}
		}
	}
}

func eachPolicy(do func(*Policy)) {
	limits := []Policy{
		{MaxRetries: -1}, {MaxRetries: 3}, {MaxRetries: -1, Isolate: 1}, {MaxRetries: 3, Isolate: 1},
		{MaxRetries: 3, CountAllAttempts: true}, {MaxRetries: -1, MaxStallTime: 24 * time.Hour},
		{MaxRetries: 3, RetryDelay: time.Minute, MaxRetryDelay: 2 * time.Minute},
		{MaxRetries: -1, RetryDelay: time.Minute, MaxRetryDelay: 2 * time.Minute},
		{MaxRetries: -1, Isolate: 1, MaxStallTime: 24 * time.Hour}, {MaxRetries: 3, Isolate: 1, MaxStallTime: 24 * time.Hour},
	}
	for bits := range 1 << 7 {
		is := func(n int) bool { return bits>>n&1 == 1 }
		if is(6) && !is(3) {
			continue
		}
		for n, p := range limits {
			if n > 3 && !(is(0) && is(1)) {
				continue // no other item is resumed, or runs again after a delay
			}
			p.Known, p.Resumable, p.RecoveryHook, p.EndHook, p.GiveUp, p.KeepPlace = is(0), is(1), is(2), is(3), is(4), is(5)
			p.EndHookAfterCancel, p.HookDelay, p.KeepCompleted, p.KeepFailed = is(6), time.Minute, time.Hour, 2*time.Hour
			do(&p)
		}
	}
}

// eachEvent calls do with the events of a kind that differ in each field on which its step may depend.
func eachEvent(k EventKind, do func(Event)) {
	ev := Event{Kind: k, Owner: me, Run: 7}
	switch k {
	case Due:
		ev.Run = 9
		do(ev)
		ev.Alone = true
		do(ev)
		ev.Failed = true
		do(ev)
		ev.Final = true
		do(ev)
		ev.Final, ev.Jitter = false, 0.25
		do(ev)
	case HookCalled:
		do(ev)
		ev.Jitter = 0.125
		do(ev)
	case Progressed, Returned, HookReturned:
		ev.Jitter = 0.25
		for bits := range 1 << 3 {
			ev.Failed, ev.Final, ev.Run = bits&1 == 1, bits>>1&1 == 1, 6+uint64(bits>>2)
			do(ev)
		}
		if k == Returned {
			do(Event{Kind: k, Owner: me, Run: 7, Delay: 3 * time.Minute})
		}
	case Decided, Resolve:
		if k == Decided {
			ev.Run = 9
			do(ev)
		}
		for ev.Outcome = Completed; ev.Outcome <= Cancelled; ev.Outcome++ {
			do(ev)
		}
	case Cancel:
		do(ev)
		ev.Outcome = Skipped
		do(ev)
	case Stuck, Restart:
		ev.Run = 9
		do(ev)
	default:
		do(ev)
	}
}

// taken is one step of the test.
type taken struct {
	it   Item
	ev   Event
	p    *Policy
	next Item
	eff  Effect
}

// mark is the letter of the step's result in the table.
func (s *taken) mark() byte {
	switch s.eff {
	case Refused:
		return '.'
	case Impossible:
		return '!'
	case Delete:
		return '-'
	case Wait:
		return '='
	case CallHook:
		return 'h'
	}
	return letters[s.next.State]
}

// table returns the rows of the table in the package comment.
func table(t *testing.T) map[string][]string {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for _, line := range regexp.MustCompile(`(?m)^//\t(\w+) +(\S.*)$`).FindAllStringSubmatch(string(doc), -1) {
		if slices.Contains(kinds(), line[1]) {
			rows[line[1]] = strings.Fields(line[2])
		}
	}
	return rows
}

// TestStepMatchesItsTableAndRules computes the step of every state, event and policy once. It compares all steps with the
// table in the package comment, and checks that each keeps the rules for all kinds of work.
func TestStepMatchesItsTableAndRules(t *testing.T) {
	rows, rules, steps := table(t), rules{t: t, broken: map[string]bool{}}, 0
	for k, name := range kinds() {
		var got []string
		for n := range columns {
			var found ['z']bool
			eachStep(n, EventKind(k), func(s *taken) {
				steps++
				found[s.mark()] = true
				rules.check(s)
			})
			entry := ""
			for _, l := range "WRCNEODXPh=-.!" {
				if found[l] {
					entry += string(l)
				}
			}
			got = append(got, entry)
		}
		if !slices.Equal(got, rows[name]) {
			t.Errorf("the table has\n%-13s %s\nand Step\n%-13s %s", name, strings.Join(rows[name], " "), name, strings.Join(got, " "))
		}
	}
	t.Logf("%d steps", steps)
}

// eachStep calls do with the steps for one kind of event from one column.
func eachStep(n int, k EventKind, do func(*taken)) {
	var s taken
	eachPolicy(func(p *Policy) {
		eachItem(columns[n].state, columns[n].owner, func(it Item) {
			eachEvent(k, func(ev Event) {
				s.it, s.ev, s.p = it, ev, p
				s.next, s.eff = step(it, ev, p, now)
				do(&s)
			})
		})
	})
}

// afterCalls returns the time of the next call of a hook, after a number of calls, in the policies of this test.
func afterCalls(calls int, jitter float64) int64 {
	delays := []time.Duration{0, time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute, 5 * time.Minute}
	return now.UnixMilli() + int64(float64(delays[calls].Milliseconds())*(1+jitter))
}

// rules checks the rules that hold for all kinds of work. It reports the first step that breaks a rule.
type rules struct {
	t      *testing.T
	broken map[string]bool
}

func (r rules) check(s *taken) {
	it, ev, p, next, eff := &s.it, &s.ev, s.p, &s.next, s.eff
	require := func(rule string, holds bool) {
		if !holds && !r.broken[rule] {
			r.t.Errorf("%s: %s of %+v with %+v and %+v: %+v, effect %d", rule, ev.Kind, *it, *ev, *p, *next, eff)
			r.broken[rule] = true
		}
	}
	begins := eff == Run && ev.Kind != Returned
	retries := p.MaxRetries
	interrupted := it.Interrupted(ev.Owner)
	require("an effect that writes nothing changes nothing", eff == None || eff == Run || *next == *it)
	require("a start has the number of its event, and no other step changes it", begins == (next.Run == 9) &&
		(begins || next.Run == it.Run || *next == (Item{})))
	require("a run belongs to the incarnation that starts it", eff != Run || next.Owner == ev.Owner)
	require("a resumed item is charged before it runs", !begins || !interrupted || it.State == Replaced ||
		next.Attempt == it.Attempt+1 && next.Stalls+next.Failures == it.Stalls+it.Failures+1 && (next.Failures > it.Failures) == ev.Failed)
	require("an item out of retries does not resume", !begins || ev.Kind != Due || !interrupted || it.State == Replaced || retries < 0 ||
		it.Failures+it.Stalls < retries)
	require("an item out of attempts does not resume if its policy counts all attempts", !begins || ev.Kind != Due || !interrupted || it.State == Replaced ||
		!p.CountAllAttempts || it.Attempt < retries)
	require("an item without progress for too long does not resume", !begins || ev.Kind != Due || !interrupted || it.State == Replaced ||
		p.MaxStallTime == 0 || it.FirstStall == 0)
	require("an item does not resume after a final interruption", !begins || ev.Kind != Due || !interrupted || it.State == Replaced || !ev.Final)
	require("the time without progress begins with the first interruption", !begins || ev.Kind != Due || !interrupted ||
		it.State == Replaced || (next.FirstStall > 0) == (p.MaxStallTime > 0 || it.FirstStall > 0))
	require("an item that ends its process in every run is bounded", !begins || ev.Kind != Due || !interrupted || retries < 0 || it.Attempt < maxAttempts)
	require("a start after a delay was charged before the delay", !begins || ev.Kind != Due || interrupted || next.Attempt == it.Attempt &&
		next.Stalls == it.Stalls && next.Failures == it.Failures)
	require("one suspect at a time", !begins || ev.Kind != Due || ev.Alone || !it.Suspect(ev.Owner, p))
	require("a hook is not called more often than its bound", eff != CallHook || it.Calls < MaxCalls)
	require("a hook is not called for more than a day", eff != CallHook || it.FirstCall == 0 ||
		now.Sub(time.UnixMilli(it.FirstCall)) < 24*time.Hour)
	require("a call of a hook is not early", eff != CallHook || it.NotBefore <= now.UnixMilli())
	require("a call of a hook is charged", ev.Kind != HookCalled || eff != None ||
		next.Calls == it.Calls+1 && next.FirstCall > 0)
	require("the next call of a hook waits for its delay, and for the jitter", ev.Kind != HookCalled || eff != None ||
		next.NotBefore == afterCalls(next.Calls, ev.Jitter))
	require("so does one after a pause", ev.Kind != Due || eff != None || next.State != Recovering ||
		next.NotBefore == afterCalls(next.Calls-1, ev.Jitter))
	require("a result of another run does not count", ev.Kind != Returned || ev.Run == it.Run || eff == Refused || eff == Impossible)
	postponed := ev.Delay > 0 && it.State == Running && eff != Refused
	require("a postponed item waits for its time without an owner, and is not charged", !postponed || next.State == Waiting && next.Owner == "" &&
		next.NotBefore == now.Add(3*time.Minute).UnixMilli() && next.Attempt == it.Attempt && next.Failures == it.Failures && next.Stalls == 0)
	waits := ev.Kind == Returned && it.State == Running && next.State == Waiting && !postponed
	require("a failed item waits without an owner, if its policy has a delay", ev.Kind != Returned || eff == Refused || it.State != Running ||
		next.State != Running && next.State != Waiting || postponed || waits == (p.RetryDelay > 0) && (!waits || next.Owner == ""))
	require("the delay after a failure doubles up to its bound, and has its jitter", !waits ||
		next.NotBefore == now.UnixMilli()+int64(float64([]int64{1, 1, 2, 2, 2}[next.Failures]*time.Minute.Milliseconds())*(1-ev.Jitter)))
	require("a failed item is charged before it waits, and has attempts left", !waits ||
		next.Failures == it.Failures+1 && next.Attempt == it.Attempt+1 && (retries < 0 || next.Failures+next.Stalls <= retries) && !ev.Final)
	require("a completed item does not run again", it.Outcome != Completed || !begins)
	require("an item that has ended has an outcome", eff != None || next.State != Ended && next.State != Notifying || next.Outcome != 0)
	require("an open item has none", !next.Open() || next.Outcome == 0)
	require("an ended item expires, if its policy says so", eff != None || it.State == Ended || next.State != Ended ||
		next.Expires > now.UnixMilli())
	require("only a cancelled item ends without its end hook", eff != None || !p.EndHook || it.State == Notifying ||
		next.State != Ended || next.Outcome == Cancelled || next.Outcome == Skipped)
	require("an item that has begun does not end without its end hook, if its policy has EndHookAfterCancel", eff != None || !p.EndHookAfterCancel ||
		it.State == Notifying || it.State == Waiting || next.State != Ended)
	require("only Cancel skips an item", next.Outcome != Skipped || it.Outcome == Skipped || ev.Kind == Cancel)
}

// TestEventThatIsImpossiblePanics finds the panic in builds that check invariants, and none in others.
func TestEventThatIsImpossiblePanics(t *testing.T) {
	defer func() {
		if r := recover(); (r != nil) != strict {
			t.Errorf("an impossible event: %v, and strict is %v", r, strict)
		}
	}()
	if _, eff := Step(Item{State: Running, Owner: "i"}, Event{Kind: Begun, Owner: "i"}, &Policy{}, now); eff != Impossible {
		t.Errorf("a second Begun: effect %d", eff)
	}
}

// TestSuspectsAndIsolatedItems compares the two questions about suspects with the number of starts that the owner's end
// has cut off.
func TestSuspectsAndIsolatedItems(t *testing.T) {
	p := &Policy{Known: true, Resumable: true, MaxRetries: -1, Isolate: 1}
	it := Item{}
	for cutOff := range 5 {
		owner := strings.Repeat("i", cutOff+1)
		if got, want := it.Suspect(owner, p), cutOff >= 2; got != want {
			t.Errorf("cut off %d times: suspect %v, want %v", cutOff, got, want)
		}
		it, _ = Step(it, Event{Kind: Due, Owner: owner, Alone: true}, p, now)
		if got, want := it.Isolated(owner, p), cutOff >= 2; got != want {
			t.Errorf("started after %d cut-offs: isolated %v, want %v", cutOff, got, want)
		}
	}
}
