package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

func TestSchedulesRunOnTime(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		begun := time.Now() // midnight, UTC
		schedule(b, agent.After(10*time.Second), appendLine, "after", nil)
		schedule(b, agent.At(begun.Add(5*time.Second)), appendLine, "at", nil)
		schedule(b, agent.At(begun.Add(-time.Hour)), appendLine, "past", nil)
		every := schedule(b, agent.Every(4*time.Second), appendLine, "every", nil)
		cron := schedule(b, agent.Cron("1 * * * *", "Asia/Kolkata"), appendLine, "cron", nil) // half an hour off UTC
		b.Evict(callbackAgents.Get(b, "a").ID(), dohost.EndFence)
		var due []time.Duration
		for _, s := range b.schedules(nil) {
			due = append(due, s.Due.Sub(begun))
		}
		want := []time.Duration{4 * time.Second, 5 * time.Second, 10 * time.Second, 31 * time.Minute}
		if !slices.Equal(due, want) {
			t.Errorf("due in %v, want %v", due, want)
		}
		b.Advance(11 * time.Second)
		b.wantLines("past", "every", "at", "every", "after")
		b.Advance(2 * time.Second)
		b.do(func(ctx context.Context, c *callbackAgent) error {
			existed, err := c.Schedules().Cancel(ctx, every)
			again, err2 := c.Schedules().Cancel(ctx, every)
			if !existed || again {
				t.Errorf("cancelled %t, then %t", existed, again)
			}
			return errors.Join(err, err2)
		})
		b.Advance(time.Hour)
		b.wantLines("past", "every", "at", "every", "after", "every", "cron")
		if all := b.schedules(nil); len(all) != 1 || all[0].ID != cron || !all[0].Due.Equal(begun.Add(91*time.Minute)) {
			t.Errorf("left: %+v", all)
		}
		b.wantReports("schedule:error")
		if n := len(b.log.reportsWith("schedule:run callback=note")); n != 7 {
			t.Errorf("%d runs reported", n)
		}
		b.do(func(ctx context.Context, c *callbackAgent) error {
			_, err := c.Schedules().Cancel(ctx, cron)
			return errors.Join(err, c.checkNoRows(ctx))
		})
	})
}

func TestScheduleShortIntervalKeepsItsTime(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		schedule(b, agent.Every(5*time.Second), appendLine, "every", nil)
		b.Advance(16 * time.Second)
		b.wantLines("every", "every", "every")
	})
}

func TestScheduleRefusesInvalidArguments(t *testing.T) {
	other := agent.Callback[int]("note")
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		for _, tt := range []struct {
			try  func(ctx context.Context, c *callbackAgent) (string, error)
			want string
		}{
			{func(ctx context.Context, c *callbackAgent) (string, error) {
				return agent.Schedule(ctx, c, agent.After(0), unregistered, "", nil)
			}, `callback "gone" is not registered`},
			{func(ctx context.Context, c *callbackAgent) (string, error) {
				return agent.Schedule(ctx, c, agent.After(0), other, 1, nil)
			}, `callback "note" takes a payload of type string, not int`},
			{func(ctx context.Context, c *callbackAgent) (string, error) {
				return agent.Schedule(ctx, c, agent.Every(0), appendLine, "", nil)
			}, "Every(0s)"},
			{func(ctx context.Context, c *callbackAgent) (string, error) {
				return agent.Schedule(ctx, c, agent.After(0), appendLine, strings.Repeat("x", 2<<20), nil)
			}, "payload has 2097154 bytes, the limit is 2093056"},
			{func(ctx context.Context, c *callbackAgent) (string, error) {
				return agent.Schedule(ctx, c, agent.After(0), appendLine, "", &agent.ScheduleOptions{Idempotence: 3})
			}, "ScheduleOptions.Idempotence is 3"},
			{func(ctx context.Context, c *callbackAgent) (string, error) {
				o := &agent.ScheduleOptions{Retry: dohost.RetryPolicy{ShouldRetry: dohost.RetryAnyError}}
				return agent.Schedule(ctx, c, agent.After(0), appendLine, "", o)
			}, "RetryPolicy.ShouldRetry is a function"},
			{func(ctx context.Context, c *callbackAgent) (string, error) {
				o := &agent.QueueOptions{Retry: dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}}
				return agent.Enqueue(ctx, c, appendLine, "", o)
			}, "RetryPolicy.ShouldRetry is a function"},
			{func(ctx context.Context, c *callbackAgent) (string, error) {
				return agent.Enqueue(ctx, c, appendLine, "", &agent.QueueOptions{ID: strings.Repeat("x", 257)})
			}, "QueueOptions.ID has 257 bytes: want at most 256"},
			{func(ctx context.Context, c *callbackAgent) (string, error) {
				return agent.Enqueue(ctx, c, unregistered, "", nil)
			}, `callback "gone" is not registered`},
		} {
			b.do(func(ctx context.Context, c *callbackAgent) error {
				if id, err := tt.try(ctx, c); id != "" || err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%q, %v; want %q", id, err, tt.want)
				}
				return nil
			})
		}
		// The largest payload that is allowed does fit.
		schedule(b, agent.After(time.Hour), appendLine, strings.Repeat("x", 2<<20-4<<10-2), nil)
		enqueue(b, work, task{}, nil)
	})
}

