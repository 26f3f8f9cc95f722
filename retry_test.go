package dohost

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

func TestRetryStops(t *testing.T) {
	notRun := &Error{Err: runtime.ErrConstructor, Outcome: OutcomeNotRun, Retryable: true}
	unknown, ran := &Error{Err: ErrFenced}, &Error{Err: notRun, Outcome: OutcomeRan}
	for _, c := range []struct {
		name  string
		o     *RetryPolicy
		err   error
		fails int // calls that fail
		calls int
		most  time.Duration // the longest time that it may take
	}{
		{"defaults", nil, notRun, 100, 3, 600 * time.Millisecond},
		{"success", nil, notRun, 1, 2, 200 * time.Millisecond},
		{"attempts", &RetryPolicy{MaxAttempts: 1}, notRun, 100, 1, 0},
		{"attempts without bound", &RetryPolicy{MaxAttempts: -1, BaseDelay: -1}, notRun, 100, 101, 0},
		{"no delay", &RetryPolicy{BaseDelay: -time.Hour}, notRun, 100, 3, 0},
		{"elapsed", &RetryPolicy{MaxAttempts: -1, MaxElapsed: 10 * time.Second}, notRun, 1000, -1, 10 * time.Second},
		{"elapsed without bound", &RetryPolicy{MaxElapsed: -1, BaseDelay: time.Minute}, notRun, 100, 3, 2 * time.Minute},
		{"delays with a bound", &RetryPolicy{MaxAttempts: 1000}, notRun, 999, 1000, 1000 * 3 * time.Second},
		{"delays with a bound of their own", &RetryPolicy{MaxAttempts: 1000, MaxDelay: time.Second}, notRun, 999, 1000, 1000 * time.Second},
		{"delays without bound", &RetryPolicy{MaxDelay: -1}, notRun, 100, 3, 600 * time.Millisecond},
		{"delay beyond the elapsed time", &RetryPolicy{BaseDelay: math.MaxInt64, MaxElapsed: 10 * time.Second}, notRun, 100, 1, 0},
		{"did not run, and will not", nil, &Error{Err: runtime.ErrNoClass, Outcome: OutcomeNotRun}, 100, 1, 0},
		{"unknown", nil, unknown, 100, 1, 0},
		{"own error", nil, errors.New("no call at all"), 100, 1, 0},
		{"idempotent, did not run", &RetryPolicy{ShouldRetry: RetryIdempotent}, notRun, 100, 3, 600 * time.Millisecond},
		{"idempotent, did not run, and will not", &RetryPolicy{ShouldRetry: RetryIdempotent}, &Error{Err: runtime.ErrNoClass, Outcome: OutcomeNotRun}, 100, 1, 0},
		{"idempotent, unknown", &RetryPolicy{ShouldRetry: RetryIdempotent}, unknown, 100, 3, 600 * time.Millisecond},
		{"idempotent, ran", &RetryPolicy{ShouldRetry: RetryIdempotent}, ran, 100, 1, 0},
		{"idempotent, overloaded", &RetryPolicy{ShouldRetry: RetryIdempotent}, &Error{Err: &Fenced{Reason: ReasonExclusive}}, 100, 1, 0},
		{"idempotent, own error", &RetryPolicy{ShouldRetry: RetryIdempotent}, errors.New("no call at all"), 100, 1, 0},
		{"any error, ran", &RetryPolicy{ShouldRetry: RetryAnyError}, ran, 100, 3, 600 * time.Millisecond},
		{"any error, own error", &RetryPolicy{ShouldRetry: RetryAnyError}, errors.New("no call at all"), 100, 3, 600 * time.Millisecond},
		{"its own choice", &RetryPolicy{ShouldRetry: func(_ error, attempt int) bool { return attempt < 2 }}, ran, 100, 2, 200 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, calls := time.Now(), 0
				err := Retry(t.Context(), c.o, func(context.Context) error {
					if calls++; calls > c.fails {
						return nil
					}
					return c.err
				})
				if took := time.Since(start); took > c.most {
					t.Errorf("took %v, want %v at most", took, c.most)
				}
				if calls != c.calls && c.calls >= 0 {
					t.Errorf("%d calls, want %d", calls, c.calls)
				}
				if failed := calls <= c.fails; failed != (err != nil) || failed && err != c.err {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

func TestRetryReportsThatAnEarlierCallRan(t *testing.T) {
	for _, c := range []struct {
		name        string
		first       error
		shouldRetry func(error, int) bool
	}{
		{"may have run", &Error{Err: ErrFenced}, RetryIdempotent},
		{"ran", &Error{Err: errors.New("declined"), Outcome: OutcomeRan}, RetryAnyError},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			err := Retry(t.Context(), &RetryPolicy{ShouldRetry: c.shouldRetry}, func(context.Context) error {
				if calls++; calls == 1 {
					return c.first
				}
				return fmt.Errorf("placing: %w", &Error{Err: runtime.ErrConstructor, Outcome: OutcomeNotRun, Retryable: true})
			})
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Outcome != OutcomeUnknown || !errors.Is(err, runtime.ErrConstructor) || !strings.Contains(err.Error(), "placing") || calls != 3 {
				t.Errorf("%s: %d calls, %v", c.name, calls, err)
			}
		})
	}
}

func TestRetryStopsAtTheEndOfItsContext(t *testing.T) {
	for _, base := range []time.Duration{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			calls, asked := 0, 0
			policy := &RetryPolicy{BaseDelay: base, ShouldRetry: func(error, int) bool { asked++; return true }}
			if err := Retry(ctx, policy, func(context.Context) error { calls++; cancel(); return ErrFenced }); err != ErrFenced || calls != 1 || asked != 0 {
				t.Errorf("BaseDelay %v: %d calls, ShouldRetry was called %d times, %v", base, calls, asked, err)
			}
			ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			calls = 0
			err := Retry(ctx, &RetryPolicy{BaseDelay: math.MaxInt64, ShouldRetry: RetryAnyError}, func(context.Context) error { calls++; return ErrFenced })
			if err != ErrFenced || calls != 1 {
				t.Errorf("a delay that ctx interrupts: %d calls, %v", calls, err)
			}
		})
	}
}

