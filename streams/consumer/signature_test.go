package consumer_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
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

// unreadBody fails a test that reads it.
type unreadBody struct{ t *testing.T }

func (b unreadBody) Read([]byte) (int, error) {
	b.t.Error("the body has been read")
	return 0, http.ErrBodyNotAllowed
}

// TestWebhookReadsNoBodyWithoutSignature has senders whose signatures are refused without the body.
func TestWebhookReadsNoBodyWithoutSignature(t *testing.T) {
	runConsumer(t, nil, func(t *testing.T, c *consumerTest) {
		good := c.f.sign(nil, time.Now())
		for _, field := range []string{"", strings.Replace(good, "k1", "k2", 1), c.f.sign(nil, time.Now().Add(-6*time.Minute))} {
			r := httptest.NewRequest("POST", "/wake", unreadBody{t})
			r.Header.Set("Webhook-Signature", field)
			w := httptest.NewRecorder()
			if c.hook.ServeHTTP(w, r); w.Code != 401 {
				t.Errorf("the signature %q: %d", field, w.Code)
			}
		}
	})
}
