package chat

import (
	"context"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat/uimessage"
	"github.com/dohost/dohost/internal/work"
)

// cancelAsked stops a request of another agent, by the caller. A request that OnAsked still decides about is stored as stopped, so
// that acceptAsked does not store it; and so is an unknown one that is on its way from another host, and may arrive later (unsure). Of any other request
// without a trace nothing is written: the agent may have been deleted.
//
// The row of a request may be forgotten while its message waits, or while a continuation of the message runs: both have its address.
//
// After it no call of the request begins: the calls of its message that wait end in the batch of the cancellation, or before the
// running reply does. A client's stop of the reply does not end them: the client sees the calls, and may still decide about them.
func (k *askedRequests) cancelAsked(ctx context.Context, request string, unsure bool) error {
	_, known, err := replies.Get(ctx, k.store(), request)
	if err != nil {
		return err
	}
	if !known && (unsure || k.deciding[request] > 0) {
		now := time.Now()
		row := replyRow{ID: request, Created: now.UnixMilli(), Collects: true}
		if _, err := k.conv.step(&row, row.ending(StatusAborted), now); err != nil {
			return err
		}
		return k.conv.putReply(ctx, row)
	}
	waiting, err := waitingRows.List(ctx, k.store(), &dohost.Query[waitingRow]{Where: func(w waitingRow) bool {
		return w.Address.Request == request
	}})
	for _, w := range waiting {
		if err == nil {
			err = k.cancelWaiting(ctx, &w.Value)
		}
	}
	if err != nil {
		return err
	}
	open, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "open", Where: func(r replyRow) bool {
		return r.Asked != nil && r.Asked.Request == request
	}})
	for _, r := range open {
		if err == nil && r.Value.running() {
			err = k.withdrawRunning(ctx, r.Value)
		}
		if err == nil {
			_, err = k.conv.cancel(ctx, r.Key)
		}
	}
	return err
}

// cancelWaiting stops a request whose reply has ended while calls of its message wait, in one batch.
func (k *askedRequests) cancelWaiting(ctx context.Context, w *waitingRow) error {
	var m Message
	err := dohost.Transaction(ctx, func(ctx context.Context) (err error) {
		if err := k.failAddress(ctx, w, "the caller has cancelled the request"); err != nil {
			return err
		}
		queued, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "open", Where: func(r replyRow) bool {
			return r.Continues && r.Message == w.Message && r.State == work.Waiting
		}})
		for _, r := range queued {
			if err == nil {
				err = k.conv.stop(ctx, r.Value, StatusAborted)
			}
		}
		if err == nil {
			m, err = k.withdrawStored(withdrawing(ctx, &w.Address), w.Message)
		}
		return err
	})
	if err != nil || m.ID == "" {
		return err
	}
	for _, p := range m.Parts {
		if err := k.sent.sendRunEnd(ctx, &m, p.Text("toolCallId")); err != nil {
			return err
		}
	}
	return k.clients.broadcast(ctx, updatedFrame{frameUpdated, m}, k.clients.openConns())
}

// withdrawnText is the result of a call that waits when its request is cancelled.
const withdrawnText = "The request was cancelled."

// withdrawing returns the context for the end of the calls of a request. The audit log gets a refusal of the caller for each call
// that waits for an approval.
func withdrawing(ctx context.Context, by *returnAddress) context.Context {
	return withActor(ctx, actor{name: clipText(by.caller().String(), maxActor), reason: withdrawnText})
}

// withdrawal returns the end of a call that waits for an approval, a client or another party, or is about to run. ok is false for any
// other call. The effect of a call that another party runs is unknown.
func withdrawal(p Part, r *callRow) (f *uimessage.ToolAnswer, ok bool) {
	if !uimessage.IsPending(p) || p.Text("state") == uimessage.InputStreaming || r.State == CallRunning {
		return nil, false
	}
	return &uimessage.ToolAnswer{CallID: p.Text("toolCallId"), State: uimessage.OutputError, ErrorText: withdrawnText}, true
}

// withdrawStored ends the calls of a stored message that wait, and returns the message; without an id if it is not stored.
func (k *askedRequests) withdrawStored(ctx context.Context, message string) (m Message, err error) {
	row, ok, err := messages.Get(ctx, k.store(), message)
	if err != nil || !ok {
		return m, err
	}
	if m, err = row.Message(); err != nil {
		return m, err
	}
	calls, err := k.calls.callsOf(ctx, message)
	if err != nil {
		return m, err
	}
	err = k.sent.stopAsks(ctx, calls, func(_ callRow, f *uimessage.ToolAnswer) error {
		if p, ok := uimessage.Call(&m, f.CallID); ok {
			f.Apply(p)
		}
		return nil
	})
	for _, p := range m.Parts {
		r := calls[p.Text("toolCallId")]
		if f, ok := withdrawal(p, &r); ok {
			f.Apply(p)
		}
	}
	if err == nil {
		_, err = k.messages.putReplacing(ctx, row, m, 0, "")
	}
	return m, err
}

// withdrawRunning ends the calls of a running reply that wait, before the reply is stopped. The stop ends the calls that ask agents
// and those that run.
func (k *askedRequests) withdrawRunning(ctx context.Context, row replyRow) error {
	l, err := k.conv.loadLive(ctx, row)
	if err != nil {
		return err
	}
	ctx = withdrawing(ctx, row.Asked)
	return l.retryNoSpace(ctx, func() error {
		for _, p := range l.partial().Parts {
			r := l.calls[p.Text("toolCallId")]
			if f, ok := withdrawal(p, &r); ok && r.Asks == "" {
				if err := l.answer(ctx, &answerFrame{ToolAnswer: *f}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
