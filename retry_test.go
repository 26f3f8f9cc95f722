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
)

func TestRetryStops(t *testing.T) {
	notRun := &Error{Err: ErrConstructor, Ran: RanNo, Retryable: true}
	for _, c := range []struct {
		name  string
		o     *RetryOptions
		err   error
		fails int // calls that fail
		calls int
		most  time.Duration // the longest time that it may take
	}{
		{"defaults", nil, notRun, 100, 5, 750 * time.Millisecond},
		{"success", nil, notRun, 2, 3, 150 * time.Millisecond},
		{"attempts", &RetryOptions{MaxAttempts: 1}, notRun, 100, 1, 0},
		{"attempts without bound", &RetryOptions{MaxAttempts: -1, BaseDelay: -1}, notRun, 100, 101, 0},
		{"no delay", &RetryOptions{BaseDelay: -time.Hour}, notRun, 100, 5, 0},
		{"window", &RetryOptions{MaxAttempts: 1000}, notRun, 1000, -1, 10 * time.Second},
		{"window without bound", &RetryOptions{MaxElapsed: -1, BaseDelay: time.Minute}, notRun, 100, 5, 15 * time.Minute},
		{"delays with a bound", &RetryOptions{MaxAttempts: 1000, MaxElapsed: -1}, notRun, 999, 1000, 1000 * 10 * time.Second},
		{"delays with a bound of its own", &RetryOptions{MaxAttempts: 1000, MaxElapsed: -1, MaxDelay: time.Second}, notRun, 999, 1000, 1000 * time.Second},
		{"delays without bound", &RetryOptions{MaxDelay: -1}, notRun, 100, 5, 750 * time.Millisecond},
		{"delay beyond the window", &RetryOptions{BaseDelay: math.MaxInt64}, notRun, 100, 1, 0},
		{"did not run, and will not", nil, &Error{Err: ErrNoClass, Ran: RanNo}, 100, 1, 0},
		{"unknown", nil, &Error{Err: ErrFenced}, 100, 1, 0},
		{"unknown and idempotent", &RetryOptions{Idempotent: true}, &Error{Err: ErrFenced}, 100, 5, 750 * time.Millisecond},
		{"ran", &RetryOptions{Idempotent: true}, &Error{Err: notRun, Ran: RanYes}, 100, 1, 0},
		{"overloaded", &RetryOptions{Idempotent: true}, &Error{Err: ErrFenced, Overloaded: true}, 100, 1, 0},
		{"another error", &RetryOptions{Idempotent: true}, errors.New("no call at all"), 100, 1, 0},
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

// TestRetryReportsThatAnEarlierCallMayHaveRun cuts off the first attempt, and refuses the last.
func TestRetryReportsThatAnEarlierCallMayHaveRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		err := Retry(t.Context(), &RetryOptions{Idempotent: true}, func(context.Context) error {
			if calls++; calls == 1 {
				return &Error{Err: ErrFenced}
			}
			return fmt.Errorf("placing: %w", &Error{Err: ErrConstructor, Ran: RanNo, Retryable: true})
		})
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Ran != RanUnknown || !errors.Is(err, ErrConstructor) || !strings.Contains(err.Error(), "placing") || calls != 5 {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
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
			d := RetryOptions{BaseDelay: c.base, MaxDelay: c.most}.delay(c.attempt)
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
		if d := (RetryOptions{BaseDelay: base}).delay(5); d != 0 {
			t.Errorf("base %v: %v", base, d)
		}
	}
}
