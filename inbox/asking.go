package inbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// errLate is the error of a response that is not there in time.
var errLate = errors.New("inbox: the time for the response is over")

// errNoAgent is the error of an object that has no inbox.
var errNoAgent = errors.New("inbox: the object is no agent")

// ask inserts a request, unless an earlier run of its call has done so, and waits for the response.
func (t *AgentTool) ask(ctx context.Context, by Ref, object dohost.ID, m Message) (r Message, err error) {
	insert, wait := t.Insert, t.Wait
	if t.Messages != nil {
		insert = func(ctx context.Context, by Ref, m Message) (Message, error) {
			return inObject(ctx, by, object, func(ctx context.Context, of Ref) (Message, error) { return sendOnce(ctx, of, t.Messages, m) })
		}
		wait = func(ctx context.Context, by Ref, m Message) (Message, error) {
			return inObject(ctx, by, object, func(ctx context.Context, of Ref) (Message, error) { return WaitReply(ctx, of, t.Messages, m) })
		}
	}
	limit := t.timeout()
	stored, err := until(ctx, m.Created, limit, func(ctx context.Context) (Message, error) { return insert(ctx, by, m) })
	if err != nil {
		return r, err
	}
	waits := limit
	if limit > 0 && !stored.Created.Equal(m.Created) { // an earlier run has inserted it
		waits = max(limit, time.Since(stored.Created)+lookTime)
	}
	r, err = until(ctx, stored.Created, waits, func(ctx context.Context) (Message, error) { return wait(ctx, by, stored) })
	if err == nil && limit > 0 && !r.Created.IsZero() && r.Created.Sub(stored.Created) >= limit {
		return r, errLate
	}
	return r, err
}

// until calls fn with a context that ends when a limit has passed since a time, and returns errLate if fn has failed since then. The limit
// zero is none.
func until(ctx context.Context, since time.Time, limit time.Duration, fn func(context.Context) (Message, error)) (Message, error) {
	if limit == 0 {
		return fn(ctx)
	}
	limited, cancel := context.WithDeadlineCause(ctx, since.Add(limit), errLate)
	defer cancel()
	m, err := fn(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = errLate
	}
	return m, err
}

// isTransient is a ShouldRetry for the object of an asked agent that ends, or is overloaded. Both calls may be repeated.
func isTransient(err error, attempt int) bool {
	e, ok := errors.AsType[*dohost.Error](err)
	return ok && e.Overloaded() || dohost.RetryIdempotent(err, attempt)
}

// mayRunLater reports whether a call did not run and may run later: that of an object whose constructor fails, but not of one that is not here.
func mayRunLater(err error) bool {
	e, ok := errors.AsType[*dohost.Error](err)
	never := []error{dohost.ErrNotFound, dohost.ErrElsewhere, dohost.ErrForbidden, dohost.ErrMisuse}
	return ok && e.Outcome == dohost.OutcomeNotRun && !slices.ContainsFunc(never, func(kind error) bool { return errors.Is(err, kind) })
}

// inObject calls fn with an agent of an object. It retries until ctx ends, and reports the first error that is not transient.
func inObject(
	ctx context.Context, by Ref, object dohost.ID, fn func(ctx context.Context, of Ref) (Message, error),
) (m Message, err error) {
	if object == by.Object().ID() {
		return fn(ctx, by)
	}
	reported := false
	policy := dohost.RetryPolicy{MaxAttempts: -1, ShouldRetry: func(err error, attempt int) bool {
		switch {
		case isTransient(err, attempt):
			return true
		case !mayRunLater(err):
			return false
		case !reported:
			reported = true
			reportFailure(ctx, by, object, err)
		}
		return true
	}}
	once := func(ctx context.Context) error {
		result := make(chan Message, 1) // of this attempt: the function of an earlier one may still run
		err := dohost.Do(ctx, by.Object(), object, func(ctx context.Context, o any) error {
			of, ok := o.(Ref)
			if !ok {
				return errNoAgent
			}
			m, err := fn(ctx, of)
			if err == nil {
				result <- m
			}
			return err
		})
		if err == nil {
			m = <-result
		}
		return err
	}
	return m, by.Rows().WaitElsewhere(ctx, func(ctx context.Context) error { return dohost.Retry(ctx, &policy, once) })
}

// reportFailure reports an error that a model does not get.
func reportFailure(ctx context.Context, by Ref, object dohost.ID, err error) {
	by.Object().Report(ctx, "inbox:error", slog.String("asked", object.String()), slog.Any("err", err))
}

// failureText returns the text of an error for a model. The texts of other errors, such as those of a constructor, may have secrets, and are
// reported.
func failureText(ctx context.Context, by Ref, object dohost.ID, err error) string {
	for _, known := range []error{ErrNoReply, errNoAgent} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if public, ok := errors.AsType[interface {
		error
		PublicText() string
	}](err); ok {
		return public.PublicText()
	}
	reportFailure(ctx, by, object, err)
	e, ok := errors.AsType[*dohost.Error](err)
	switch {
	case ok && e.Outcome == dohost.OutcomeNotRun && errors.Is(err, dohost.ErrNotFound):
		return "there is no such object"
	case ok && e.Outcome == dohost.OutcomeNotRun && errors.Is(err, dohost.ErrElsewhere):
		return "another host has the object"
	}
	return "internal error"
}

// sendOnce is Send, unless the message is stored. It returns the stored message.
func sendOnce(ctx context.Context, of Ref, messages *dohost.Collection[Message], m Message) (Message, error) {
	old, stored, err := messages.Get(ctx, of.Storage(), m.ID)
	if err != nil || stored {
		return old.Value, err
	}
	return Send(ctx, of.Storage(), messages, m)
}

// requestOf returns the id of the request of the call with a key.
func requestOf(key string) string {
	sum := sha256.Sum256([]byte("request " + key))
	return "ask_" + hex.EncodeToString(sum[:16])
}

// messageIn returns the content of the message for an input.
func messageIn(input json.RawMessage) string {
	var in struct {
		Message *string `json:"message"`
	}
	if err := json.Unmarshal(input, &in); err != nil || in.Message == nil {
		return string(input)
	}
	return *in.Message
}

// pathText returns a path for a model. Agent tools make no path of more than maxDepth+1 addresses, and no address of more than 2,000
// bytes, but a program may have inserted others.
func pathText(path []Address) string {
	var all []string
	for _, a := range path[:min(len(path), maxDepth+1)] {
		all = append(all, fmt.Sprintf("%.2000v", a))
	}
	if len(path) > len(all) {
		all = append(all, "…")
	}
	return strings.Join(all, " → ")
}
