package consumer

import (
	"context"
	"net/http"
)

// Config describes the subscription at the server, for [Subscription.Create].
type Config struct {
	// Pattern selects streams by their paths: * is one segment, ** any number of them.
	Pattern string
	// Streams are further streams.
	Streams []string
	// WebhookURL is the URL of the handler of [Subscription.Webhook]. It or WakeStream is required; it has precedence.
	WebhookURL string
	// WakeStream is the path of the stream of wakes, which must exist, for [Subscription.Pull].
	WakeStream  string
	Description string
}

// Create creates the subscription at the server, unless it exists with the same properties. A new subscription begins at the present tails of its
// streams.
//
// Errors: the errors of the server, such as its error for a subscription with other properties; the errors of the network. A request without a
// response fails after Subscription.Timeout.
func (s *Subscription) Create(ctx context.Context, c *Config) error {
	body := map[string]any{"lease_ttl_ms": s.lease().Milliseconds()}
	set := func(name, value string) {
		if value != "" {
			body[name] = value
		}
	}
	set("pattern", c.Pattern)
	set("wake_stream", c.WakeStream)
	set("description", c.Description)
	if len(c.Streams) > 0 {
		body["streams"] = c.Streams
	}
	if body["type"] = "pull-wake"; c.WebhookURL != "" {
		body["type"], body["webhook"] = "webhook", map[string]string{"url": c.WebhookURL}
	}
	return s.control(ctx, http.MethodPut, s.controlURL(""), "", body, nil)
}
