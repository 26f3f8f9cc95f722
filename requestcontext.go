package dohost

import "context"

// requestContext is a handler's context: the context of its event, with the values of
// the request's context.
type requestContext struct {
	context.Context
	values   context.Context
	response *responseWriter
}

// responseKey is the context key of the responseWriter of a handler.
type responseKey struct{}

// Value returns the response for responseKey. For other keys it looks in the event's context first.
func (c *requestContext) Value(key any) any {
	if _, ok := key.(responseKey); ok {
		return c.response
	}
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}
