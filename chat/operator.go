package chat

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dohost/dohost"
)

// onAdmin applies an operator's action to a call.
func (k *conversation) onAdmin(ctx context.Context, r *dohost.AdminRequest) (bool, error) {
	var err error
	switch {
	case r.Kind != detailCall:
		err = errNoAction
	case r.Action == dohost.ActionApprove, r.Action == dohost.ActionDeny:
		err = k.calls.decide(ctx, &Decision{
			Call: r.ID, Digest: r.Digest, Approve: r.Action == dohost.ActionApprove, Actor: r.Actor, Reason: r.Reason,
		})
	case r.Action == dohost.ActionComplete, r.Action == dohost.ActionFail:
		err = k.completeByOperator(ctx, r)
	default:
		err = errNoAction
	}
	if err == errNoAction {
		err = fmt.Errorf("items of kind %q do not allow the action %s", r.Kind, r.Action)
		return false, &dohost.ArgumentError{Method: "operate", Err: err}
	}
	_, large := errors.AsType[*dohost.LimitError](err)
	switch {
	case errors.Is(err, ErrNoCall):
		return false, nil
	case large, errors.Is(err, ErrStaleApproval), errors.Is(err, ErrNotWaiting), errors.Is(err, ErrDecided), errors.Is(err, errRefused), errors.Is(err, dohost.ErrMisuse):
		return false, &dohost.ArgumentError{Method: "operate", Err: err}
	}
	return err == nil, err
}

var (
	// errNoAction is the error of an action that the items of the kind do not have.
	errNoAction = errors.New("chat: no such action")
	// errRefused is the error of an operator's completion that does not suit the call.
	errRefused = errors.New("chat: the completion is refused")
)

// checkActor returns an error for an actor or a reason that is too long for the audit log.
func checkActor(name, reason string) error {
	switch {
	case len(name) > maxActor:
		return &dohost.LimitError{Subject: "actor of a decision", Size: len(name), Limit: maxActor}
	case len(reason) > maxReason:
		return &dohost.LimitError{Subject: "reason of a decision", Size: len(reason), Limit: maxReason}
	}
	return nil
}

// completeByOperator ends an external call with the result or the error of an operator, as [Complete] does. The audit log
// records the operator.
func (k *conversation) completeByOperator(ctx context.Context, r *dohost.AdminRequest) error {
	if err := checkActor(r.Actor, r.Reason); err != nil {
		return err
	}
	row, err := k.calls.findExternal(ctx, r.ID)
	if err != nil {
		return err
	}
	if r.Digest != "" && r.Digest != hex.EncodeToString([]byte(row.Digest)) {
		return fmt.Errorf("%w: %q", ErrStaleApproval, r.ID)
	}
	c, action := &Completion{Key: row.Key}, ApprovalCompleted
	if r.Action == dohost.ActionFail {
		action = ApprovalFailed
		if err := json.Unmarshal(r.Result, &c.Error); err != nil || c.Error == "" {
			return fmt.Errorf("%w: want the text of the error, as a JSON string", errRefused)
		}
	} else {
		c.Output = r.Result
	}
	if err := c.check(); err != nil {
		return err
	}
	if c.Error == "" {
		if err := checkOutput(row.Schema, c.Output); err != nil { // the operator corrects it: the call does not end
			return fmt.Errorf("%w: %w", errRefused, err)
		}
	}
	ctx = withActor(ctx, actor{name: r.Actor, reason: r.Reason, completes: row.Key})
	applied, err := k.calls.complete(ctx, c, answerWait)
	if err != nil || applied {
		return err
	}
	if row, _, err = k.calls.externalCall(ctx, row.Key); err != nil {
		return err
	}
	err = retryNoSpaceWithin(ctx, answerWait, func() error { return k.calls.lateDecision(ctx, &row, action) })
	return errors.Join(err, fmt.Errorf("%w: the call has ended: it is %s", errRefused, row.State))
}

// findExternal returns the external call with a key or, if no call has that key, the one with that id: the one that has not
// ended, if the ids of several messages are equal.
func (k *toolCalls) findExternal(ctx context.Context, id string) (row callRow, err error) {
	row, ok, err := k.externalCall(ctx, id)
	if err != nil || ok && id != "" {
		return row, err
	}
	open, err := callRows.List(ctx, k.store(), &dohost.Query[callRow]{
		Index: "open", Where: func(r callRow) bool { return r.ID == id && r.External && r.inProgress() }, Limit: 2,
	})
	switch {
	case err != nil:
		return row, err
	case len(open) > 1:
		return row, fmt.Errorf("%w: several external calls have the id %q: use the key of one", errRefused, id)
	case len(open) == 1:
		return open[0].Value, nil
	}
	row, err = k.findCall(ctx, id)
	switch {
	case err != nil:
		return row, err
	case row.ID == "":
		return row, fmt.Errorf("%w: %q", ErrNoCall, id)
	case !row.External:
		return row, fmt.Errorf("%w: no other party runs the call: it is %s", errRefused, row.State)
	}
	return row, nil
}

// completion returns the action that the audit log records for the end of an external call by an operator, or "" for any other
// change of a row.
func completion(ctx context.Context, old, row *callRow) ApprovalAction {
	by, _ := ctx.Value(actorKey{}).(actor)
	switch {
	case by.completes == "" || by.completes != row.Key || old.ended() || !row.ended():
		return ""
	case row.State == CallCompleted:
		return ApprovalCompleted
	}
	return ApprovalFailed
}
