package chat

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
)

func TestRetryNoSpaceWithinBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		err := retryNoSpaceWithin(t.Context(), 2*time.Second, func() error {
			calls++
			return dohost.ErrNoSpace
		})
		if !errors.Is(err, dohost.ErrNoSpace) || calls != 3 {
			t.Errorf("%d calls in 2 s, %v", calls, err)
		}
	})
}
