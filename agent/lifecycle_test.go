package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// source records the calls of a lifecycle, and fails those that have an error.
type source struct {
	mu    sync.Mutex
	calls []string
	fail  map[string]error
}

func (s *source) call(name string, args ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, strings.TrimSpace(fmt.Sprintln(append([]any{name}, args...)...)))
	return s.fail[name]
}

// take returns the calls since the last take.
func (s *source) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func (s *source) lifecycle() *agent.Lifecycle[int] {
	return &agent.Lifecycle[int]{
		Claim: func(_ context.Context, wake int) (agent.WakeClaim, error) {
			return agent.WakeClaim{Wake: "w", Generation: 7}, s.call("claim", wake)
		},
		Heartbeat: func(_ context.Context, wake int, c agent.WakeClaim) error { return s.call("heartbeat", wake, c) },
		SaveCursors: func(_ context.Context, wake int, c agent.WakeClaim, to []agent.SourceCursor) error {
			return s.call("cursors", wake, c, to)
		},
		Complete: func(_ context.Context, wake int, c agent.WakeClaim, work agent.WorkState) error {
			return s.call("complete", wake, c, work)
		},
		Fail: func(_ context.Context, wake int, c agent.WakeClaim, cause error) error {
			return s.call("fail", wake, c, cause)
		},
	}
}

func (s *source) want(t *testing.T, calls ...string) {
	t.Helper()
	if got := s.take(); !slices.Equal(got, calls) {
		t.Errorf("calls of the source:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(calls, "\n"))
	}
}

var errWork = errors.New("no paper")

func TestRunWake(t *testing.T) {
	ctx := t.Context()
	s := &source{fail: map[string]error{}}
	run := func(fn func(context.Context, *agent.Session[int]) (string, error)) (string, error) {
		return agent.RunWake(ctx, 3, s.lifecycle(), fn)
	}

	got, err := run(func(ctx context.Context, w *agent.Session[int]) (string, error) {
		s.want(t, "claim 3")
		if w.Wake() != 3 || w.Claim() != (agent.WakeClaim{Wake: "w", Generation: 7}) {
			t.Errorf("the wake is %d, the claim %v", w.Wake(), w.Claim())
		}
		return "result", errors.Join(
			w.Heartbeat(ctx), w.SaveCursors(ctx, agent.SourceCursor{Source: "a", Position: "2"}), w.Complete(ctx, agent.WorkDone))
	})
	if got != "result" || err != nil {
		t.Errorf("RunWake returned %q, %v", got, err)
	}
	s.want(t, "heartbeat 3 {w 7}", "cursors 3 {w 7} [{a 2}]", "complete 3 {w 7} done")

	if got, err = run(func(context.Context, *agent.Session[int]) (string, error) { return "result", nil }); got != "result" || err != nil {
		t.Errorf("RunWake without Complete returned %q, %v", got, err)
	}
	s.want(t, "claim 3", "complete 3 {w 7} pending")

	if got, err = run(func(context.Context, *agent.Session[int]) (string, error) { return "result", errWork }); got != "" || !errors.Is(err, errWork) {
		t.Errorf("RunWake of a failure returned %q, %v", got, err)
	}
	s.want(t, "claim 3", "fail 3 {w 7} no paper")

	_, err = run(func(ctx context.Context, w *agent.Session[int]) (string, error) {
		if err := w.Complete(ctx, agent.WorkDone); err != nil {
			return "", err
		}
		for name, err := range map[string]error{
			"Complete": w.Complete(ctx, agent.WorkDone), "Fail": w.Fail(ctx, errWork), "Heartbeat": w.Heartbeat(ctx), "SaveCursors": w.SaveCursors(ctx),
		} {
			if !errors.Is(err, agent.ErrWakeEnded) {
				t.Errorf("%s after the end of the wake: %v", name, err)
			}
		}
		return "", errWork
	})
	if !errors.Is(err, errWork) {
		t.Errorf("RunWake of a failure after Complete: %v", err)
	}
	s.want(t, "claim 3", "complete 3 {w 7} done")

	for _, refusal := range []error{agent.ErrWakeStale, agent.ErrWakeClaimed} {
		s.fail["claim"] = refusal
		_, err := run(func(context.Context, *agent.Session[int]) (string, error) {
			t.Error("the work has begun without a claim")
			return "", nil
		})
		if !errors.Is(err, refusal) {
			t.Errorf("RunWake of a wake that is %v returned %v", refusal, err)
		}
		s.want(t, "claim 3")
	}
	if _, err := agent.RunWake(ctx, 3, &agent.Lifecycle[int]{}, func(context.Context, *agent.Session[int]) (int, error) { return 0, nil }); !errors.Is(err, dohost.ErrMisuse) {
		t.Errorf("RunWake without Claim: %v", err)
	}
}

// TestRunWakeErrorsOfTheSource has a source that refuses the end of the wake: RunWake returns its error, and a second attempt is possible.
func TestRunWakeErrorsOfTheSource(t *testing.T) {
	refused := errors.New("refused")
	s := &source{fail: map[string]error{"complete": refused, "fail": refused}}
	_, err := agent.RunWake(t.Context(), 3, s.lifecycle(), func(ctx context.Context, w *agent.Session[int]) (int, error) {
		if err := w.Complete(ctx, agent.WorkDone); !errors.Is(err, refused) {
			t.Errorf("Complete returned %v", err)
		}
		return 1, nil
	})
	if !errors.Is(err, refused) {
		t.Errorf("RunWake returned %v", err)
	}
	s.want(t, "claim 3", "complete 3 {w 7} done", "complete 3 {w 7} pending")

	_, err = agent.RunWake(t.Context(), 3, s.lifecycle(), func(context.Context, *agent.Session[int]) (int, error) { return 1, errWork })
	if !errors.Is(err, refused) || !errors.Is(err, errWork) {
		t.Errorf("RunWake returned %v", err)
	}
	s.want(t, "claim 3", "fail 3 {w 7} no paper")

	none := &agent.Lifecycle[int]{Claim: s.lifecycle().Claim}
	if _, err := agent.RunWake(t.Context(), 3, none, func(ctx context.Context, w *agent.Session[int]) (int, error) {
		return 1, errors.Join(w.Heartbeat(ctx), w.SaveCursors(ctx, agent.SourceCursor{Source: "a"}), w.Complete(ctx, agent.WorkPending))
	}); err != nil {
		t.Errorf("RunWake without optional functions: %v", err)
	}
}

func TestSessionCursorsOrder(t *testing.T) {
	refused := errors.New("refused")
	s := &source{fail: map[string]error{}}
	l := s.lifecycle()
	at := func(source, position string) agent.SourceCursor {
		return agent.SourceCursor{Source: source, Position: position}
	}
	work := func(ctx context.Context, w *agent.Session[int]) (int, error) {
		for _, c := range []struct {
			to   []agent.SourceCursor
			want error
		}{
			{[]agent.SourceCursor{at("a", "10")}, nil},
			{[]agent.SourceCursor{at("a", "10"), at("b", "0")}, nil},
			{[]agent.SourceCursor{at("b", "1"), at("a", "9")}, nil},
			{[]agent.SourceCursor{at("b", "2"), at("a", "10")}, agent.ErrCursorBack},
			{[]agent.SourceCursor{at("b", "1")}, nil}, // the refused one has moved nothing
			{[]agent.SourceCursor{at("c", "2"), at("c", "1")}, agent.ErrCursorBack},
			{[]agent.SourceCursor{at("c", "1"), at("c", "2")}, nil},
		} {
			if err := w.SaveCursors(ctx, c.to...); !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("SaveCursors of %v: %v, want %v", c.to, err, c.want)
			}
		}
		s.fail["cursors"] = refused
		if err := w.SaveCursors(ctx, at("b", "7")); !errors.Is(err, refused) {
			t.Errorf("SaveCursors returned %v", err)
		}
		delete(s.fail, "cursors")
		return 0, w.SaveCursors(ctx, at("b", "3"))
	}
	if _, err := agent.RunWake(t.Context(), 3, l, work); err != nil { // by bytes, "10" precedes "9"
		t.Error(err)
	}
	l.Compare = func(source, a, b string) int { return len(a) - len(b) } // "9" precedes "10"
	_, err := agent.RunWake(t.Context(), 3, l, func(ctx context.Context, w *agent.Session[int]) (int, error) {
		return 0, errors.Join(w.SaveCursors(ctx, at("a", "9")), w.SaveCursors(ctx, at("a", "10")), w.SaveCursors(ctx, at("a", "8")))
	})
	if !errors.Is(err, agent.ErrCursorBack) {
		t.Errorf("a cursor before an accepted one: %v", err)
	}
}

func TestRunWakeHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{fail: map[string]error{"heartbeat": errors.New("no network")}}
		l := s.lifecycle()
		l.HeartbeatInterval = 10 * time.Second
		_, err := agent.RunWake(t.Context(), 3, l, func(ctx context.Context, w *agent.Session[int]) (int, error) {
			time.Sleep(35 * time.Second)
			s.want(t, "claim 3", "heartbeat 3 {w 7}", "heartbeat 3 {w 7}", "heartbeat 3 {w 7}")
			return 0, errors.Join(ctx.Err(), w.Complete(ctx, agent.WorkDone))
		})
		if err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		s.want(t, "complete 3 {w 7} done")

		s.fail["heartbeat"] = fmt.Errorf("a newer worker: %w", agent.ErrWakeStale)
		_, err = agent.RunWake(t.Context(), 3, l, func(ctx context.Context, _ *agent.Session[int]) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		if !errors.Is(err, agent.ErrWakeStale) || !errors.Is(err, context.Canceled) {
			t.Errorf("RunWake of a stale wake returned %v", err)
		}
		s.want(t, "claim 3", "heartbeat 3 {w 7}")

		func() { // a panic ends the heartbeats
			defer func() { _ = recover() }()
			_, _ = agent.RunWake(t.Context(), 3, l, func(context.Context, *agent.Session[int]) (int, error) { panic("no paper") })
		}()
		time.Sleep(time.Minute)
		s.want(t, "claim 3")
	})
}

