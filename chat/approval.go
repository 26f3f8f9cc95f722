package chat

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
)

// Approval makes calls of a [Tool] wait until a client, an operator or the program approves them. The zero Approval makes
// all calls wait, without a time limit.
type Approval struct {
	// If reports whether a call with this input needs an approval. It runs with the turn, must not release it, and may run
	// again after an interruption. Nil means that all calls need one. If it fails, the call fails with its error.
	If func(ctx context.Context, input json.RawMessage) (bool, error)
	// Within is the time to decide. After it the call has the state [CallExpired], and the model receives an error. A later
	// decision has no effect, even if the host was down at that time. Zero means no limit; [Answer] fails if it is negative.
	Within time.Duration
}

// asks reports whether a call with an input needs an approval.
func (a *Approval) asks(ctx context.Context, input json.RawMessage) (bool, error) {
	if a.If == nil {
		return true, nil
	}
	return a.If(ctx, rawjson.OrNull(input))
}

// ApprovalAction is the kind of an [ApprovalEvent].
type ApprovalAction string

// The actions.
const (
	ApprovalRequested ApprovalAction = "requested" // the call begins to wait
	ApprovalApproved  ApprovalAction = "approved"
	ApprovalDenied    ApprovalAction = "denied"
	ApprovalExpired   ApprovalAction = "expired"
	ApprovalCompleted ApprovalAction = "completed" // an operator has completed an external call
	ApprovalFailed    ApprovalAction = "failed"    // an operator has ended an external call with an error
)

// ApprovalEvent is an entry of the audit log of a conversation: a request for an approval, a decision, or the completion of an
// external call by an operator. The log is only appended to. The message of a call may be deleted; the events of the call stay for [Options].KeepApprovals.
type ApprovalEvent struct {
	Number  uint64 // in the order of the log, from 1 without a gap
	Message string // id of the message of the call
	Call    string // id of the call
	Tool    string
	Digest  string // of the tool and the input: see [Decision]
	Action  ApprovalAction
	Late    bool   // the decision had no effect: the call had begun or ended, or had the same decision
	Actor   string // the identity that has decided; empty if it is not known
	Reason  string
	Time    time.Time
}

// approvalRow is an ApprovalEvent in the store.
type approvalRow struct {
	Number        uint64
	Message, Call string
	Tool, Digest  string
	Action        ApprovalAction
	Late          bool
	Actor, Reason string
	At            int64
}

var approvals = dohost.Collection[approvalRow]{
	Name: "dohost.chat.approvals",
	Key:  func(r approvalRow) string { return string(dohost.KeyOf(r.Number)) },
	Indexes: []dohost.Index[approvalRow]{
		{Name: "call", Of: func(r approvalRow) dohost.Key { return dohost.KeyOf(r.Message) + callKey(r.Call) }},
	},
}

const (
	// maxLateDecisions bounds the late decisions about a call that the log has, so that a client cannot fill the disk.
	maxLateDecisions = 20
	// maxActor and maxReason bound the texts of a decision, in bytes.
	maxActor  = 256
	maxReason = 2 << 10
	// keepApprovals is the default of Options.KeepApprovals.
	keepApprovals = 90 * 24 * time.Hour
)

// ErrStaleApproval is the error of a [Decision] whose Digest differs from the digest of the call.
var ErrStaleApproval = errors.New("chat: the decision is about another input of the call")

// ErrDecided is the error of a decision that came too late: the call had begun or ended. The audit log records the decision as
// late.
var ErrDecided = errors.New("chat: the call does not wait for an approval any more")

// ErrNotWaiting is the error of a decision about a call that has never waited for an approval.
var ErrNotWaiting = errors.New("chat: the call does not need an approval")

// ErrNoCall is the error of a decision about a call that does not exist.
var ErrNoCall = errors.New("chat: there is no such call")

// Decision is a decision about a call that waits for an approval. Without Approve it is a refusal.
type Decision struct {
	Call string // its id
	// Digest is the Digest of the [Call] that the actor saw. Empty means no check.
	Digest  string
	Approve bool   // false refuses the call
	Actor   string // at most 256 bytes
	Reason  string // at most 2 KiB
}

