package agent_test

import (
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// TestRetryPolicyIsStored stores every field of a policy.
func TestRetryPolicyIsStored(t *testing.T) {
	for _, tt := range []struct {
		policy                   dohost.RetryPolicy
		minAttempts, maxAttempts int // attempts
	}{
		{dohost.RetryPolicy{}, 3, 3},
		{dohost.RetryPolicy{MaxAttempts: 5}, 5, 5},
		{dohost.RetryPolicy{MaxAttempts: 5, BaseDelay: time.Hour}, 1, 1},
		{dohost.RetryPolicy{MaxAttempts: 5, BaseDelay: time.Hour, MaxDelay: time.Second}, 5, 5},
		{dohost.RetryPolicy{MaxAttempts: 5, BaseDelay: -1}, 5, 5},
		{dohost.RetryPolicy{MaxAttempts: -1, MaxElapsed: 10 * time.Second}, 4, 100},
		{dohost.RetryPolicy{MaxAttempts: 5, MaxElapsed: time.Nanosecond}, 1, 1},
	} {
		runCallbackTest(t, dohost.Options{}, func(t *testing.T, b *callbackTest) {
			enqueue(b, work, task{Name: "item", Fails: 1000}, &agent.QueueOptions{Retry: tt.policy})
			schedule(b, agent.After(0), work, task{Name: "schedule", Fails: 1000}, &agent.ScheduleOptions{Retry: tt.policy})
			b.Advance(time.Minute)
			for _, name := range []string{"item", "schedule"} {
				if attempts := b.log.countRun(name) - 1; attempts < tt.minAttempts || attempts > tt.maxAttempts {
					t.Errorf("%+v: %d attempts of the %s, want %d to %d", tt.policy, attempts, name, tt.minAttempts, tt.maxAttempts)
				}
			}
		})
	}
}
