package chat

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat/uimessage"
)

// Only this file writes the rows of calls. putCall writes each of them.

// putCall writes the row of a call. If decision returns an action, putCall also appends the event. If the state changes, or a late
// result is kept, it calls OnCall; result is the result of a call that has ended.
func (k *toolCalls) putCall(ctx context.Context, old, row callRow, result callResult) error {
	if row == old {
		return nil
	}
	action := cmp.Or(decision(&old, &row), completion(ctx, &old, &row))
	notifies := k.class.called != nil && (row.State != old.State || row.Late && !old.Late)
	if action == "" && !notifies {
		err := callRows.Put(ctx, k.store(), row)
		k.reportUnknown(ctx, &old, &row)
		return err
	}
	err := dohost.Transaction(ctx, func(ctx context.Context) error {
		if err := callRows.Put(ctx, k.store(), row); err != nil {
			return err
		}
		if action != "" {
			if err := k.appendApproval(ctx, &row, action, false); err != nil {
				return err
			}
		}
		if notifies {
			return k.callOnCall(ctx, &row, result)
		}
		return nil
	})
	k.reportUnknown(ctx, &old, &row)
	return err
}

// reportUnknown reports a call whose effect has become unknown.
func (k *toolCalls) reportUnknown(ctx context.Context, old, row *callRow) {
	if row.State == CallUnknown && old.State != CallUnknown {
		k.object().Report(ctx, "chat:unknown", slog.String("call", row.ID), slog.String("tool", row.Tool))
	}
}

// replaceCalls writes the rows in now that differ from those in old, and deletes the rows of old that
// are missing from now. It does so in the order of their ids, as their events in the audit log. m has the results of the calls.
func (k *toolCalls) replaceCalls(ctx context.Context, old, now map[string]callRow, m *Message) error {
	for _, row := range sortedCalls(now) {
		var result callResult
		if p, ok := uimessage.Call(m, row.ID); ok {
			result = resultIn(p)
		}
		if err := k.putCall(ctx, old[row.ID], row, result); err != nil {
			return err
		}
	}
	for _, row := range sortedCalls(old) {
		if _, kept := now[row.ID]; kept {
			continue
		}
		if err := k.deleteCall(ctx, row); err != nil {
			return err
		}
	}
	return nil
}

// deleteCall deletes the row of a call, and cancels its task.
func (k *toolCalls) deleteCall(ctx context.Context, row callRow) error {
	if err := row.deleteProgress(ctx, k.store()); err != nil {
		return err
	}
	if row.waitsForTask() {
		if err := k.sent.cancelAsk(ctx, &row); err != nil {
			return err
		}
	}
	_, err := callRows.Delete(ctx, k.store(), callRows.Key(row))
	return err
}

// deletedCalls are the calls of messages that are deleted in one batch.
type deletedCalls struct {
	budget int       // for further rows; sweep deletes those beyond it
	tasks  []callRow // those with a task, which have not ended
}

// delete deletes rows of the calls of a deleted message until the budget is zero.
func (d *deletedCalls) delete(ctx context.Context, s *dohost.Storage, m *messageRow) error {
	if !hasCalls(m) {
		return nil
	}
	of := dohost.KeyOf(m.ID)
	for row, err := range callRows.All(ctx, s, &dohost.Query[callRow]{Start: of, End: of.PrefixEnd()}) {
		if err != nil || d.budget == 0 {
			return err
		}
		if row.Value.waitsForTask() {
			d.tasks = append(d.tasks, row.Value)
		}
		if err := row.Value.deleteProgress(ctx, s); err != nil {
			return err
		}
		if _, err := callRows.Delete(ctx, s, row.Key); err != nil {
			return err
		}
		d.budget--
	}
	return nil
}