func TestRetryDelaysDouble(t *testing.T) {
	for _, c := range []struct {
		base    time.Duration
		most    time.Duration
		attempt int
		below   time.Duration
	}{
		{time.Millisecond, time.Hour, 1, time.Millisecond},
		{time.Millisecond, time.Hour, 4, 8 * time.Millisecond},
		{time.Millisecond, time.Hour, 22, 1 << 21 * time.Millisecond},
		{time.Millisecond, time.Hour, 23, time.Hour},
		{time.Millisecond, time.Hour, math.MaxInt, time.Hour},
		{time.Minute, time.Second, 1, time.Second},
		{3 * time.Hour, math.MaxInt64, 20, 3 << 19 * time.Hour},
		{3 * time.Hour, math.MaxInt64, 21, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, 1, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, math.MaxInt, math.MaxInt64},
	} {
		var longest time.Duration
		for range 1000 {
			d := (&RetryPolicy{BaseDelay: c.base, MaxDelay: c.most}).delay(c.attempt)
			if d < 0 || d >= c.below {
				t.Fatalf("base %v, attempt %d: %v, want below %v", c.base, c.attempt, d, c.below)
			}
			longest = max(longest, d)
		}
		if longest < c.below/2 {
			t.Errorf("base %v, attempt %d: none of 1000 above %v, want below %v", c.base, c.attempt, longest, c.below)
		}
	}
	for _, base := range []time.Duration{-1, math.MinInt64} {
		if d := (&RetryPolicy{BaseDelay: base}).delay(5); d != 0 {
			t.Errorf("base %v: %v", base, d)
		}
	}
}

// misused is an object for calls that are misuses.
type misused struct{}

// A misuse fails each time, and so does a call of a closed host.
func TestRetryRepeatsNoMisuseAndNoCallOfAClosedHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects Namespace[misused] = "misused"
		h, err := Open(t.TempDir(), &Options{fs: objectstore.NewMemFS()}, Bind(objects, func(context.Context, *State) (*misused, error) { return &misused{}, nil }, nil))
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		nothing := func(context.Context, *misused) error { return nil }
		once := func(what string, ctx context.Context, kind error, target string) {
			calls := 0
			err := Retry(ctx, nil, func(ctx context.Context) error { calls++; return objects.Get(h, target).Do(ctx, nothing) })
			e, ok := errors.AsType[*Error](err)
			if !ok || !errors.Is(err, kind) || e.Outcome != OutcomeNotRun || e.Retryable || calls != 1 {
				t.Errorf("%s: %d calls, %v", what, calls, err)
			}
		}
		var over context.Context
		err = objects.Get(h, "a").Do(t.Context(), func(ctx context.Context, _ *misused) error {
			over = ctx
			return errors.Join(
				Transaction(ctx, func(ctx context.Context) error { once("in a Transaction", ctx, ErrMisuse, "b"); return nil }),
				Exclusive(ctx, func(ctx context.Context) error { once("a deadlock", ctx, ErrMisuse, "a"); return nil }))
		})
		if err != nil {
			t.Error(err)
		}
		once("after the event", over, ErrMisuse, "b")
		h.Close()
		once("a closed host", t.Context(), ErrClosed, "b")
		calls := 0
		err = Retry(t.Context(), nil, func(ctx context.Context) error {
			calls++
			return objects.Get(NewLocator(func() *Host { return h }), "b").Do(ctx, nothing)
		})
		if e, ok := errors.AsType[*Error](err); !ok || !e.Retryable || calls != 3 {
			t.Errorf("a stand-in for a closed host: %d calls, %v", calls, err)
		}
	})
}

// TestInvokeRepeatsNoCallThatMayHaveRun has errors of calls with an id.
func TestInvokeRepeatsNoCallThatMayHaveRun(t *testing.T) {
	for _, c := range []struct {
		cause  error
		repeat bool
	}{
		{errCallInterrupted, false},
		{errCallConflict, false},
		{errCallExpired, false},
		{fmt.Errorf("b: %w", errCallInterrupted), false},
		{fmt.Errorf("b: %w", errCallConflict), false},
		{fmt.Errorf("b: %w", errCallExpired), false},
		{errors.New("the answer was lost"), true},
	} {
		if got := mayRepeatCall(&Error{Err: c.cause, Outcome: OutcomeUnknown}, 1); got != c.repeat {
			t.Errorf("%v: repeated %v, want %v", c.cause, got, c.repeat)
		}
	}
}

// TestInvokeOptionsAcceptTheirLimits has the longest Keep and the longest CallID, and one more of each.
func TestInvokeOptionsAcceptTheirLimits(t *testing.T) {
	id := strings.Repeat("x", maxCallID)
	for _, c := range []struct {
		o  InvokeOptions
		ok bool
	}{
		{InvokeOptions{CallID: id, Keep: maxKeep}, true},
		{InvokeOptions{CallID: id + "x"}, false},
		{InvokeOptions{CallID: id, Keep: maxKeep + 1}, false},
		{InvokeOptions{CallID: id, Keep: 1}, true},
		{InvokeOptions{CallID: id, Keep: -1}, false},
	} {
		if _, err := c.o.call(ID{}, "m"); (err == nil) != c.ok {
			t.Errorf("an id of %d bytes, Keep %v: %v", len(c.o.CallID), c.o.Keep, err)
		}
	}
}
