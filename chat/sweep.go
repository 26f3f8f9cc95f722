package chat

import (
	"context"
	"log/slog"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

const (
	// retainEnded is how long an ended request stays known, after its end or after the program has its result.
	retainEnded = 10 * time.Minute
	// retainUncollected bounds how long a request of the program stays known whose result the program does not collect.
	retainUncollected = 7 * 24 * time.Hour
	// sweepRows bounds the rows of chunks or messages deleted in one batch, which has space for twice as many with the
	// longest keys. A separate fiber sweeps the rest.
	sweepRows = 2000
)

// sweepKind is the fiber kind of sweeps.
const sweepKind agent.FiberKind[struct{}] = "chat.sweep"

// expireEnded deletes requests that are not known any more.
func (k *conversation) expireEnded(ctx context.Context, now time.Time) error {
	old, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{
		Index: "forgotten", End: dohost.KeyOf(now.UnixMilli()), Limit: 100,
		Where: func(r replyRow) bool { return k.asked.deciding[r.ID] == 0 },
	})
	for _, r := range old {
		if err == nil {
			err = k.deleteReply(ctx, r.Key)
		}
	}
	return err
}

// sweeper deletes the rows that a conversation does not reach any more, in batches.
type sweeper struct {
	*shared
	conv  *conversation
	calls *toolCalls
}

// deleteLog deletes the chunks of a reply with the numbers from from to before to.
func (k *sweeper) deleteLog(ctx context.Context, reply, from, to uint64) error {
	of := dohost.KeyOf(reply)
	_, left, err := sweepSome(ctx, k.store(), &chunkRows, dohost.Query[chunkRow]{
		Start: of + dohost.KeyOf(from), End: of + dohost.KeyOf(to),
	})
	if err != nil || !left {
		return err
	}
	return k.sweepLater(ctx)
}

// sweepSome deletes rows that a query selects, as many as one batch allows. left reports whether rows remain; after
// is the cursor for the next call.
func sweepSome[T any](
	ctx context.Context, s *dohost.Storage, of *dohost.Collection[T], q dohost.Query[T],
) (after dohost.Cursor, left bool, err error) {
	after, q.Limit = q.After, sweepRows+1
	n := 0
	for row, err := range of.All(ctx, s, &q) {
		if n++; err != nil || n > sweepRows {
			return after, true, err
		}
		if _, err := of.Delete(ctx, s, row.Key); err != nil {
			return after, true, err
		}
		after = row.Cursor
	}
	return after, false, nil
}

// sweepLater starts a fiber that sweeps, unless there is one.
func (k *sweeper) sweepLater(ctx context.Context) error {
	last, err := k.readNote(ctx, sweepNote)
	if err != nil {
		return err
	}
	f, ok, err := k.base.Fibers().Get(ctx, last.Fiber)
	if err != nil || ok && (f.Status == agent.FiberPending || f.Status == agent.FiberRunning) {
		return err
	}
	s, err := agent.StartFiber(ctx, k.base, sweepKind, struct{}{}, nil)
	if err != nil {
		return err
	}
	return notes.Put(ctx, k.store(), noteRow{Name: sweepNote, Fiber: s.ID})
}

// sweepCursors are the positions of a sweep.
type sweepCursors struct{ chunks, rows, calls dohost.Cursor }

// sweep deletes unreachable rows: chunks before the log of the running reply, messages below the floor, and calls of
// messages that do not exist, some in each batch.
func (k *sweeper) sweep(ctx context.Context, _ *agent.Fiber[struct{}]) error {
	var at sweepCursors
	for {
		left, err := k.sweepOnce(ctx, &at)
		if err == nil && left {
			err = dohost.AwaitDurable(ctx)
		}
		if err != nil && ctx.Err() == nil { // the fiber runs again immediately
			k.object().Report(ctx, "chat:failed", slog.Any("err", err))
			err = dohost.Sleep(ctx, time.Second)
		}
		if err != nil || !left {
			return err
		}
	}
}

func (k *sweeper) sweepOnce(ctx context.Context, at *sweepCursors) (left bool, err error) {
	being, ok, err := k.conv.running(ctx)
	if err != nil {
		return true, err
	}
	old := dohost.Query[chunkRow]{After: at.chunks}
	if ok {
		old.End = dohost.KeyOf(being.Number) + dohost.KeyOf(being.From)
	}
	if at.chunks, left, err = sweepSome(ctx, k.store(), &chunkRows, old); err != nil || left {
		return true, err
	}
	x, err := extent(ctx, k.store())
	if err != nil {
		return true, err
	}
	if x.Floor > 0 {
		if at.rows, left, err = sweepSome(ctx, k.store(), &messages.rows, dohost.Query[messageRow]{
			Index: "place", End: dohost.KeyOf(x.Floor), After: at.rows,
		}); err != nil || left {
			return true, err
		}
	}
	return k.sweepCalls(ctx, being.Message, &at.calls)
}

// sweepCalls deletes the rows of calls whose message does not exist. replying is the message of the running reply, which
// may not be stored.
func (k *sweeper) sweepCalls(ctx context.Context, replying string, at *dohost.Cursor) (left bool, err error) {
	last, exists, n := "", false, 0
	for row, err := range callRows.All(ctx, k.store(), &dohost.Query[callRow]{After: *at, Limit: sweepRows + 1}) {
		if n++; err != nil || n > sweepRows {
			return true, err
		}
		if id := row.Value.Message; n == 1 || id != last {
			last, exists = id, id == replying
			if !exists {
				if _, exists, err = messages.Get(ctx, k.store(), id); err != nil {
					return true, err
				}
			}
		}
		if !exists {
			if err := k.calls.deleteCall(ctx, row.Value); err != nil {
				return true, err
			}
		}
		*at = row.Cursor
	}
	return false, nil
}
