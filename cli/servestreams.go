package cli

import (
	"net/http"
	"slices"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/streams"
)

// streamPrefix is the beginning of the paths of streams.
const streamPrefix = "/v1/stream/"

// withStreams adds the classes of streams, unless the program has bound them, for instance with an Authorize function.
func (c *serveCmd) withStreams(classes []dohost.Class) []dohost.Class {
	if slices.ContainsFunc(classes, func(c dohost.Class) bool { return c.Name() == string(streams.Streams) }) {
		return classes
	}
	return append(slices.Clip(classes), streams.Classes(&streams.ClassOptions{Webhooks: &streams.WebhookOptions{Loopback: c.LocalWebhooks}})...)
}

// handlers returns the handlers of the public listener, in addition to those of objects and agents.
func (c *serveCmd) handlers(h *dohost.Host) map[string]http.Handler {
	if !c.Streams {
		return nil
	}
	return map[string]http.Handler{streamPrefix: streams.Server(h, c.streamOptions())}
}

// ownTokens selects the requests for streams that have a token of their own; nil: there are none.
func (c *serveCmd) ownTokens() func(*http.Request) bool {
	if !c.Streams {
		return nil
	}
	return c.streamOptions().OwnTokens
}

func (c *serveCmd) streamOptions() *streams.ServerOptions {
	return &streams.ServerOptions{Prefix: streamPrefix, URL: c.StreamURL, CORS: c.CORS, Origins: c.Origin}
}
