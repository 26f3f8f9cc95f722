package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
)

// The end of a question ends the waits of its messages: it makes the messages due, or parks them after a refusal. A batch of the store has a limit, and
// any number of messages may wait, so the batch of the end contains only the first ones. Invariants:
//
//   - The end is one batch: the grant, the event in the audit log, and the messages with their waits. If others wait, the same batch stores the
//     question as ended, and starts a fiber. An ended question is decided already: a second decision is ErrNoQuestion, and the next exhausted
//     budget is another question.
//   - Each batch of the fiber makes due or parks some messages and deletes their waits. The last one deletes the question. So a wait exists exactly
//     until its message is due or parked, and after a crash the fiber continues with the first wait.
//   - The waits of the messages of one call end together, since the messages are parked together. A batch has waitsPerBatch waits, and the rest
//     of the last call.
//   - A cycle whose messages wait for a refused question does not ask again: it is postponed until the fiber has parked them. A cycle that begins while
//     the batch with its messages is not durable yet is the exception: it is not parked, and asks again. After an approval a cycle need not wait
//     for the fiber. If it asks again, its messages wait for the new question.
//   - If the fiber cannot start or has failed, the next cycle of the agent starts another.

// waitsPerBatch is the number of waits that end in one batch. Their calls have up to 499 more.
const waitsPerBatch = 50

// endWaitsPause is the pause of a cycle that waits for the fiber. Usually the fiber parks its messages before the end of the pause. It is not
// shorter because the cycles of many messages would otherwise leave no time for other messages while no fiber can start.
const endWaitsPause = 15 * time.Second

// endedWaits is the checkpoint of a fiber that ends waits.
type endedWaits struct {
	Question string `json:"question"` // its ID
	Waits    int    `json:"waits"`    // that have ended
}

const endWaitsKind agent.FiberKind[endedWaits] = "inbox.endwaits"

// endWaitsFiber returns the kind of the fibers that end waits.
func endWaitsFiber[O any]() agent.Entry[O] {
	return agent.OnFiber(endWaitsKind, func(o *O, ctx context.Context, f *agent.Fiber[endedWaits]) error {
		return endAllWaits(ctx, any(o).(Ref), f)
	}, &agent.KindOptions{KeepCompleted: time.Minute, KeepFailed: time.Minute, Quiet: true})
}

// end ends a question, and up to most waits of its messages in the same batch. It returns their number.
func (q *questionRow) end(ctx context.Context, of Ref, how BudgetAction, d *BudgetDecision, most int) (n int, err error) {
	err = dohost.Transaction(ctx, func(ctx context.Context) (err error) {
		if _, err := questions.Delete(ctx, of.Storage(), questions.Key(*q)); err != nil {
			return err
		}
		if err := q.log(ctx, of.Storage(), how, d); err != nil {
			return err
		}
		left, ended := false, *q
		ended.Ended = how
		if n, left, err = ended.endWaits(ctx, of, most); err != nil || !left {
			return err
		}
		return ended.endWaitsLater(ctx, of)
	})
	if err == nil {
		q.report(ctx, of, how, d)
	}
	return n, err
}

// endWaits ends waits of messages of an ended question, by whole calls, until there are most. left reports that others wait.
func (q *questionRow) endWaits(ctx context.Context, of Ref, most int) (n int, left bool, err error) {
	var keys, calls []string
	for row, err := range waits.All(ctx, of.Storage(), q.waits()) {
		if err != nil {
			return 0, true, err
		}
		w := row.Value
		if next := len(calls) == 0 || calls[len(calls)-1] != w.Call; next && len(keys) >= most {
			left = true
			break
		} else if next {
			calls = append(calls, w.Call)
		}
		keys = append(keys, w.Key)
		if _, err := waits.Delete(ctx, of.Storage(), row.Key); err != nil {
			return 0, true, err
		}
	}
	if q.Ended == BudgetDenied {
		_, err := of.Rows().Park(ctx, q.Collection, keys, q.refused())
		return len(keys), left, err
	}
	return len(keys), left, of.Rows().Wake(ctx, calls...)
}