func TestPayloadMustBeJSON(t *testing.T) {
	const odd agent.Callback[chan int] = "odd"
	register := agent.OnSchedule(odd, func(*callbackAgent, context.Context, chan int) error { return nil })
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		b.do(func(ctx context.Context, c *callbackAgent) error {
			if _, err := agent.Schedule(ctx, c, agent.After(0), odd, make(chan int), nil); err == nil ||
				!strings.Contains(err.Error(), `the payload for "odd" is not JSON`) {
				t.Error(err)
			}
			return nil
		})
	}, register)
}

// invalidJSON is an agent with a state that is not JSON.
type invalidJSON struct{ *agent.Agent[chan int] }

func TestBindMistakesAreErrorsOfOpen(t *testing.T) {
	const bad agent.FiberKind[int] = "dohost.bad"
	run := func(*callbackAgent, context.Context, *agent.Fiber[int]) error { return nil }
	act := func(*callbackAgent, context.Context, string) (string, error) { return "", nil }
	with := func(h callbackHandlers) dohost.Class { return callbackClass(&callbackLog{}, &h) }
	of := func(entries ...agent.Entry[callbackAgent]) dohost.Class {
		return callbackClass(&callbackLog{}, nil, entries...)
	}
	for _, tt := range []struct {
		class dohost.Class
		want  []string
	}{
		{of(agent.OnSchedule(appendLine, (*callbackAgent).appendLine)), []string{`a second OnSchedule of "note"`}},
		{of(agent.OnSchedule[callbackAgent](unregistered, nil)), []string{`OnSchedule of "gone" without a method`}},
		{of(agent.OnSchedule(agent.Callback[string](""), (*callbackAgent).appendLine)), []string{"want a name of 1 to 256 bytes"}},
		{of(agent.OnFiber(bad, run, nil), agent.Entry[callbackAgent]{}), []string{`OnFiber of "dohost.bad"`, "entry 5 is the zero Entry"}},
		{of(agent.Sub[callbackAgent](callbackAgents), agent.Sub[callbackAgent](callbackAgents)), []string{`a second Sub of "clerk"`}},
		{of(agent.Sub[callbackAgent](callbackAgents[:0])), []string{"Sub without a name"}},
		{
			of(agent.Callable(strings.Repeat("f", 257), dohost.Bare(func(*callbackAgent, context.Context) error { return nil }))),
			[]string{`Callable of "ffff`, "want a name of at most 256 bytes"},
		},
		{
			of(agent.Callable("act", act), agent.Callable("act", act), agent.Callable[callbackAgent, int, int]("none", nil)),
			[]string{`a second Callable of "act"`, `Callable of "none" without a method`},
		},
		{
			with(callbackHandlers{Options: agent.Options{KeepAlive: -1, StuckAfter: -1}}),
			[]string{"Options.KeepAlive is -1ns", "Options.StuckAfter is -1ns"},
		},
		{
			agent.Bind("odd", (func(context.Context, *agent.Agent[chan int]) (*invalidJSON, error))(nil), &agent.Handlers[invalidJSON, chan int]{Initial: new(make(chan int))}),
			[]string{"Bind without a constructor", "Handlers.Initial: json: unsupported type"},
		},
	} {
		_, err := dohost.Open(t.TempDir(), nil, tt.class)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `class "`) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
}

