package chat

import (
	"context"
	"errors"
	"log/slog"

	"github.com/dohost/dohost"
)

// lateResult is called when a run returns after its call has ended: after its time, or after the end of the reply. inner is the context of
// the tool. An error that only states the end of inner is no result.
func (run *toolRun) lateResult(task, inner context.Context, l *liveReply, out any, failed error) error {
	if failed != nil && (errors.Is(failed, inner.Err()) || errors.Is(failed, context.Cause(inner))) || task.Err() != nil {
		return nil
	}
	l.object().Report(task, "chat:late", slog.String("call", run.call.ID), slog.String("tool", run.tool.Name))
	if run.tool.External != nil { // the result is that of Complete
		return nil
	}
	if failed == nil {
		failed = run.tool.checkResult(out)
	}
	raw, err := encodeOutput(out)
	switch {
	case failed != nil:
	case err != nil:
		failed = err
	case len(raw) > maxOutput:
		failed = &dohost.LimitError{Subject: "output of a call", Size: len(raw), Limit: maxOutput}
	}
	r := callResult{output: raw}
	if failed != nil {
		r = callResult{failure: clipText(failed.Error(), maxToolError)}
	}
	return retryNoSpace(task, func() error { return l.k.calls.keepLate(task, run.call.Message, run.call.ID, r) })
}

// keepLate stores a result that came after the end of a call, if the tool of the call wants that. The first one counts. The message
// does not change.
func (k *toolCalls) keepLate(ctx context.Context, message, id string, r callResult) error {
	stored, ok, err := callRows.Get(ctx, k.store(), callRows.Key(callRow{Message: message, ID: id}))
	old := stored.Value
	if err != nil || !ok || old.State != CallUnknown || !old.KeepLate || old.Late {
		return err
	}
	row := old
	row.Late, row.Output, row.Failure = true, string(r.output), r.failure
	if err := k.putCall(ctx, old, row, callResult{}); err != nil {
		return err
	}
	if l := k.conv.live; l != nil && !l.ended && l.row.Message == message {
		l.setCall(row)
	}
	return nil
}
