package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
)

// CountSteps passes f the steps taken by code that handles frames, until the test ends.
func CountSteps(t interface{ Cleanup(func()) }, f func(n int)) {
	rawjson.OnStep = f
	t.Cleanup(func() { rawjson.OnStep = nil })
}

// CheckOutput is the check of an Output.
func CheckOutput(o *Output) error { return o.check() }

// Idle returns an error if rows remain that should be gone when everything has ended.
func (k *conversation) Idle(ctx context.Context) error {
	open, err := replies.Count(ctx, k.store(), &dohost.Query[replyRow]{Index: "open"})
	if err != nil {
		return err
	}
	logged, err := chunkRows.Count(ctx, k.store(), nil)
	if err == nil && open+logged > 0 {
		err = fmt.Errorf("%d requests are open, %d chunks are left", open, logged)
	}
	return errors.Join(err, k.checkExtent(ctx), k.checkCalls(ctx))
}

// ProgressRows returns the number of logs of runs, and of their rows.
func (k *conversation) ProgressRows(ctx context.Context) (logs, rows int, err error) {
	if logs, err = progressHeads.Count(ctx, k.store(), nil); err != nil {
		return 0, 0, err
	}
	rows, err = progressRows.Count(ctx, k.store(), nil)
	return logs, rows, err
}

// checkCalls compares the rows of calls with the parts of the stored messages.
func (k *conversation) checkCalls(ctx context.Context) error {
	rows := map[[2]string]callRow{}
	for row, err := range callRows.All(ctx, k.store(), nil) {
		if err != nil {
			return err
		}
		rows[[2]string{row.Value.Message, row.Value.ID}] = row.Value
	}
	all, err := k.messages.newest(ctx, dohost.Query[messageRow]{})
	if err != nil {
		return err
	}
	for _, m := range all {
		for _, p := range m.Parts {
			id := [2]string{m.ID, p.Text("toolCallId")}
			row, ok := rows[id]
			delete(rows, id)
			switch {
			case !uimessage.IsCall(p):
			case !ok && uimessage.IsPending(p):
				return fmt.Errorf("the call %q has no row", id)
			case ok && row.Async && row.State == CallExternal && !uimessage.IsPending(p):
			case ok && row.ended() == uimessage.IsPending(p):
				return fmt.Errorf("the call %q is %s, and its part %s", id, row.State, p.Text("state"))
			}
		}
	}
	if len(rows) > 0 {
		return fmt.Errorf("%d rows of calls without a call in a message: %v", len(rows), rows)
	}
	return nil
}

// CheckLiveCalls compares the calls of the running reply with their rows.
func (k *conversation) CheckLiveCalls(ctx context.Context) error {
	if k.live == nil {
		return errors.New("no reply is running")
	}
	rows, err := k.calls.callsOf(ctx, k.live.row.Message)
	for id, r := range rows {
		if has := k.live.calls[id]; has != r {
			err = errors.Join(err, fmt.Errorf("the running reply has the call %+v, its row is %+v", has, r))
		}
	}
	return err
}

// checkExtent compares the count and the bytes of messages with the rows.
func (k *conversation) checkExtent(ctx context.Context) error {
	x, err := extent(ctx, k.store())
	if err != nil {
		return err
	}
	var n, size uint64
	for row, err := range messages.All(ctx, k.store(), &dohost.Query[messageRow]{}) {
		if err != nil {
			return err
		}
		n++
		size += uint64(len(row.Value.JSON))
	}
	if x.Count != n || x.Bytes != size {
		return fmt.Errorf("%d messages of %d bytes are counted, %d of %d are there", x.Count, x.Bytes, n, size)
	}
	return nil
}