// refused returns the reason for the messages that a refusal parks.
func (q *questionRow) refused() error {
	over := &chat.BudgetError{Scope: q.Scope, Name: q.Name, Measure: q.Measure, Spent: q.Spent, Limit: q.Limit}
	return fmt.Errorf("inbox: the grant was refused: %w", over)
}

// endWaitsLater stores an ended question, and starts its fiber unless it is open.
func (q *questionRow) endWaitsLater(ctx context.Context, of Ref) error {
	if q.Fiber != "" {
		f, ok, err := of.Fibers().Get(ctx, q.Fiber)
		if err != nil || ok && (f.Status == agent.FiberPending || f.Status == agent.FiberRunning) {
			return err
		}
	}
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		started, err := agent.StartFiber(ctx, of, endWaitsKind, endedWaits{Question: q.ID}, nil)
		if err != nil && !errors.Is(err, dohost.ErrOverloaded) { // then a cycle starts it
			return err
		}
		if err == nil {
			q.Fiber = started.ID
		}
		return questions.Put(ctx, of.Storage(), *q)
	})
}

// endAllWaits is the method of the fiber.
func endAllWaits(ctx context.Context, of Ref, f *agent.Fiber[endedWaits]) error {
	for at := f.Checkpoint(); ; {
		left := false
		err := dohost.Transaction(ctx, func(ctx context.Context) error {
			q, ok, err := questionOf(ctx, of.Storage(), at.Question)
			if err != nil || !ok { // its last message has left the inbox
				return err
			}
			var n int
			if n, left, err = q.endWaits(ctx, of, waitsPerBatch); err != nil {
				return err
			}
			if !left {
				_, err := questions.Delete(ctx, of.Storage(), questions.Key(q))
				return err
			}
			at.Waits += n
			return f.SetCheckpoint(ctx, at) // progress, so no interruption counts twice
		})
		if err != nil || !left {
			return err
		}
		if err := dohost.AwaitDurable(ctx); err != nil {
			return err
		}
	}
}

// reviewQuestions looks at the questions of an agent when a cycle begins. If the budget allows a call of the model, the open ones end. If the messages of
// the cycle wait for a refused one, and its fiber still has to end their waits, the error is an agent.PostponeError.
func (a *Agent) reviewQuestions(ctx context.Context, of Ref, messages *dohost.Collection[Message], pending []dohost.Row[Message]) error {
	key := questionRow{Collection: messages.Name, Agent: a.Name}
	rows, err := questions.List(ctx, of.Storage(), &dohost.Query[questionRow]{Prefix: key.agentKey()})
	if err != nil || len(rows) == 0 {
		return err
	}
	over, err := a.run().Exhausted(ctx, of)
	if err != nil {
		return err
	}
	for _, row := range rows {
		q := row.Value
		switch {
		case q.Ended != "":
			err = q.endWaitsLater(ctx, of)
		case over == nil:
			_, err = q.end(ctx, of, BudgetWithdrawn, nil, waitsPerBatch)
		}
		if err != nil && !errors.Is(err, dohost.ErrNoSpace) {
			return err
		}
		if q.Ended != BudgetDenied {
			continue
		}
		if waits, err := q.hasWait(ctx, of.Storage(), pending); err != nil {
			return err
		} else if waits {
			return &agent.PostponeError{After: endWaitsPause, Err: q.refused()}
		}
	}
	return nil
}

// hasWait reports whether one of the messages of a cycle waits for a question.
func (q *questionRow) hasWait(ctx context.Context, s *dohost.Storage, pending []dohost.Row[Message]) (bool, error) {
	for _, row := range pending {
		w, ok, err := waits.Get(ctx, s, waits.Key(waitRow{Collection: q.Collection, Agent: q.Agent, Key: row.Key}))
		if err != nil || ok && w.Value.Question == q.ID {
			return err == nil, err
		}
	}
	return false, nil
}