// Decide records a decision in the audit log, and applies it: an approved call runs when no other call of the message waits for a client or
// for an approval; for a refused call the model receives an error. Until the call begins to run, the latest decision counts, except that a
// refusal is final. The agent asks the model again when no call of the message waits. Decide is for the program. The agent applies decisions
// in client frames in the same way; their actor is the identity in the client's [dohost.Access], or else the connection.
//
// Errors: [ErrNoCall], [ErrStaleApproval], [ErrNotWaiting], [ErrDecided]; [dohost.ErrNoSpace] if the disk is full for 20 s, and then the
// decision has no effect; a [*dohost.LimitError]; the error of [agent.CheckWrite] in an event of a read-only client; [dohost.ErrMisuse]
// for a nil Decision and in a transaction.
func Decide(ctx context.Context, a Ref, d *Decision) error {
	if d == nil {
		return fmt.Errorf("chat: the decision is nil: %w", dohost.ErrMisuse)
	}
	if err := agent.CheckWrite(ctx); err != nil {
		return err
	}
	k := a.conv()
	if err := k.store().Sync(ctx); err != nil { // not in a Transaction: frames cannot be rolled back
		return err
	}
	return k.calls.decide(ctx, d)
}

// decide applies a decision of the program or of an operator.
func (k *toolCalls) decide(ctx context.Context, d *Decision) error {
	if err := checkActor(d.Actor, d.Reason); err != nil {
		return err
	}
	if err := k.expireOverdue(ctx); err != nil {
		return err
	}
	call, err := k.findCall(ctx, d.Call)
	switch {
	case err != nil:
		return err
	case call.ID == "":
		return fmt.Errorf("%w: %q", ErrNoCall, d.Call)
	case d.Digest != "" && d.Digest != hex.EncodeToString([]byte(call.Digest)):
		return fmt.Errorf("%w: %q", ErrStaleApproval, d.Call)
	}
	f := &answerFrame{ToolAnswer: uimessage.ToolAnswer{CallID: d.Call, Approved: &d.Approve}}
	ctx = withActor(ctx, actor{name: d.Actor, reason: d.Reason})
	_, how, err := k.applyAnswer(ctx, f, true, answerWait)
	switch {
	case err != nil:
		return err
	case how == uimessage.EffectRefused:
		return fmt.Errorf("%w: %q is %s", ErrNotWaiting, d.Call, call.State)
	case how != uimessage.EffectApplied:
		return fmt.Errorf("%w: %q is %s", ErrDecided, d.Call, call.State)
	}
	return nil
}

// continueMessage queues a continuation of a message. completes is set for Complete.
func (k *conversation) continueMessage(ctx context.Context, message string, completes bool) error {
	note, err := k.requestOfMessage(ctx, message)
	if err != nil {
		return err
	}
	_, err = k.queueContinuation(ctx, "", message, note, completes)
	return err
}

// actor is the origin of a decision.
type actor struct {
	name, reason string
	expired      bool   // the time to decide has passed
	completes    string // the key of the external call that an operator completes
}

type actorKey struct{}

