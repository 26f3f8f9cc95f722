package agent

import (
	"context"

	"github.com/dohost/dohost"
)

// Authorize makes f decide about each client that wants to reach an agent of the class, before the
// agent is woken: see [dohost.Authorize]. It is asked about connections, HTTP requests, transcripts,
// and calls over HTTP, also about those that go to a sub-agent of the agent.
//
// With [dohost.ReadOnly] rights a client can connect, send requests and call methods. Its changes of
// the state and of a conversation are refused, whether it makes them over a connection, over HTTP or
// by a method, and a request of it makes no sub-agent. [OnRequest], [OnMessage] and the other effects
// of methods are not restricted; they find the rights by [dohost.AccessFrom].
func Authorize[O any](f func(context.Context, *dohost.AccessRequest) (dohost.Access, error)) Entry[O] {
	return func(c *class) {
		c.once("Authorize", f == nil, c.authorize != nil)
		c.authorize = f
	}
}