func TestScheduleIdempotence(t *testing.T) {
	yes := &agent.ScheduleOptions{Idempotence: agent.IdempotenceOn}
	no := &agent.ScheduleOptions{Idempotence: agent.IdempotenceOff}
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		first := schedule(b, agent.Every(time.Hour), appendLine, "x", nil)
		for _, tt := range []struct {
			name string
			when agent.When
			text string
			o    *agent.ScheduleOptions
			same bool
		}{
			{"again", agent.Every(time.Hour), "x", nil, true},
			{"said so", agent.Every(time.Hour), "x", yes, true},
			{"another payload", agent.Every(time.Hour), "y", nil, false},
			{"another interval", agent.Every(2 * time.Hour), "x", nil, false},
			{"another kind", agent.After(time.Hour), "x", yes, false},
			{"not wanted", agent.Every(time.Hour), "x", no, false},
		} {
			if id := schedule(b, tt.when, appendLine, tt.text, tt.o); (id == first) != tt.same {
				t.Errorf("%s: %t", tt.name, id == first)
			}
		}
		cron := schedule(b, agent.Cron("@daily", ""), appendLine, "x", nil)
		if schedule(b, agent.Cron("@daily", ""), appendLine, "x", nil) != cron ||
			schedule(b, agent.Cron("@daily", "Asia/Tokyo"), appendLine, "x", nil) == cron {
			t.Error("cron schedules must differ by zone only")
		}
		once := schedule(b, agent.After(2*time.Hour), appendLine, "z", nil)
		if schedule(b, agent.After(2*time.Hour), appendLine, "z", nil) == once {
			t.Error("a delayed schedule is idempotent without the option")
		}
		if id := schedule(b, agent.After(3*time.Hour), appendLine, "z", yes); id != once { // the older schedule
			t.Error("the time matters")
		}
		// It sets the alarm again, even if there is none.
		err := callbackAgents.Get(b, "a").Do(t.Context(), func(ctx context.Context, c *callbackAgent) error {
			return c.Object().DeleteAlarm(ctx)
		})
		if err != nil {
			t.Fatal(err)
		}
		schedule(b, agent.Every(time.Hour), appendLine, "x", nil)
	})
}

func TestCallbackCanScheduleItself(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		schedule(b, agent.After(time.Second), again, "thrice", nil)
		b.waitIdle()
		b.wantLines("thrice")
		b.wantReports("schedule:error")
	})
}

func TestScheduleQueries(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		now := time.Now()
		one := schedule(b, agent.After(time.Minute), appendLine, "one", nil)
		two := schedule(b, agent.Every(time.Hour), work, task{Name: "two"}, nil)
		three := schedule(b, agent.After(time.Hour+time.Minute), appendLine, "three", nil)
		four := schedule(b, agent.Cron("0 3 * * *", "Europe/Berlin"), appendLine, "four", nil)
		// The heartbeat has no visible effect, and both alarms fire.
		b.do(func(ctx context.Context, c *callbackAgent) error {
			_, err := c.KeepAlive(ctx)
			return err
		})
		for _, tt := range []struct {
			q    *agent.ScheduleQuery
			want []string
		}{
			{nil, []string{one, two, three, four}},
			{&agent.ScheduleQuery{Callback: "note"}, []string{one, three, four}},
			{&agent.ScheduleQuery{Kind: agent.ScheduleDelayed}, []string{one, three}},
			{&agent.ScheduleQuery{From: now.Add(time.Hour)}, []string{two, three, four}},
			{&agent.ScheduleQuery{Before: now.Add(time.Hour)}, []string{one}},
			{&agent.ScheduleQuery{Callback: "note", Limit: 2}, []string{one, three}},
			{&agent.ScheduleQuery{Callback: "nobody"}, nil},
		} {
			var ids []string
			for _, s := range b.schedules(tt.q) {
				ids = append(ids, s.ID)
			}
			if !slices.Equal(ids, tt.want) {
				t.Errorf("%+v: %q, want %q", tt.q, ids, tt.want)
			}
		}
		b.do(func(ctx context.Context, c *callbackAgent) error {
			got, ok, err := c.Schedules().Get(ctx, four)
			want := agent.ScheduleInfo{
				ID: four, Callback: "note", Kind: agent.ScheduleCron, Payload: []byte(`"four"`),
				Created: got.Created, Due: now.Add(2 * time.Hour), Cron: "0 3 * * *", Zone: "Europe/Berlin",
			}
			got.Due = got.Due.In(want.Due.Location())
			if !ok || fmt.Sprint(got) != fmt.Sprint(want) || !got.Created.Equal(now) {
				t.Errorf("%+v, want %+v", got, want)
			}
			if _, _, err := c.Schedules().Get(t.Context(), four); !errors.Is(err, dohost.ErrMisuse) {
				t.Errorf("Get outside of the turn: %v", err)
			}
			for _, id := range []string{"", "nobody"} {
				if _, ok, err := c.Schedules().Get(ctx, id); ok || err != nil {
					t.Errorf("%q: %t, %v", id, ok, err)
				}
			}
			return err
		})
		b.Advance(90 * time.Second)
		b.wantLines("one")
	})
}

