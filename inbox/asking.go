package inbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/dohost/dohost"
)

// errLate is the error of a response that is not there in time.
var errLate = errors.New("inbox: the time for the response is over")

// errNoAgent is the error of an object that has no inbox over the collection.
var errNoAgent = errors.New("inbox: the object is no agent, or has no such inbox")

// ask inserts a request, unless an earlier run of its call has done so, and waits for the response.
func (t *AgentTool) ask(ctx context.Context, by *asker, object dohost.ID, m Message) (r Message, err error) {
	insert, wait := t.Insert, t.Wait
	if t.Messages != nil {
		insert = func(ctx context.Context, by Ref, m Message) (Message, error) {
			return t.insertIn(ctx, by, object, m)
		}
		wait = func(ctx context.Context, by Ref, m Message) (Message, error) {
			return t.waitIn(ctx, by, object, m)
		}
	}
	stored, err := until(ctx, m.Deadline, func(ctx context.Context) (Message, error) { return insert(ctx, by.ref, m) })
	if err != nil {
		return r, err
	}
	deadline := t.deadline(by, stored.Created)
	end := deadline
	if look := time.Now().Add(lookTime); !end.IsZero() && !stored.Created.Equal(m.Created) && end.Before(look) { // an earlier run has inserted it
		end = look
	}
	r, err = until(ctx, end, func(ctx context.Context) (Message, error) { return wait(ctx, by.ref, stored) })
	if errors.Is(err, ErrExpired) || err == nil && !deadline.IsZero() && !r.Created.IsZero() && !r.Created.Before(deadline) {
		return r, errLate
	}
	return r, err
}

// until calls fn with a context that ends at a time, and returns errLate if fn has failed since then. The time zero is none.
func until(ctx context.Context, end time.Time, fn func(context.Context) (Message, error)) (Message, error) {
	if end.IsZero() {
		return fn(ctx)
	}
	limited, cancel := context.WithDeadlineCause(ctx, end, errLate)
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