// TestRunWakeInterrupted has a context that ends during the work: the source is not asked to end the wake, which another worker continues.
func TestRunWakeInterrupted(t *testing.T) {
	s := &source{}
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := agent.RunWake(ctx, 3, s.lifecycle(), func(ctx context.Context, w *agent.Session[int]) (int, error) {
		cancel(dohost.ErrFenced)
		if err := w.SaveCursors(ctx); !errors.Is(err, dohost.ErrFenced) {
			t.Errorf("SaveCursors returned %v", err)
		}
		return 0, ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("RunWake returned %v", err)
	}
	s.want(t, "claim 3")
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left, cycles, between int
		pendingFails := false
		src := agent.DrainSource{
			Pending: func(context.Context) (bool, error) {
				if pendingFails {
					return true, errWork
				}
				return left > 0, nil
			},
			Cycle: func(context.Context) error {
				time.Sleep(time.Second)
				if cycles++; left == 1000 {
					return errWork
				}
				left--
				return nil
			},
			Between: func(context.Context) error { between++; return nil },
		}
		for _, c := range []struct {
			left    int
			options *agent.DrainOptions
			want    agent.Drained
			err     error
		}{
			{0, nil, agent.Drained{Work: agent.WorkDone}, nil},
			{7, nil, agent.Drained{Cycles: 7, Work: agent.WorkDone}, nil},
			{26, nil, agent.Drained{Cycles: 25}, nil}, // 25 s
			{60, &agent.DrainOptions{MaxTime: -1}, agent.Drained{Cycles: 50}, nil},
			{50, &agent.DrainOptions{MaxTime: -1}, agent.Drained{Cycles: 50, Work: agent.WorkDone}, nil},
			{60, &agent.DrainOptions{MaxTime: -1, MaxCycles: -1}, agent.Drained{Cycles: 60, Work: agent.WorkDone}, nil},
			{9, &agent.DrainOptions{MaxCycles: 3}, agent.Drained{Cycles: 3}, nil},
			{1000, nil, agent.Drained{}, errWork},
		} {
			left, cycles, between = c.left, 0, 0
			got, err := agent.Drain(t.Context(), src, c.options)
			if got != c.want || !errors.Is(err, c.err) || c.err == nil && err != nil {
				t.Errorf("Drain of %d: %+v, %v; want %+v, %v", c.left, got, err, c.want, c.err)
			}
			if between != got.Cycles {
				t.Errorf("Between was called %d times in %d cycles", between, got.Cycles)
			}
		}
		left = 3
		late := src
		late.Between = func(context.Context) error { return errWork }
		if got, err := agent.Drain(t.Context(), late, nil); got != (agent.Drained{Cycles: 1}) || !errors.Is(err, errWork) {
			t.Errorf("Drain with a failing Between: %+v, %v", got, err)
		}
		pendingFails = true
		if got, err := agent.Drain(t.Context(), src, nil); got.Work != agent.WorkPending || !errors.Is(err, errWork) {
			t.Errorf("Drain with a failing Pending: %+v, %v", got, err)
		}
	})
}

const printers dohost.Namespace[printer] = "printer"

// printer is an object whose alarm prints one page a run, as a wake.
type printer struct {
	state *dohost.State
	pages int
	fails int
	claim agent.WakeClaim
}

func (p *printer) alarm(ctx context.Context, info dohost.AlarmInfo) error {
	_, err := agent.RunWake(ctx, info, agent.AlarmLifecycle(p.state), func(ctx context.Context, w *agent.Session[dohost.AlarmInfo]) (int, error) {
		if p.claim = w.Claim(); p.fails > 0 {
			p.fails--
			return 0, errWork
		}
		if p.pages--; p.pages > 0 {
			return 0, nil
		}
		return 0, w.Complete(ctx, agent.WorkDone)
	})
	return err
}

// print prints pages.
func (p *printer) print(ctx context.Context, pages int) error {
	p.pages, p.fails = pages, 2
	return p.state.SetAlarm(ctx, time.Now())
}

func TestAlarmLifecycle(t *testing.T) {
	class := dohost.Bind(printers, func(_ context.Context, st *dohost.State) (*printer, error) { return &printer{state: st}, nil },
		&dohost.Handlers[printer]{OnAlarm: (*printer).alarm})
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		p := printers.Get(h, "hall")
		if err := dohost.CallNoResult(t.Context(), p, (*printer).print, 5); err != nil {
			t.Fatal(err)
		}
		h.Advance(30 * time.Second)
		err := p.Do(t.Context(), func(ctx context.Context, p *printer) error {
			if _, set, err := p.state.GetAlarm(ctx); p.pages != 0 || set || err != nil {
				t.Errorf("%d pages are left, the alarm is set: %t, %v", p.pages, set, err)
			}
			if e := p.state.Epoch(); p.claim != (agent.WakeClaim{Wake: e.String(), Generation: e.Host}) {
				t.Errorf("the claim is %v in the epoch %v", p.claim, e)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