func withActor(ctx context.Context, a actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// actorOf returns the actor for a client: its identity, if that is a text, or else its connection.
func actorOf(conn *agent.Conn) actor {
	if access, ok := conn.Access(); ok {
		switch id := access.Identity.(type) {
		case string:
			return actor{name: clipText(id, maxActor)}
		case fmt.Stringer:
			return actor{name: clipText(fmt.Sprint(id), maxActor)} // also of a nil pointer
		}
	}
	return actor{name: clipText("connection "+conn.ID(), maxActor)}
}

// decision returns the action that the audit log records for a change of a call's row, or "" if the log records none.
func decision(old, row *callRow) ApprovalAction {
	switch {
	case row.State == CallApproval && old.State != CallApproval:
		return ApprovalRequested
	case row.State == CallExpired && old.State != CallExpired:
		return ApprovalExpired
	case row.State == CallDenied && old.State != CallDenied:
		return ApprovalDenied
	case row.Approved && !old.Approved:
		return ApprovalApproved
	}
	return ""
}

// decided returns row, the new row of a call. If a call that waited for an approval has failed, decided makes the state denied,
// or expired if the time to decide has passed.
func decided(ctx context.Context, old *callRow, row callRow) callRow {
	if old.State == CallApproval && row.State == CallFailed {
		row.State = CallDenied
		if by, ok := ctx.Value(actorKey{}).(actor); ok && by.expired {
			row.State = CallExpired
		}
	}
	return row
}

// appendApproval appends an event to the audit log, and deletes a few old ones.
func (k *toolCalls) appendApproval(ctx context.Context, row *callRow, action ApprovalAction, late bool) error {
	note, err := k.readNote(ctx, approvalNote)
	if err != nil {
		return err
	}
	note.Name = approvalNote
	note.Count++
	now := time.Now()
	event := approvalRow{
		Number: note.Count, Message: row.Message, Call: row.ID, Tool: row.Tool, Digest: hex.EncodeToString([]byte(row.Digest)),
		Action: action, Late: late, At: now.UnixMilli(),
	}
	if by, ok := ctx.Value(actorKey{}).(actor); ok && action != ApprovalRequested {
		event.Actor, event.Reason = by.name, by.reason
	}
	err = dohost.Transaction(ctx, func(ctx context.Context) error { // the numbers have no gap, also on a full disk
		if err := notes.Put(ctx, k.store(), note); err != nil {
			return err
		}
		return approvals.Insert(ctx, k.store(), event)
	})
	if err != nil {
		return err
	}
	outcome := string(action)
	if late {
		outcome = "late"
	}
	k.object().Report(ctx, "chat:approval", slog.String("call", row.ID), slog.String("tool", row.Tool),
		slog.String("outcome", outcome), slog.String("actor", event.Actor))
	keep := k.options().KeepApprovals
	if keep < 0 {
		return nil
	}
	old, err := approvals.List(ctx, k.store(), &dohost.Query[approvalRow]{Limit: 2})
	for _, r := range old {
		if err == nil && r.Value.At < now.Add(-keep).UnixMilli() {
			_, err = approvals.Delete(ctx, k.store(), r.Key)
		}
	}
	return err
}

// lateDecision records a decision or a completion without an effect.
func (k *toolCalls) lateDecision(ctx context.Context, call *callRow, action ApprovalAction) error {
	events, err := approvals.List(ctx, k.store(), &dohost.Query[approvalRow]{
		Index: "call", Equal: dohost.KeyOf(call.Message) + callKey(call.ID), Limit: maxLateDecisions,
		Where: func(r approvalRow) bool { return r.Late },
	})
	if err != nil || len(events) >= maxLateDecisions {
		return err
	}
	return k.appendApproval(ctx, call, action, true)
}

// Approvals yields the audit log of a conversation, the oldest event first: for one call, or for all calls if call is
// empty.
func Approvals(ctx context.Context, a Ref, call string) iter.Seq2[ApprovalEvent, error] {
	return func(yield func(ApprovalEvent, error) bool) {
		q := &dohost.Query[approvalRow]{Where: func(r approvalRow) bool { return call == "" || r.Call == call }}
		for row, err := range approvals.All(ctx, a.conv().store(), q) {
			if !yield(row.Value.event(), err) || err != nil {
				return
			}
		}
	}
}

func (r *approvalRow) event() ApprovalEvent {
	return ApprovalEvent{
		Number: r.Number, Message: r.Message, Call: r.Call, Tool: r.Tool, Digest: r.Digest, Action: r.Action, Late: r.Late,
		Actor: r.Actor, Reason: r.Reason, Time: time.UnixMilli(r.At),
	}
}

// expiredApproval is the argument of expireCallback.
type expiredApproval struct{ Message, Call string }

// expireCallback ends the wait for an approval that has taken too long.
const expireCallback agent.Callback[expiredApproval] = "chat.expire"

// scheduleExpiry schedules the end of the wait of a call.
func (k *toolCalls) scheduleExpiry(ctx context.Context, message, call string, at time.Time) error {
	_, err := agent.Schedule(ctx, k.base, agent.At(at), expireCallback, expiredApproval{message, call}, nil)
	return err
}

// scheduleExpiry is toolCalls.scheduleExpiry for a call of the reply's message.
func (l *liveReply) scheduleExpiry(ctx context.Context, call string, at time.Time) error {
	return l.k.calls.scheduleExpiry(ctx, l.row.Message, call, at)
}

// expireOverdue ends the waits whose time to decide has passed. The schedule of the expiry may be late: after a downtime of the
// host, a decision may come first. On a full disk it waits for answerWait.
func (k *toolCalls) expireOverdue(ctx context.Context) error {
	now := time.Now().UnixMilli()
	overdue, err := callRows.List(ctx, k.store(), &dohost.Query[callRow]{
		Index: "open", Where: func(r callRow) bool { return r.State == CallApproval && r.overdue(now) },
	})
	for _, r := range overdue {
		if err == nil {
			err = k.expireApproval(ctx, expiredApproval{r.Value.Message, r.Value.ID}, answerWait)
		}
	}
	return err
}

// expireApproval ends the wait of a call, if it still waits. most bounds the wait for space.
func (k *toolCalls) expireApproval(ctx context.Context, of expiredApproval, most time.Duration) error {
	calls, err := k.callsOf(ctx, of.Message)
	if err != nil {
		return err
	}
	row, ok := calls[of.Call]
	switch {
	case !ok || !row.overdue(time.Now().UnixMilli()) || row.ended():
		return nil
	case row.External:
		return k.expireExternal(ctx, row, most)
	case row.State != CallApproval:
		return nil
	}
	f := &answerFrame{ToolAnswer: uimessage.ToolAnswer{CallID: of.Call, State: uimessage.OutputError, ErrorText: uimessage.ExpiredText}}
	_, _, err = k.applyAnswer(withActor(ctx, actor{expired: true}), f, true, most)
	return err
}