func TestScheduleRunsOnceAfterDaysOfDowntime(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		schedule(b, agent.Every(time.Minute), appendLine, "interval", nil)
		schedule(b, agent.Cron("30 6 * * *", ""), appendLine, "cron", nil)
		// An older alarm system might have lost it: the host checks only after three days.
		b.do(func(ctx context.Context, c *callbackAgent) error { return nil })
		if err := callbackAgents.Get(b, "a").Do(t.Context(), func(ctx context.Context, c *callbackAgent) error {
			return c.Object().SetAlarm(ctx, time.Now().Add(72*time.Hour))
		}); err != nil {
			t.Fatal(err)
		}
		b.Advance(72*time.Hour + 30*time.Second)
		b.wantLines("interval", "cron")
		b.Advance(time.Minute)
		b.wantLines("interval", "cron", "interval")
		b.Advance(6*time.Hour + 29*time.Minute)
		if got := b.log.reportsWith("schedule:run"); len(got) != 2+1+6*60+29+1 {
			t.Errorf("%d runs", len(got))
		}
	})
}

func TestScheduleFailureIsRetriedThenReported(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		schedule(b, agent.After(time.Second), work, task{Name: "a", Fails: 2}, nil)
		b.waitIdle()
		b.wantLines("a begins 1", "a begins 2", "a begins 3", "a ends 3")
		schedule(b, agent.After(time.Second), work, task{Name: "b", Fails: 9}, nil)
		schedule(b, agent.After(time.Second), work, task{Name: "c", Fails: 9},
			&agent.ScheduleOptions{Retry: dohost.RetryPolicy{MaxAttempts: 1}})
		every := schedule(b, agent.Every(10*time.Second), work, task{Name: "d", Fails: 3}, nil)
		b.Advance(25 * time.Second)
		b.wantReports("schedule:error", "schedule:error callback=work err=c fails", "schedule:error callback=work err=b fails",
			"schedule:error callback=work err=d fails")
		b.wantReports("schedule:run", "schedule:run callback=work", "schedule:run callback=work")
		if all := b.schedules(nil); len(all) != 1 || all[0].ID != every {
			t.Errorf("left: %+v", all)
		}
	})
}

// TestIncarnationEndConsumesNoScheduleOrItem ends an incarnation in a callback that awaits.
func TestIncarnationEndConsumesNoScheduleOrItem(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(b *callbackTest)
		soon bool // started again immediately, not at the next alarm
	}{
		{"fence", func(b *callbackTest) { b.Evict(callbackAgents.Get(b, "a").ID(), dohost.EndFence) }, false},
		{"fence, and an event", func(b *callbackTest) {
			b.Evict(callbackAgents.Get(b, "a").ID(), dohost.EndFence)
			b.do(func(context.Context, *callbackAgent) error { return nil })
		}, true},
		{"crash", func(b *callbackTest) { b.Crash() }, true},
		{"kill", func(b *callbackTest) { b.Kill() }, true},
		{"restart", func(b *callbackTest) { _ = b.Restart() }, true},
	} {
		for _, by := range []string{"schedule", "queue"} {
			t.Run(tt.name+" of a "+by, func(t *testing.T) {
				runCallbackTest(t, dohost.Options{Grace: -1}, func(t *testing.T, b *callbackTest) {
					long := task{Name: "a", Takes: time.Minute, Only: true}
					if by == "queue" {
						enqueue(b, work, long, nil)
					} else {
						schedule(b, agent.After(0), work, long, nil)
					}
					b.Advance(5 * time.Second)
					tt.end(b)
					b.Advance(time.Second)
					if ran := b.log.countRun("a") == 3; ran != tt.soon {
						t.Errorf("started anew after a second: %t", ran)
					}
					b.waitIdle()
					b.do(func(ctx context.Context, c *callbackAgent) error {
						lines, err := c.lines(ctx)
						if len(lines) != 3 || lines[2][:6] != "a ends" {
							t.Errorf("it wrote %q", lines)
						}
						return errors.Join(err, c.checkNoRows(ctx))
					})
					b.wantReports("schedule:error")
					b.wantReports("queue:dead")
				})
			})
		}
	}
}

