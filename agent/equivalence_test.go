package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dohost/dohost/internal/work"
)

// itemOf is the item that a row describes.
func itemOf(r *fiberRow, me string) work.Item {
	it := work.Item{
		Owner: r.Incarnation, Attempt: r.Attempt, Failures: r.Failures, Stalls: r.Stalls,
		Calls: r.Hooks, FirstCall: r.FirstHook, NotBefore: r.NextHook, Expires: r.Expires,
	}
	outcomes := map[FiberStatus]work.Outcome{FiberCompleted: work.Completed, FiberFailed: work.Failed, FiberCancelled: work.Cancelled}
	it.Outcome = outcomes[r.Status]
	switch {
	case r.NotifyPending:
		it.State = work.Notifying
	case r.Dead:
		it.State = work.Dead
	case r.Status == FiberInterrupted:
		it.State = work.Orphaned
	case r.Status.final():
		it.State = work.Ended
	case r.Incarnation != me && r.NextHook > 0:
		it.State = work.Recovering
	case r.Status == FiberRunning:
		it.State = work.Running
	}
	return it
}

// randomRow returns a row that an agent can have stored.
func randomRow(rnd *rand.Rand, now time.Time) *fiberRow {
	ms := func(hours int64) int64 { return now.UnixMilli() + hours*3_600_000 }
	r := &fiberRow{
		ID: "f", Name: []string{"known", "quiet", "unknown"}[rnd.IntN(3)], Incarnation: []string{"me", "other"}[rnd.IntN(2)],
		Started: rnd.IntN(3) > 0, Status: []FiberStatus{FiberPending, FiberRunning}[rnd.IntN(2)], Retries: rnd.IntN(4),
	}
	if r.Started {
		r.Failures, r.Stalls = rnd.IntN(3), rnd.IntN(3)
		r.Attempt = r.Failures + r.Stalls + []int{0, 2, maxAttempts}[rnd.IntN(3)]
	} else {
		r.Status = FiberRunning
	}
	if rnd.IntN(2) == 0 && (!r.Started || r.Incarnation == "other") {
		r.Hooks, r.FirstHook = 1+rnd.IntN(5), ms([]int64{-1, -25}[rnd.IntN(2)])
		r.NextHook = []int64{0, now.UnixMilli() - 1, now.UnixMilli(), ms(1)}[rnd.IntN(4)]
		if r.Incarnation == "me" || r.Started && r.NextHook == 0 {
			r.NextHook = 0
			if r.Started {
				r.Hooks, r.FirstHook = 0, 0
			}
		}
	}
	switch rnd.IntN(6) {
	case 0:
		r.Dead = r.Incarnation == "other"
	case 1:
		if r.Started {
			r.Status, r.Ended = []FiberStatus{FiberCompleted, FiberFailed}[rnd.IntN(2)], ms(-1)
			r.NotifyPending, r.Incarnation = true, ""
			if r.NextHook == 0 {
				r.NextHook = now.UnixMilli()
			}
		}
	case 2:
		if r.Started {
			r.Status, r.Ended = []FiberStatus{FiberCompleted, FiberFailed, FiberCancelled, FiberInterrupted}[rnd.IntN(4)], ms(-1)
			r.Hooks, r.FirstHook, r.NextHook = 0, 0, 0
		}
	}
	return r
}

// TestWorkDecidesAsBefore compares package work with the functions that it replaces, for random rows and classes.
func TestWorkDecidesAsBefore(t *testing.T) {
	const cases = 200_000
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	now := time.UnixMilli(1_000_000_000_000)
	counts := map[string]int{}
	for n := range cases {
		cl := &class{kinds: map[string]kind{
			"known": {options: (&KindOptions{KeepFailed: -1}).withDefaults()}, "quiet": {options: (&KindOptions{Quiet: true}).withDefaults()},
		}, options: Options{}.withDefaults()}
		if rnd.IntN(2) == 0 {
			cl.interrupted = func(any, context.Context, *InterruptedRun) error { return nil }
		}
		if rnd.IntN(2) == 0 {
			cl.recovery = func(any, context.Context, []*InterruptedFiber) error { return nil }
		}
		if rnd.IntN(2) == 0 {
			cl.ended = func(any, context.Context, FiberInfo) error { return nil }
		}
		c := &core{class: cl, incarnation: "me"}
		r := randomRow(rnd, now)
		was := fmt.Sprintf("%+v", *r)
		it, p := itemOf(r, "me"), c.fiberPolicy(r)
		if it.State == work.Notifying {
			p.EndHook = c.class.ended != nil // as the old functions, which looked at Quiet only at the end
		}
		ev := work.Event{Owner: "me", Run: it.Run}
		what, want := oldStep(c, rnd, r, &ev, now)
		if what == "" {
			continue
		}
		got, eff := work.Step(it, ev, p, now)
		got.Run = 0
		if eff == work.Run && want.State == work.Running || eff == work.CallHook && want.effect == work.CallHook {
			want.effect = eff
		}
		counts[what]++
		if eff != want.effect || eff != work.Delete && eff != work.CallHook && got != want.Item {
			t.Fatalf("seed %d, case %d: %s of %s:\nwork %+v, effect %d\nwant %+v, effect %d", seed, n, what, was, got, eff, want.Item, want.effect)
		}
	}
	if len(counts) < 20 {
		t.Errorf("%d kinds of decisions: %v", len(counts), counts)
	}
	t.Logf("seed %d: %d cases, %v", seed, cases, counts)
}

type stepResult struct {
	work.Item
	effect work.Effect
}

