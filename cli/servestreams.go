package cli

import (
	"net/http"
	"slices"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/streams"
)

// streamPrefix is the beginning of the paths of streams.
const streamPrefix = "/v1/stream/"

// withStreams adds the class of streams, unless the program has bound it, for instance with an Authorize function.
func withStreams(classes []dohost.Class) []dohost.Class {
	if slices.ContainsFunc(classes, func(c dohost.Class) bool { return c.Name() == string(streams.Streams) }) {
		return classes
	}
	return append(slices.Clip(classes), streams.Classes(nil)...)
}

// handlers returns the handlers of the public listener, in addition to those of objects and agents.
func (c *serveCmd) handlers(h *dohost.Host) map[string]http.Handler {
	if !c.Streams {
		return nil
	}
	return map[string]http.Handler{streamPrefix: streams.Server(h, &streams.ServerOptions{Prefix: streamPrefix, CORS: c.CORS, Origins: c.Origin})}
}
