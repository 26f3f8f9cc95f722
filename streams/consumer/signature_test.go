package consumer_test

import (
	"context"
	"net/http"
	"testing"
)

// TestWebhookKeysOfCutOffSender has a sender that disconnects while the keys are fetched. The next delivery is accepted.
func TestWebhookKeysOfCutOffSender(t *testing.T) {
	runConsumer(t, nil, func(t *testing.T, c *consumerTest) {
		ctx, cancel := context.WithCancel(t.Context())
		c.f.setAnswer(func(r *http.Request) (int, string) {
			if cancel(); r.Context().Err() != nil {
				return 503, ""
			}
			return 0, ""
		})
		c.f.append("tickets/7", "1")
		c.f.deliver(ctx, c.hook, c.f.begin())
		c.f.setAnswer(nil)
		c.wake(t)
		if n := count(c.f.taken(), "jwks"); n != 1 {
			t.Errorf("%d requests for keys", n)
		}
	})
}
