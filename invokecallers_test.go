package dohost_test

import (
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost"
)

// TestCallersHaveIDsOfTheirOwn makes calls with one id from three objects, and from outside of objects, to objects of both hosts.
func TestCallersHaveIDsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := openPair(t)
		defer p.close(t)
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
