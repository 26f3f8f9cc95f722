package dohost_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
)

// TestCallersHaveIDsOfTheirOwn makes calls with one id from three objects, and from outside of objects, to objects of both hosts.
func TestCallersHaveIDsOfTheirOwn(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		calls := 0
		for _, callee := range []string{"ax", "bx"} {
			for range 2 { // the second time all calls are repetitions
				for i, caller := range []string{"a1", "a2", "b1", ""} {
					calls++
					var n int
					var err error
					if caller == "" {
						n, err = dohost.Invoke[int](t.Context(), accounts.Get(p, callee), "deposit", 1, &dohost.InvokeOptions{CallID: "1"})
					} else {
						n, err = dohost.Invoke[int](t.Context(), accounts.Get(p, caller), "transfer", transfer{callee, 1, "1"}, nil)
					}
					if err != nil || n != i+1 {
						t.Errorf("%q calls %s: %d, %v", caller, callee, n, err)
					}
				}
			}
		}
		if calls != 16 {
			t.Errorf("%d calls", calls)
		}
	})
}

// TestAnswerCallChecksTheCall passes calls that Invoke does not make.
func TestAnswerCallChecksTheCall(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		for _, c := range []dohost.RemoteCall{
			{CallID: "", Keep: time.Hour}, {CallID: strings.Repeat("x", 129), Keep: time.Hour}, {CallID: "x", Keep: -1}, {CallID: "x", Keep: 721 * time.Hour},
		} {
			c.ID, c.Method, c.Argument = accounts.Get(p, "b").ID(), "deposit", []byte("1")
			answer := string(p.hosts[1].Load().AnswerCall(t.Context(), &c))
			if !strings.Contains(answer, "out of range") || !strings.Contains(answer, `"kinds":["misuse"]`) {
				t.Errorf("%+v: %s", c, answer)
			}
		}
		if n, err := dohost.Invoke[int](t.Context(), accounts.Get(p, "b"), "balance", 0, nil); err != nil || n != 0 {
			t.Errorf("the balance is %d, %v", n, err)
		}
	})
}

// TestCallExpiresBetweenAttempts loses the answers of a call until its retention period is over.
func TestCallExpiresBetweenAttempts(t *testing.T) {
	withPair(t, func(t *testing.T, p *pair) {
		p.fault = func(_ int64, after bool) error {
			if after {
				return errLost
			}
			return nil
		}
		start := time.Now()
		_, err := dohost.Invoke[int](t.Context(), accounts.Get(p, "b"), "deposit", 1, &dohost.InvokeOptions{
			CallID: "x", Keep: time.Hour, Since: start.Add(10*time.Second - time.Hour),
		})
		if d := time.Since(start); codeOf(err) != "call_expired" || d < 10*time.Second || d > 15*time.Second {
			t.Errorf("%v after %v", err, d)
		}
	})
}
