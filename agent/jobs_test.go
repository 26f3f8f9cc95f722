package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/dohost/dohost/internal/work"
)

func TestScheduleStateAfterRun(t *testing.T) {
	now := time.Date(2026, 3, 29, 0, 59, 59, 0, time.UTC)
	late := now.Add(-72 * time.Hour)
	running := work.Item{State: work.Running, Owner: "a", Run: 7, Attempt: 2, Stalls: 2}
	for _, tt := range []struct {
		name  string
		job   scheduleRow
		due   time.Time
		stays bool
		fails bool
	}{
		{"delayed", scheduleRow{Kind: ScheduleDelayed}, time.Time{}, false, false},
		{"at", scheduleRow{Kind: ScheduleAt}, time.Time{}, false, false},
		{"interval", scheduleRow{Kind: ScheduleInterval, Every: time.Minute, Due: late}, now.Add(time.Minute), true, false},
		{"cron", scheduleRow{Kind: ScheduleCron, Cron: "@hourly", Due: late}, now.Add(time.Second), true, false},
		{"zone", scheduleRow{Kind: ScheduleCron, Cron: "30 2 * * *", Zone: "Europe/Berlin"}, now.Add(time.Second), true, false},
		{"zone that is gone", scheduleRow{Kind: ScheduleCron, Cron: "@hourly", Zone: "Mars/Phobos"}, now.Add(time.Hour), true, true},
	} {
		tt.job.Item, tt.job.Started, tt.job.StuckAt = running, now, now
		next, stays, err := tt.job.ended(now)
		if stays != tt.stays || (err != nil) != tt.fails {
			t.Errorf("%s: stays %t, %v", tt.name, stays, err)
		}
		if stays && (!next.Due.Equal(tt.due) || next.Item != work.Item{} || !next.Started.IsZero() || !next.StuckAt.IsZero()) {
			t.Errorf("%s: %+v, want due %v", tt.name, next, tt.due)
		}
	}
}

func TestQueueItemStateAfterRun(t *testing.T) {
	item := func(state work.State, owner string, number uint64) work.Item {
		return work.Item{State: state, Owner: owner, Run: number}
	}
	js := &jobs{incarnation: &incarnation{owner: "a", class: &class{options: Options{}.withDefaults()}}}
	for _, tt := range []struct {
		name    string
		now     work.Item
		failed  bool
		state   work.State
		outcome work.Outcome
		effect  work.Effect
	}{
		{"done", item(work.Running, "a", 7), false, work.Ended, work.Completed, work.None},
		{"dead", item(work.Running, "a", 7), true, work.Ended, work.Failed, work.None},
		{"replaced", item(work.Replaced, "a", 7), false, work.Waiting, 0, work.None},
		{"replaced and failed", item(work.Replaced, "a", 7), true, work.Waiting, 0, work.None},
		{"cancelled", item(work.Cancelling, "a", 7), true, work.Cancelling, 0, work.Delete},
		{"another run", item(work.Running, "a", 8), false, work.Running, 0, work.Refused},
		{"another incarnation", item(work.Running, "b", 7), false, work.Running, 0, work.Refused},
		{"not running", item(work.Waiting, "", 7), false, work.Waiting, 0, work.Refused},
	} {
		ev := work.Event{Kind: work.Returned, Run: 7, Failed: tt.failed, Final: true}
		next, eff, err := js.step("x", tt.now, ev, js.queuePolicy(), time.Now())
		if err != nil || eff != tt.effect || next.State != tt.state || next.Outcome != tt.outcome {
			t.Errorf("%s: %+v, effect %d, %v", tt.name, next, eff, err)
		}
	}
}

// TestJobRunExhaustedByInterruptions ends the incarnation during every run of a row.
func TestJobRunExhaustedByInterruptions(t *testing.T) {
	for _, tt := range []struct {
		limit, runs int
	}{{1, 1}, {5, 5}, {0, 5}, {-1, 1000}} {
		js := &jobs{incarnation: &incarnation{class: &class{options: Options{MaxInterruptions: tt.limit}.withDefaults()}}}
		it, runs := work.Item{}, 0
		for ; runs < 1000; runs++ {
			js.owner = fmt.Sprint("incarnation ", runs)
			next, eff, err := js.step("x", it, work.Event{Kind: work.Due, Alone: true}, js.queuePolicy(), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if it = next; eff != work.Run {
				break
			}
		}
		if runs != tt.runs || tt.limit >= 0 && it.State != work.Dead {
			t.Errorf("limit %d: %d runs, then %v; want %d", tt.limit, runs, it.State, tt.runs)
		}
	}
}

// TestCronJobRunsOnceWhenTheClockIsSetBack ends a run after the clock was set back to before the run's due
// time.
func TestCronJobRunsOnceWhenTheClockIsSetBack(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	j := scheduleRow{Kind: ScheduleCron, Cron: "0 12 * * *", Due: noon, Item: work.Item{State: work.Running, Owner: "a", Run: 1}}
	for _, back := range []time.Duration{-time.Second, 0, 2 * time.Second, 11 * time.Hour, 30 * time.Hour} {
		next, stays, err := j.ended(noon.Add(-back))
		if want := noon.Add(24 * time.Hour); err != nil || !stays || !next.Due.Equal(want) {
			t.Errorf("set back by %v: due at %v, %v, %v; want %v", back, next.Due, stays, err, want)
		}
	}
}

func TestNextSuspectHasTheFewestStalls(t *testing.T) {
	for _, c := range []struct {
		stalls []int
		want   int
	}{{[]int{2, 3, 4}, 0}, {[]int{4, 2, 3}, 1}, {[]int{4, 3, 2}, 2}, {[]int{3, 2, 2}, 1}} {
		if got := nextSuspect([]int{0, 1, 2}, func(n int) int { return c.stalls[n] }); got != c.want {
			t.Errorf("of suspects with %d stalls, number %d is next, want %d", c.stalls, got, c.want)
		}
	}
}