func TestScheduleStuckIntervalStartsAgain(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		every := schedule(b, agent.Every(10*time.Second), work, task{Name: "a", Takes: 45 * time.Second, Only: true}, nil)
		once := schedule(b, agent.After(10*time.Second), work, task{Name: "b", Takes: 45 * time.Second}, nil)
		b.Advance(39 * time.Second)
		b.wantLines("a begins 1", "b begins 1")
		b.wantReports("schedule:stuck")
		b.Advance(2 * time.Second) // 30 s after they began
		b.wantLines("a begins 1", "b begins 1", "a begins 2", "a ends 2")
		if got := b.log.reportsWith("schedule:stuck"); len(got) != 1 {
			t.Errorf("%q", got)
		}
		b.Advance(13 * time.Second) // the first run is about to end; its outcome is ignored
		before := b.schedules(&agent.ScheduleQuery{Callback: "work", Kind: agent.ScheduleInterval})
		b.Advance(2 * time.Second)
		after := b.schedules(&agent.ScheduleQuery{Callback: "work", Kind: agent.ScheduleInterval})
		if len(before) != 1 || len(after) != 1 || after[0].ID != every || !before[0].Due.Equal(after[0].Due) {
			t.Errorf("before %+v, after %+v", before, after)
		}
		b.do(func(ctx context.Context, c *callbackAgent) error {
			if _, ok, err := c.Schedules().Get(ctx, once); ok || err != nil {
				t.Errorf("a delayed schedule remains: %t, %v", ok, err)
			}
			return nil
		})
	})
}

func TestSchedulePoisonDoesNotStopOthers(t *testing.T) {
	newer := []agent.Entry[callbackAgent]{
		agent.OnSchedule(unregistered, (*callbackAgent).appendLine),
		agent.OnSchedule(agent.Callback[string]("retyped"), (*callbackAgent).appendLine),
	}
	older := agent.OnSchedule(agent.Callback[task]("retyped"), (*callbackAgent).work)
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		schedule(b, agent.After(time.Minute), unregistered, "gone", nil)
		schedule(b, agent.After(time.Minute), agent.Callback[string]("retyped"), "no task", nil)
		schedule(b, agent.After(time.Minute), panics, "boom", nil)
		every := schedule(b, agent.Every(time.Minute), panics, "boom every", nil)
		schedule(b, agent.After(time.Minute), appendLine, "good", nil)
		if err := b.Restart(callbackClass(b.log, nil, older)); err != nil {
			t.Fatal(err)
		}
		b.Advance(3*time.Minute + 15*time.Second)
		b.wantLines("good") // although a suspect, it had fewer starts than they
		b.Advance(105 * time.Second)
		b.wantReports("schedule:error callback=gone",
			`schedule:error callback=gone err=agent: callback "gone" is no longer registered`)
		got := b.log.reportsWith("schedule:error callback=retyped")
		if len(got) != 1 || !strings.Contains(got[0], "the payload does not decode into agent_test.task") {
			t.Errorf("%q", got)
		}
		cutOff := "schedule:error callback=boom err=agent: the end of the incarnation interrupted every attempt"
		b.wantReports("schedule:error callback=boom", cutOff) // of the interval
		b.wantReports("schedule:dead", "schedule:dead callback=boom err=agent: the end of the incarnation interrupted every attempt depth=1")
		if once, often := b.log.countRun("boom")-1, b.log.countRun("boom every")-1; once != 5 || often != 3 { // twice cut off by the other
			t.Errorf("panicking callbacks ran %d and %d times", once, often)
		}
		if all := b.schedules(nil); len(all) != 1 || all[0].ID != every {
			t.Errorf("left: %+v", all)
		}
	}, newer...)
}