// oldStep carries out an event as the functions of this package do, on r.
func oldStep(c *core, rnd *rand.Rand, r *fiberRow, ev *work.Event, now time.Time) (what string, want stepResult) {
	ms := now.UnixMilli()
	interrupted := r.isInterrupted("me")
	after := func(what string) (string, stepResult) { return what, stepResult{Item: itemOf(r, "me")} }
	switch k := work.EventKind(rnd.IntN(int(work.Replace))); {
	case k == work.Due && (interrupted || r.NotifyPending):
		ev.Kind = k
		v := c.decide(r, now)
		what = "due: " + [...]string{"resume", "fail", "orphan", "ask recovery", "ask interrupted", "delete", "dead", "notify", "skip notify", "postpone", "pause"}[v]
		want.effect = work.None
		switch v {
		case decisionResume:
			r.countInterruption()
			r.Hooks, r.FirstHook, r.NextHook = 0, 0, 0
			r.Incarnation, r.Status = "me", FiberRunning
		case decisionFail:
			r.countInterruption()
			c.endFiber(r, FiberFailed, ms)
		case decisionOrphan:
			r.Status, r.Hooks, r.FirstHook, r.NextHook = FiberInterrupted, 0, 0, 0
		case decisionMarkDead:
			r.Dead = true
		case decisionPause:
			r.NextHook = now.Add(hookDelay(r.Hooks-1, c.class.options.KeepAlive)).UnixMilli()
		case decisionSkipNotify:
			c.setExpiry(r, ms)
		case decisionDelete:
			want.effect = work.Delete
		case decisionAskRecovery, decisionAskInterrupted, decisionNotify:
			want.effect = work.CallHook
		case decisionPostpone:
			want.effect = work.Wait
		}
		want.Item = itemOf(r, "me")
		return what, want
	case k == work.Returned && r.Started && r.Status == FiberRunning && r.Incarnation == "me" && !r.Dead:
		ev.Kind, ev.Failed, ev.Final = k, rnd.IntN(2) == 0, rnd.IntN(4) == 0
		e := &callOutcome{result: json.RawMessage("1"), final: ev.Final}
		if ev.Failed {
			e.failed = errChanged
		}
		c.applyOutcome(r, e, ms)
		what, want = after(fmt.Sprintf("returned: failed %v, open %v", ev.Failed, r.open()))
		if r.open() {
			want.effect = work.Run
		}
		return what, want
	case k == work.Progressed && r.open() && r.Incarnation == "me" && r.NextHook == 0:
		ev.Kind = k
		r.Stalls, r.Hooks, r.FirstHook = 0, 0, 0
		return after("progressed")
	case k == work.HookCalled && (interrupted || r.NotifyPending):
		ev.Kind = k
		r.Hooks++
		if r.FirstHook == 0 {
			r.FirstHook = ms
		}
		r.NextHook = now.Add(hookDelay(r.Hooks, c.class.options.KeepAlive)).UnixMilli()
		return after("hook called")
	case k == work.HookReturned && interrupted && r.Hooks > 0 && r.NextHook > 0:
		ev.Kind, ev.Failed = k, rnd.IntN(2) == 0
		switch {
		case ev.Failed:
			r.Dead = r.Hooks >= maxHooks
			return after(fmt.Sprintf("recovery hook failed: dead %v", r.Dead))
		case !r.Started:
			return "recovered", stepResult{effect: work.Delete}
		}
		r.countInterruption()
		c.endFiber(r, FiberFailed, ms)
		return after("undecided")
	case k == work.HookReturned && r.NotifyPending:
		ev.Kind, ev.Failed = k, rnd.IntN(2) == 0
		if !ev.Failed || r.Hooks >= maxHooks {
			c.setExpiry(r, ms)
		}
		return after(fmt.Sprintf("end hook: failed %v, pending %v", ev.Failed, r.NotifyPending))
	case k == work.Decided && interrupted && r.Started && r.NextHook > 0:
		ev.Kind, ev.Outcome = k, work.Outcome(rnd.IntN(3))
		r.countInterruption()
		if ev.Outcome == 0 {
			r.Hooks, r.FirstHook, r.NextHook = 0, 0, 0
			r.Incarnation, r.Status = "me", FiberRunning
			what, want = after("decided: resume")
			want.effect = work.Run
			return what, want
		}
		c.endFiber(r, []FiberStatus{"", FiberCompleted, FiberFailed}[ev.Outcome], ms)
		return after("decided: end")
	case k == work.Cancel:
		ev.Kind = k
		switch {
		case r.Status.final():
			return "cancel: refused", stepResult{Item: itemOf(r, "me"), effect: work.Refused}
		case !r.Started:
			return "cancel: delete", stepResult{effect: work.Delete}
		}
		c.endFiber(r, FiberCancelled, ms)
		return after("cancel")
	case k == work.Restart && r.Started:
		ev.Kind = k
		if r.open() || r.Status == FiberCompleted {
			return "restart: refused", stepResult{Item: itemOf(r, "me"), effect: work.Refused}
		}
		c.resetForRestart(r, ms)
		what, want = after("restart")
		want.effect = work.Run
		return what, want
	case k == work.Retry && r.Dead:
		ev.Kind = k
		r.Dead, r.Hooks, r.FirstHook, r.NextHook, r.Incarnation = false, 0, 0, 0, ""
		what, want = after("retry")
		want.State = work.Recovering // the old row had no such state until the hook was called
		return what, want
	case k == work.Resolve && r.Status == FiberInterrupted:
		ev.Kind, ev.Outcome = k, work.Outcome(1+rnd.IntN(3))
		c.endFiber(r, []FiberStatus{"", FiberCompleted, FiberFailed, FiberCancelled}[ev.Outcome], ms)
		return after("resolve")
	}
	return "", stepResult{}
}
