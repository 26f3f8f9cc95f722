package inbox

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// A cycle that has asked another agent with Messages does not wait: it ends, and is repeated when the request has an outcome. Invariants:
//
//   - The outcome of a request is a function of the rows of the asked object: a response, or a message that is expired, parked or deleted. Each run
//     of the cycle reads them. A wake-up carries no outcome: a lost one costs time, and an extra one costs a run.
//   - If the request has no outcome yet, the cycle stores an awaitedRow in the asked object, in the turn of its poll. The batch that makes an outcome
//     finds the row, deletes it, and wakes the caller: directly in the same object, or else by a fiber that it starts. If the object
//     is overloaded, or the outcome is a deletion on a full disk, there is no wake-up, and the caller finds the outcome after askPause.
//   - A wake-up that arrives before the end of the cycle that polled makes the repetition immediate: see agent.Rows.Wake.
//   - The repetition is at the end of the time limit, and after askPause in any case: a writer without the inbox, or an import, may have
//     made the outcome.
//
// The order: the message and the awaitedRow are one batch of the asked object; the cycle of the caller ends as postponed; the outcome and the
// wake-up, or its fiber, are one batch; the cycle of the caller is repeated, with the recorded answers of its model, and polls again.

// awaitedRow is a request in this object whose outcome a cycle waits for.
type awaitedRow struct {
	Collection string // of the request, with its id
	ID         string
	Reply      string // its key in the index of responses
	Waiter     waiter
}

// waiter is a cycle that is to be repeated.
type waiter struct {
	Object dohost.ID
	Call   string // its agent.Rows.CallID
}

// byResponse has the awaited requests by their responses.
const byResponse = "response"

var awaited = dohost.Collection[awaitedRow]{
	Name: "dohost.inbox.awaited",
	Key:  func(r awaitedRow) string { return awaitedKey(r.Collection, r.ID) },
	Indexes: []dohost.Index[awaitedRow]{{Name: byResponse, Of: func(r awaitedRow) dohost.Key {
		return dohost.KeyOf(r.Collection) + dohost.Key(r.Reply)
	}}},
}

func awaitedKey(collection, id string) string {
	return string(dohost.KeyOf(collection) + nameKey(id))
}

// await records that a cycle waits for the outcome of a request.
func await(ctx context.Context, of Ref, messages *dohost.Collection[Message], m Message, w waiter) error {
	r := awaitedRow{messages.Name, m.ID, string(replyKey(m.Request, m.To, m.From)), w}
	old, ok, err := awaited.Get(ctx, of.Storage(), awaitedKey(r.Collection, r.ID))
	if err != nil || ok && old.Value == r {
		return err
	}
	return awaited.Put(ctx, of.Storage(), r)
}

// wakeFiber returns the kind of the fibers that wake cycles of other objects.
func wakeFiber[O any]() agent.Entry[O] {
	return agent.OnFiber(wakeKind, func(o *O, ctx context.Context, f *agent.Fiber[waiter]) error {
		return wake(ctx, any(o).(Ref), f.Checkpoint())
	}, &agent.KindOptions{KeepCompleted: time.Minute, KeepFailed: time.Minute, Quiet: true})
}

// finishWritten notices the outcomes of requests that the write of a row makes: it is a response, or the message has left the inbox.
func finishWritten(ctx context.Context, of Ref, w *dohost.RowWrite) error {
	for key := range w.Places(replyIndex) {
		rows, err := awaited.List(ctx, of.Storage(), &dohost.Query[awaitedRow]{Index: byResponse, Equal: dohost.KeyOf(w.Collection) + key})
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := finishRequest(ctx, of, row.Value); err != nil {
				return err
			}
		}
	}
	if leftInbox(w) == "" {
		return nil
	}
	err := finishRequestID(ctx, of, w.Collection, w.Key)
	if w.Deleted && errors.Is(err, dohost.ErrNoSpace) {
		err = nil // a full disk refuses the wake-up, but not the deletion: the caller polls again itself
	}
	return errors.Join(err, forgetAsked(ctx, of.Storage(), w.Collection, w.Key))
}

// finishParked notices that messages were parked.
func finishParked(ctx context.Context, of agent.Handle, collection string, keys []string) error {
	for _, key := range keys {
		if err := finishRequestID(ctx, of, collection, key); err != nil {
			return err
		}
	}
	return nil
}

// leftInbox returns the key of the name of the agent whose inbox a message leaves with a write: it waited for that agent before the write, and does not
// afterwards, or waits for another one. The key is empty for any other write.
func leftInbox(w *dohost.RowWrite) dohost.Key {
	if before := waitedFor(w.FormerPlaces(pendingIndex)); before != waitedFor(w.Places(pendingIndex)) {
		return before
	}
	return ""
}

// createdSize is the size of the time at the end of a place in the index of the messages that wait. The name is before it.
var createdSize = len(dohost.KeyOf(time.Time{}))

// waitedFor returns the key of the name of the agent that a message waits for, given its places in the index; empty if it waits for none.
func waitedFor(places iter.Seq2[dohost.Key, dohost.Cursor]) dohost.Key {
	for place := range places {
		if len(place) > createdSize {
			return place[:len(place)-createdSize]
		}
	}
	return ""
}

// finishRequestID is finishRequest for the request with an id, if a cycle waits for it.
func finishRequestID(ctx context.Context, of Ref, collection, id string) error {
	row, ok, err := awaited.Get(ctx, of.Storage(), awaitedKey(collection, id))
	if err != nil || !ok {
		return err
	}
	return finishRequest(ctx, of, row.Value)
}

// finishRequest deletes the row of a request that has an outcome, and wakes the cycle that waits for it. On a full disk the wake-up is refused.
func finishRequest(ctx context.Context, of Ref, r awaitedRow) error {
	if _, err := awaited.Delete(ctx, of.Storage(), awaitedKey(r.Collection, r.ID)); err != nil {
		return err
	}
	if r.Waiter.Object == of.Object().ID() {
		return of.Rows().Wake(ctx, r.Waiter.Call)
	}
	_, err := agent.StartFiber(ctx, of, wakeKind, r.Waiter, nil)
	if errors.Is(err, dohost.ErrOverloaded) {
		return nil // no reason to lose the outcome
	}
	return err
}

// wakeKind is the kind of the fibers that wake cycles of other objects.
const wakeKind agent.FiberKind[waiter] = "inbox.wake"

// wakeRetry bounds the calls of a wake-up. Afterwards the caller has polled itself.
var wakeRetry = dohost.RetryPolicy{MaxAttempts: -1, MaxDelay: 30 * time.Second, MaxElapsed: askPause, ShouldRetry: dohost.RetryAnyError}

// wake wakes a cycle of another object.
func wake(ctx context.Context, of Ref, w waiter) error {
	err := dohost.Retry(ctx, &wakeRetry, func(ctx context.Context) error {
		_, err := wakeProcedure.Call(ctx, of.Object(), w.Object, w.Call, nil)
		return err
	})
	if err != nil && ctx.Err() == nil {
		of.Object().Report(ctx, "inbox:error", slog.String("caller", w.Object.String()), slog.Any("err", err))
		return nil
	}
	return err
}

var wakeProcedure = dohost.NewProcedure("inbox.wake", func(ctx context.Context, object any, call string) (struct{}, error) {
	if of, ok := object.(Ref); ok {
		return struct{}{}, of.Rows().Wake(ctx, call)
	}
	return struct{}{}, nil
})