// TestScheduleSuspectsRunOneAtATime cuts off all runs twice.
func TestScheduleSuspectsRunOneAtATime(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		for _, name := range []string{"a", "b"} {
			schedule(b, agent.After(0), work, task{Name: name, Takes: time.Minute}, nil)
		}
		enqueue(b, work, task{Name: "c", Takes: time.Minute}, nil)
		for range 2 {
			b.Advance(5 * time.Second)
			b.Crash()
		}
		b.waitIdle()
		b.do(func(ctx context.Context, c *callbackAgent) error {
			lines, err := c.lines(ctx)
			if len(lines) != 3+3+6 {
				t.Fatalf("it wrote %q", lines)
			}
			for n := 6; n < 12; n += 2 {
				if lines[n][0] != lines[n+1][0] || lines[n+1][2:] != "ends 3" {
					t.Errorf("%q, then %q", lines[n], lines[n+1])
				}
			}
			return err
		})
	})
}

// undecodable is a payload of another version.
type undecodable struct{ N int }

var decodeCalls atomic.Int64

func (*undecodable) UnmarshalJSON([]byte) error {
	decodeCalls.Add(1)
	return errors.New("unreadable")
}

func TestPayloadUnreadableIsNotRetried(t *testing.T) {
	const read agent.Callback[undecodable] = "read"
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		decodeCalls.Store(0)
		schedule(b, agent.After(0), read, undecodable{}, nil)
		b.waitIdle()
		if n := decodeCalls.Load(); n != 1 {
			t.Errorf("it was read %d times", n)
		}
	}, agent.OnSchedule(read, func(*callbackAgent, context.Context, undecodable) error { return nil }))
}

func TestScheduleManyDueTogether(t *testing.T) {
	const many = 250
	runCallbackTest(t, dohost.Options{MaxEvents: 60}, func(t *testing.T, b *callbackTest) {
		at := time.Now().Add(time.Hour)
		b.do(func(ctx context.Context, c *callbackAgent) error {
			for n := range many {
				t := task{Name: fmt.Sprintf("%03d", n), Takes: 3 * time.Second}
				if _, err := agent.Schedule(ctx, c, agent.At(at), work, t, nil); err != nil {
					return err
				}
			}
			return nil
		})
		b.Advance(time.Hour + time.Millisecond)
		if running := b.log.startedTasks(); running != 60 {
			t.Errorf("%d run, and there is room for 60", running)
		}
		b.waitIdle()
		if d := time.Since(at); d > 30*time.Second {
			t.Errorf("it took %v", d)
		}
		if strings.Contains(b.Log(), "overloaded") {
			t.Error("an alarm has failed for want of room")
		}
		b.do(func(ctx context.Context, c *callbackAgent) error {
			lines, err := c.lines(ctx)
			slices.Sort(lines)
			if n := len(slices.Compact(lines)); n != 2*many || len(lines) != 2*many {
				t.Errorf("%d lines, %d of them different, want %d", len(lines), n, 2*many)
			}
			return err
		})
		got := b.log.reportsWith("schedule:duplicate_warning")
		if len(got) == 0 || got[0] != "schedule:duplicate_warning callback=work due=10" {
			t.Errorf("%q", got)
		}
	})
}

func TestScheduleFewDueTogetherCauseNoWarning(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		b.do(func(ctx context.Context, c *callbackAgent) error {
			for n := range 20 {
				when := agent.After(time.Minute)
				if n >= 9 {
					when = agent.Every(time.Minute)
				}
				if _, err := agent.Schedule(ctx, c, when, appendLine, fmt.Sprint(n), nil); err != nil {
					return err
				}
			}
			return nil
		})
		b.Advance(90 * time.Second)
		b.wantReports("schedule:duplicate_warning")
		if n := len(b.log.reportsWith("schedule:run")); n != 20 {
			t.Errorf("%d runs", n)
		}
	})
}

// TestScheduleRolledBackLeavesNothing rolls back a transaction with a schedule.
func TestScheduleRolledBackLeavesNothing(t *testing.T) {
	runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
		errRollback := errors.New("torn")
		b.do(func(ctx context.Context, c *callbackAgent) error {
			err := dohost.Transaction(ctx, func(ctx context.Context) error {
				_, err := agent.Schedule(ctx, c, agent.After(time.Second), appendLine, "a", nil)
				_, err2 := agent.Enqueue(ctx, c, appendLine, "b", nil)
				return errors.Join(err, err2, errRollback)
			})
			if !errors.Is(err, errRollback) || strings.Contains(err.Error(), "\n") {
				t.Error(err)
			}
			_, set, err := c.Object().GetAlarm(ctx)
			if set {
				t.Error("the alarm is set")
			}
			return err
		})
		enqueue(b, appendLine, "c", nil) // no state in memory delays it
		b.waitIdle()
		b.wantLines("c")
	})
}
