package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// errLate is the error of a response that is not there in time.
var errLate = errors.New("inbox: no response before the deadline")

// errNoAgent is the error of an object that has no inbox over the collection.
var errNoAgent = errors.New("inbox: the object is no agent, or has no such inbox")

// askPause is the longest time until a cycle that waits for an outcome polls again, and unreachablePause the longest time until it calls an object
// again that could not be called. After a full disk that time is at least fullPause.
const (
	askPause         = 5 * time.Minute
	unreachablePause = time.Minute
	fullPause        = time.Second
)

// postponed returns the error that postpones a cycle by the time after, or until the deadline of a request if that is earlier: of a request to another
// agent, or of that which the cycle answers. The time counts from this call: other tools of the step may run much longer. See requester.rest.
func (by *requester) postponed(after time.Duration, deadline time.Time, why error) error {
	at := time.Now().Add(after)
	if !deadline.IsZero() && deadline.Before(at) {
		at = deadline
	}
	by.until = earlier(by.until, at)
	return &agent.PostponeError{After: after, Err: why}
}

// rest returns the error of a cycle that ends as postponed, with the time that is left. The repetition is never before the deadline of a request:
// rows wait for whole milliseconds.
func (by *requester) rest(err error) error {
	p, ok := errors.AsType[*agent.PostponeError](err)
	if !ok || by.until.IsZero() {
		return err
	}
	return &agent.PostponeError{After: time.Until(by.until).Truncate(time.Millisecond) + 2*time.Millisecond, Err: p.Err}
}

// ask returns the response to a request. If it has no outcome yet, the error is an agent.PostponeError.
func (t *AgentTool) ask(ctx context.Context, by *requester, object dohost.ID, m Message) (r Message, err error) {
	if t.Messages == nil {
		return t.askOutside(ctx, by, m)
	}
	o, err := t.poll(ctx, by, object, m)
	if err != nil {
		return r, err
	}
	deadline := t.deadline(by, o.Created)
	switch {
	case o.NoAgent:
		return r, errNoAgent
	case o.NoReply:
		return r, ErrNoReply
	case o.Expired, o.Waits && isOver(deadline):
		return r, errLate
	case o.Waits:
		return r, by.postponed(askPause, deadline, fmt.Errorf("the agent %s of %v has not answered the request %s yet", m.To, object, m.Request))
	case isLate(o.Response, deadline):
		return r, errLate
	}
	return o.Response, nil
}

// isLate reports whether a response has a time that is not before the end of the time limit.
func isLate(r Message, deadline time.Time) bool {
	return !deadline.IsZero() && !r.Created.IsZero() && !r.Created.Before(deadline)
}

// poll inserts a request into an object, unless an earlier run of the cycle has done so, and returns its outcome. If the object cannot be called,
// the error is an agent.PostponeError, or errLate after the time limit.
func (t *AgentTool) poll(ctx context.Context, by *requester, object dohost.ID, m Message) (o outcome, err error) {
	s := by.ref.Storage()
	row, known, err := askedRows.Get(ctx, s, askedKey(by.place, m.Request))
	if err != nil {
		return o, err
	}
	x := row.Value
	if !known {
		x = askedRow{Place: by.place, Request: m.Request, Created: m.Created, Collection: by.collection, Message: by.message}
	}
	m.Created, m.Deadline = x.Created, t.deadline(by, x.Created)
	if object == by.ref.Object().ID() {
		o, err = insertOrPoll(ctx, by.ref, t.Messages, m, x.Inserted, by.waiter())
	} else {
		policy := dohost.RetryPolicy{MaxElapsed: time.Second, ShouldRetry: isTransient}
		err = dohost.Retry(ctx, &policy, func(ctx context.Context) error {
			o, err = t.pollIn(ctx, by, object, m, x.Inserted)
			return err
		})
	}
	full := errors.Is(err, dohost.ErrNoSpace) // of this object or the other one
	later := err != nil && ctx.Err() == nil && (isTransient(err, 1) || mayRunLater(err) || full)
	if err == nil {
		x.Created, x.Inserted = o.Created, true
	}
	if (err == nil && o.Waits || later) && (x.Inserted != row.Value.Inserted || !x.Created.Equal(row.Value.Created)) {
		putErr := askedRows.Put(ctx, s, x)
		if full = full || errors.Is(putErr, dohost.ErrNoSpace); putErr != nil && !full {
			return o, putErr
		}
		if err == nil && putErr != nil {
			later, err = true, putErr
		}
	}
	pause := min(time.Since(x.Created), unreachablePause)
	if full {
		pause = max(pause, fullPause)
	}
	switch {
	case !later:
		return o, err
	case isOver(m.Deadline):
		return o, errLate
	case !known && !isTransient(err, 1):
		reportFailure(ctx, by.ref, object, err)
	}
	if !full {
		err = fmt.Errorf("the object %v cannot be called: %w", object, err)
	}
	return o, by.postponed(pause, m.Deadline, err)
}

// askOutside asks an agent that has no Messages, and waits for the response.
func (t *AgentTool) askOutside(ctx context.Context, by *requester, m Message) (r Message, err error) {
	stored, err := until(ctx, m.Deadline, func(ctx context.Context) (Message, error) { return t.Insert(ctx, by.ref, m) })
	if err != nil {
		return r, err
	}
	deadline := t.deadline(by, stored.Created)
	end := deadline
	if least := time.Now().Add(searchTime); !end.IsZero() && !stored.Created.Equal(m.Created) && end.Before(least) { // an earlier run has inserted it
		end = least
	}
	r, err = until(ctx, end, func(ctx context.Context) (m Message, err error) {
		err = by.ref.Rows().WaitElsewhere(ctx, func(ctx context.Context) error {
			m, err = t.Wait(ctx, by.ref, stored)
			return err
		})
		return m, err
	})
	if errors.Is(err, ErrExpired) || err == nil && isLate(r, deadline) {
		return r, errLate
	}
	return r, err
}

// until calls fn with a context that ends at a time, and returns errLate if fn has failed since then. The zero time means no deadline.
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

// mayRunLater reports whether a call did not run and may run later: true if the constructor of the object fails, false if the object is not here.
func mayRunLater(err error) bool {
	e, ok := errors.AsType[*dohost.Error](err)
	never := []error{dohost.ErrNotFound, dohost.ErrForbidden, dohost.ErrMisuse}
	return ok && e.Outcome == dohost.OutcomeNotRun && !isElsewhere(err) &&
		!slices.ContainsFunc(never, func(kind error) bool { return errors.Is(err, kind) })
}

// isElsewhere reports whether the object is on a host that this host cannot call.
func isElsewhere(err error) bool {
	body, _ := dohost.DescribeError(err)
	return body.Code == "elsewhere"
}

// reportFailure reports an error that a model does not get.
func reportFailure(ctx context.Context, by Ref, object dohost.ID, err error) {
	by.Object().Report(ctx, "inbox:error", slog.String("asked", object.String()), slog.Any("err", err))
}

// failureText returns the text of an error for a model. The texts of other errors, such as errors of a constructor, may have secrets, and are
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
	case ok && e.Outcome == dohost.OutcomeNotRun && isElsewhere(err):
		return "another host has the object"
	}
	return "internal error"
}
