package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/dohost/dohost"
)

// Callback is the name of a method that an agent calls with a payload of type P, from its schedules
// ([Schedule]) and its queue ([Enqueue]). It should be a constant. Rows store it, so it must not change while
// such rows exist.
type Callback[P any] string

// callback is a registered method.
type callback struct {
	payload reflect.Type
	call    func(self any, ctx context.Context, payload json.RawMessage) error
}

// OnSchedule registers the method of a callback. It runs as a separate event. Its writes up to its first Await
// are one batch; its writes after its last Await are one batch with the end of its row. So a method without an
// Await takes effect exactly once, and any other method at least once.
//
// After an error it runs again as the row's [dohost.RetryPolicy] allows; its writes stay. A panic ends the
// incarnation, as everywhere, and the next incarnation starts the row again: see Options.MaxInterruptions.
func OnSchedule[O, P any](cb Callback[P], m func(*O, context.Context, P) error) Entry[O] {
	return Entry[O]{bind: func(c *class) {
		_, taken := c.callbacks[string(cb)]
		switch {
		case cb == "" || len(cb) > maxName:
			c.mistake("OnSchedule of %.40q: want a name of 1 to %d bytes", string(cb), maxName)
		case m == nil:
			c.mistake("OnSchedule of %q without a method", string(cb))
		case taken:
			c.mistake("a second OnSchedule of %q", string(cb))
		}
		if c.callbacks == nil {
			c.callbacks = map[string]callback{}
		}
		call := func(self any, ctx context.Context, raw json.RawMessage) error {
			var p P
			if err := json.Unmarshal(raw, &p); err != nil {
				return &permanentError{fmt.Errorf("agent: the payload does not decode into %T: %w", p, err)}
			}
			return m(self.(*O), ctx, p)
		}
		c.callbacks[string(cb)] = callback{reflect.TypeFor[P](), call}
	}}
}

// maxPayload bounds payloads, in bytes: a row takes nearly 2 MiB.
const maxPayload = 2<<20 - 4<<10

// permanentError is an error that a retry cannot fix.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// payloadRow is a payload. It is separate from the row that uses it, since that is written with every start and
// end. Each schedule, queue item and dead letter has one: see find.
type payloadRow struct {
	Key  string
	JSON []byte
}

var payloads = dohost.Collection[payloadRow]{
	Name: "dohost.payloads",
	Key:  func(p payloadRow) string { return p.Key },
}

// payload returns a payload, or nil if there is none.
func (js *jobs) payload(ctx context.Context, key string) (json.RawMessage, error) {
	row, _, err := get(ctx, js.rows, &payloads, key)
	return row.JSON, err
}

// putPayload writes a payload.
func (js *jobs) putPayload(ctx context.Context, key string, raw json.RawMessage) error {
	js.none = false
	return put(ctx, js.rows, &payloads, &payloadRow{key, raw})
}

// encodePayload returns the payload as JSON, if the class has the callback.
func encodePayload[P any](c *class, cb Callback[P], payload P) (json.RawMessage, error) {
	known, ok := c.callbacks[string(cb)]
	if !ok {
		return nil, fmt.Errorf("agent: callback %q is not registered: list it in Bind, with OnSchedule: %w", string(cb), dohost.ErrMisuse)
	}
	if t := reflect.TypeFor[P](); t != known.payload {
		return nil, fmt.Errorf("agent: callback %q takes a payload of type %v, not %v: %w", string(cb), known.payload, t, dohost.ErrMisuse)
	}
	raw, err := marshal(payload)
	if err != nil {
		return nil, fmt.Errorf("agent: the payload for %q is not JSON: %w", string(cb), err)
	}
	if len(raw) > maxPayload {
		return nil, fmt.Errorf("agent: the payload for %q: %w", string(cb),
			&dohost.LimitError{Subject: "payload", Size: len(raw), Limit: maxPayload})
	}
	return raw, nil
}