// CutLog deletes the last chunk of the running reply, and makes the call of that chunk pending: the state of an interruption before that
// chunk.
func (k *conversation) CutLog(ctx context.Context) (chunk string, err error) {
	last, err := chunkRows.List(ctx, k.store(), &dohost.Query[chunkRow]{Reverse: true, Limit: 1})
	if err != nil || len(last) == 0 {
		return "", err
	}
	var c Chunk
	if err := json.Unmarshal(last[0].Value.JSON, &c); err != nil {
		return "", err
	}
	row, _, err := k.running(ctx)
	if err != nil {
		return "", err
	}
	calls, err := k.calls.callsOf(ctx, row.Message)
	if err != nil {
		return "", err
	}
	call := calls[c.Text("toolCallId")]
	call.State = CallPending
	_, err = chunkRows.Delete(ctx, k.store(), last[0].Key)
	return c.Type(), errors.Join(err, callRows.Put(ctx, k.store(), call))
}

// Begun returns the number of calls of the handler, from the rows.
func (k *conversation) Begun(ctx context.Context) (n int, err error) {
	for row, err := range replies.All(ctx, k.store(), nil) {
		if err != nil {
			return 0, err
		}
		n += row.Value.attempts()
	}
	return n, nil
}

// Rows returns the number of rows of chunks and of messages, including unreachable rows.
func (k *conversation) Rows(ctx context.Context) (chunks, rows int, err error) {
	if chunks, err = chunkRows.Count(ctx, k.store(), nil); err != nil {
		return 0, 0, err
	}
	rows, err = messages.rows.Count(ctx, k.store(), nil)
	return chunks, rows, err
}

// StoreSummaries stores a summary of each of the first n messages: its text.
func (k *conversation) StoreSummaries(ctx context.Context, n int) error {
	x, err := extent(ctx, k.store())
	if err != nil {
		return err
	}
	for row, err := range messages.All(ctx, k.store(), &dohost.Query[messageRow]{Limit: n}) {
		if err != nil {
			return err
		}
		m, err := row.Value.Message()
		if err != nil {
			return err
		}
		s := summaryRow{From: x.Covered + 1, To: row.Value.Place, First: m.ID, Last: m.ID, Messages: 1, Content: m.PlainText()}
		x.Covered = s.To
		if err := summaries.Put(ctx, k.store(), s); err != nil {
			return err
		}
	}
	return notes.Put(ctx, k.store(), x)
}

// SkipModelCalls makes the next call of a model have a number that is n higher.
func (k *conversation) SkipModelCalls(ctx context.Context, n uint64) error {
	_, err := usageTotals.Update(ctx, k.store(), usageScope{Kind: agentScope}.key(), func(r *totalRow) error {
		r.Last += n
		return nil
	})
	return err
}

// CheckUsage returns the calls of models, and an error if a total differs from the sum of the rows. All rows must be there.
func CheckUsage(ctx context.Context, s *dohost.Storage) (calls []ModelCall, err error) {
	sums := map[string]usageAmounts{}
	for row, err := range modelCalls.All(ctx, s, nil) {
		if err != nil {
			return nil, err
		}
		r := &row.Value
		for _, scope := range r.scopes() {
			sums[scope.key()] = sums[scope.key()].add(r.Amounts)
		}
		calls = append(calls, r.public(""))
	}
	totals, err := usageTotals.List(ctx, s, nil)
	if err != nil {
		return nil, err
	}
	for _, r := range totals {
		if sum := sums[r.Key]; r.Value.Amounts != sum {
			err = errors.Join(err, fmt.Errorf("the total of the %s is %+v, the sum of the calls is %+v", r.Value.Kind, r.Value.Amounts, sum)) // its name is random
		}
	}
	if len(totals) != len(sums) {
		err = errors.Join(err, fmt.Errorf("there are %d totals of %d scopes", len(totals), len(sums)))
	}
	return calls, err
}

// DamageSummaryNote writes the note of the fiber that summarises so that it does not decode. It returns a function that restores the note.
func (k *conversation) DamageSummaryNote(ctx context.Context) (restore func(context.Context) error, err error) {
	note, err := k.readNote(ctx, summaryNote)
	if err != nil {
		return nil, err
	}
	type damaged struct{ Name, Count string }
	rows := dohost.Collection[damaged]{Name: notes.Name, Key: func(n damaged) string { return n.Name }}
	restore = func(ctx context.Context) error { return notes.Put(ctx, k.store(), note) }
	return restore, rows.Put(ctx, k.store(), damaged{summaryNote, "x"})
}
