package agent

import (
	"context"

	"github.com/dohost/dohost"
)

// Authorize makes f decide about each request of a client for an agent of the class, before the
// agent is woken: see [dohost.Authorize]. The host calls f for connections, HTTP requests,
// transcripts, and calls over HTTP, including those for a sub-agent of the agent.
//
// With [dohost.ReadOnly] rights a client can connect, send requests and call methods. The agent
// refuses its changes of the state and of a conversation, over a connection, over HTTP and by
// methods, and its requests create no sub-agents. [OnRequest], [OnMessage] and the other effects of
// methods are not restricted; there [dohost.AccessFrom] returns the rights.
func Authorize[O any](f func(context.Context, *dohost.AccessRequest) (dohost.Access, error)) Entry[O] {
	return func(c *class) {
		c.once("Authorize", f == nil, c.authorize != nil)
		c.authorize = f
	}
}
