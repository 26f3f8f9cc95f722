package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
)

func TestRetryDelay(t *testing.T) {
	for _, tt := range []struct {
		policy  RetryPolicy
		attempt int
		bound   time.Duration
	}{
		{RetryPolicy{}, 1, 200 * time.Millisecond},
		{RetryPolicy{}, 2, 400 * time.Millisecond},
		{RetryPolicy{}, 4, 1600 * time.Millisecond},
		{RetryPolicy{}, 5, 3 * time.Second},
		{RetryPolicy{}, 1 << 40, 3 * time.Second},
		{RetryPolicy{BaseDelay: time.Minute}, 1, time.Minute},
		{RetryPolicy{BaseDelay: time.Second, MaxDelay: time.Second}, 3, time.Second},
		{RetryPolicy{MaxDelay: time.Millisecond}, 1, time.Millisecond},
		{RetryPolicy{BaseDelay: 1, MaxDelay: 1<<63 - 1}, 62, 1 << 62},
		{RetryPolicy{BaseDelay: 1, MaxDelay: 1<<63 - 1}, 100, 1 << 62},
	} {
		p, err := tt.policy.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		if got := p.bound(tt.attempt); got != tt.bound {
			t.Errorf("%+v, attempt %d: %v, want %v", tt.policy, tt.attempt, got, tt.bound)
		}
		if least, half := p.delay(tt.attempt, 0), p.delay(tt.attempt, 0.5); least != 0 || half != (tt.bound+1)/2 {
			t.Errorf("%+v, attempt %d: drawn %v and %v", tt.policy, tt.attempt, least, half)
		}
	}
	for _, tt := range []struct {
		policy RetryPolicy
		err    string
	}{
		{RetryPolicy{MaxAttempts: -1}, "RetryPolicy.MaxAttempts is -1"},
		{RetryPolicy{BaseDelay: -1}, "RetryPolicy.BaseDelay is -1ns"},
		{RetryPolicy{MaxDelay: -1}, "RetryPolicy.MaxDelay is -1ns"},
		{RetryPolicy{BaseDelay: 2, MaxDelay: 1}, "want at least BaseDelay"},
	} {
		ran := false
		err := Try(t.Context(), &tt.policy, func(context.Context) error { ran = true; return nil })
		if ran || err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%+v: ran %t, %v", tt.policy, ran, err)
		}
	}
}

func TestTry(t *testing.T) {
	errBroken := errors.New("broken")
	twice := func(_ error, attempt int) bool { return attempt < 2 }
	unasked := func(error, int) bool { t.Error("an end is nothing to ask about"); return true }
	elsewhere := fmt.Errorf("another object: %w", dohost.ErrFenced)
	for _, tt := range []struct {
		name   string
		policy *RetryPolicy
		fails  int // number of failing attempts
		err    error
		ends   int // the attempt that ends ctx, or 0
		tries  int
		want   error
	}{
		{"at once", nil, 0, errBroken, 0, 1, nil},
		{"the third time", nil, 2, errBroken, 0, 3, nil},
		{"never", nil, 9, errBroken, 0, 3, errBroken},
		{"once", &RetryPolicy{MaxAttempts: 1}, 9, errBroken, 0, 1, errBroken},
		{"often", &RetryPolicy{MaxAttempts: 7}, 9, errBroken, 0, 7, errBroken},
		{"should not", &RetryPolicy{MaxAttempts: 7, ShouldRetry: twice}, 9, errBroken, 0, 2, errBroken},
		{"the incarnation has ended", &RetryPolicy{ShouldRetry: unasked}, 9, dohost.ErrFenced, 1, 1, dohost.ErrFenced},
		{"another's incarnation has ended", nil, 1, elsewhere, 0, 2, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tries, began := 0, time.Now()
			err := Try(ctx, tt.policy, func(context.Context) error {
				tries++
				if tries == tt.ends {
					cancel()
				}
				if tries <= tt.fails {
					return tt.err
				}
				return nil
			})
			if tries != tt.tries || !errors.Is(err, tt.want) {
				t.Errorf("%s: %d tries, %v; want %d, %v", tt.name, tries, err, tt.tries, tt.want)
			}
			if d := time.Since(began); (d > 0) != (tt.tries > 1) || d > time.Minute {
				t.Errorf("%s: it took %v", tt.name, d)
			}
		})
	}
}
