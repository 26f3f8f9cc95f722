package chat

import (
	"context"
	"errors"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// Cancel ends the reply to a request, or a queued request, and reports whether there was one. The chunks sent so far
// stay.
//
// Errors: [dohost.ErrMisuse] in a transaction, since a stop cannot be rolled back; the error of [agent.CheckWrite] in an
// event of a read-only client.
func Cancel(ctx context.Context, a Ref, request string) (bool, error) {
	if err := agent.CheckWrite(ctx); err != nil {
		return false, err
	}
	if err := a.conv().store().Sync(ctx); err != nil { // not in a Transaction
		return false, err
	}
	return a.conv().cancel(ctx, request)
}

func (k *conversation) cancel(ctx context.Context, id string) (bool, error) {
	if id == "" {
		return false, nil
	}
	row, ok, err := replies.Get(ctx, k.store(), id)
	if err != nil || !ok || !row.Value.Open() {
		return false, err
	}
	if err := k.stop(ctx, row.Value, StatusAborted); err != nil {
		return true, err
	}
	return true, k.clients.notifyWaiting(ctx)
}

// stop ends an open request.
func (k *conversation) stop(ctx context.Context, row replyRow, as Status) error {
	if row.running() {
		l, err := k.loadLive(ctx, row)
		if err != nil {
			return err
		}
		return k.end(ctx, l, as, failure{})
	}
	if _, err := k.step(&row, row.ending(as), time.Now()); err != nil {
		return err
	}
	err := dohost.Transaction(ctx, func(ctx context.Context) error {
		err := errors.Join(k.putReply(ctx, row), k.asked.answerAsked(ctx, &row, row.Asked, nil))
		if err == nil && row.Continues && row.Message != "" {
			err = k.asked.notContinued(ctx, row.Message)
		}
		return err
	})
	if err != nil {
		return err
	}
	k.requestEnded(row.ID)
	return k.clients.broadcast(ctx, row.endFrame(), k.clients.openConns())
}

// errCancelled is the error of a reply with a cancelled fiber.
var errCancelled = errors.New("chat: the fiber of the reply was cancelled")

// fiberCancelled is called when a fiber is cancelled. The cancellation may still be rolled back; the end of a reply
// may not. So fiberCancelled schedules the end as an event of its own, once the cancellation is durable.
func (k *conversation) fiberCancelled(ctx context.Context, f agent.FiberInfo) error {
	if f.Name != string(replyKind) {
		return nil
	}
	_, err := agent.Schedule(ctx, k.base, agent.After(0), cancelledCallback, f.ID, nil)
	return err
}

// endCancelled ends the reply of a cancelled fiber, unless the last run has ended it, and calls OnResponse, because no
// run does that.
func (k *conversation) endCancelled(ctx context.Context, fiber string) error {
	row, ok, err := k.requestOfFiber(ctx, fiber)
	if err != nil || !ok {
		return err
	}
	if row.running() {
		l, err := k.loadLive(ctx, row)
		if err != nil {
			return err
		}
		if err := k.endWhenSpace(ctx, l, StatusAborted, publicFailure(errCancelled.Error())); err != nil {
			return err
		}
		row = l.row
	}
	return k.callOnResponse(ctx, row, false)
}

// Clear deletes the conversation, and ends all running and queued requests.
//
// Errors: [dohost.ErrMisuse] in a transaction, since a stop cannot be rolled back; the error of [agent.CheckWrite] in an
// event of a read-only client.
func Clear(ctx context.Context, a Ref) error {
	if err := agent.CheckWrite(ctx); err != nil {
		return err
	}
	if err := a.conv().store().Sync(ctx); err != nil { // not in a Transaction
		return err
	}
	return a.conv().clear(ctx, nil)
}

func (k *conversation) clear(ctx context.Context, from *agent.Conn) error {
	open, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "open", Reverse: true})
	if err != nil {
		return err
	}
	k.clients.clearing = from
	defer func() { k.clients.clearing = nil }()
	for _, r := range open { // the queued ones first, so that none of them begins
		if err := k.stop(ctx, r.Value, StatusAborted); err != nil {
			return err
		}
	}
	err = dohost.Transaction(ctx, func(ctx context.Context) error {
		if err := k.asked.clearAddresses(ctx); err != nil {
			return err
		}
		if err := k.messages.trimTo(ctx, 0); err != nil {
			return err
		}
		for _, name := range []string{terminalNote, requestNote} {
			if _, err := notes.Delete(ctx, k.store(), name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := k.clients.notifyWaiting(ctx); err != nil {
		return err
	}
	return k.clients.broadcast(ctx, streamFrame{Type: frameClear}, k.clients.openConns(from))
}
