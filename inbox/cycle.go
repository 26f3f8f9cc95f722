package inbox

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// maxChanges bounds the cycles that begin again, without a delay, because other code has changed their rows. Then the cycle has failed, and
// is repeated with a delay.
const maxChanges = 3

// runner runs the cycles of one call of agent.OnRowBatch.
type runner[O, Row, Response any] struct {
	in      *Inbox[O, Row, Response]
	o       *O
	store   *dohost.Storage
	prefix  dohost.Key       // of the keys of pending rows
	groupOf func(Row) string // the name of its group
}

// waits reports whether a row is pending.
func (r *runner[O, Row, Response]) waits(v Row) bool {
	return r.in.Rows.InIndex(v, r.in.Pending, r.prefix)
}

// run runs the cycle of a group, again while other code changes its rows.
func (r *runner[O, Row, Response]) run(ctx context.Context, rows []dohost.Row[Row]) (err error) {
	g := &group[Row]{name: r.groupOf(rows[0].Value), rows: rows}
	for n := 0; ; n++ {
		var changed bool
		if g.rows, _, err = r.reread(ctx, g); err == nil && len(g.rows) > 0 {
			changed, err = r.cycle(cycleContext(ctx), g)
		}
		if changed && n == maxChanges {
			err = fmt.Errorf("inbox: the rows have changed during each of %d cycles", n+1)
		}
		_, postponed := errors.AsType[*agent.PostponeError](err)
		if err != nil && !postponed && ctx.Err() == nil && r.in.OnError != nil {
			r.in.OnError(r.o, ctx, err, g.rows)
		}
		if err != nil || !changed {
			return err
		}
	}
}

// group has the rows of a cycle.
type group[Row any] struct {
	name string
	rows []dohost.Row[Row]
}

// cycleContext returns the context of a cycle. The position is the call's, but a new value: the ordinals of equal
// operations begin at zero in each cycle, so a cycle that begins again finds the operations of the one before, whether an
// interruption, an error or a change of a row has ended that one.
func cycleContext(ctx context.Context) context.Context {
	return dohost.NewWorkPosition(dohost.WorkPositionOf(ctx).Name(), func(context.Context) (uint64, error) { return 0, nil }).Context(ctx)
}

// cycle runs one cycle. changed reports that it has ended without a response because other code has changed its rows.
func (r *runner[O, Row, Response]) cycle(ctx context.Context, g *group[Row]) (changed bool, err error) {
	ctx = context.WithValue(ctx, cycleKey{}, r.prefix)
	var deadline time.Time
	if r.in.expiry != nil {
		deadline = r.in.expiry.deadline(g.rows)
	}
	var response Response
	expired := isOver(deadline)
	if !expired {
		response, err = r.answer(ctx, g)
		if expired = isOver(deadline) || errors.Is(err, errDeadline); err != nil && !expired {
			return false, err
		}
	}
	err = dohost.Transaction(ctx, func(ctx context.Context) (err error) {
		if _, changed, err = r.reread(ctx, g); err != nil || changed {
			return err
		}
		if expired {
			return r.in.expiry.expire(r.o, ctx, g.rows)
		}
		if err := r.in.Respond(r.o, ctx, response, g.rows); err != nil {
			return err
		}
		return r.checkLeft(ctx, g)
	})
	switch {
	case errors.Is(err, dohost.ErrNoSpace): // no failure of the cycle: it is repeated, with the recorded answers of its model
		return false, &agent.PostponeError{After: fullPause, Err: fmt.Errorf("inbox: respond: %w", err)}
	case err != nil:
		return false, fmt.Errorf("inbox: respond: %w", err)
	}
	return changed, nil
}

// answer returns the response of a cycle.
func (r *runner[O, Row, Response]) answer(ctx context.Context, g *group[Row]) (response Response, err error) {
	c := &Cycle[Row]{Pending: g.rows, Group: g.name}
	if c.Messages, err = r.in.Build(r.o, ctx, g.rows); err != nil {
		return response, fmt.Errorf("inbox: build: %w", err)
	}
	if response, err = r.in.Generate(r.o, ctx, c); err != nil {
		return response, fmt.Errorf("inbox: generate: %w", err)
	}
	return response, nil
}

// checkLeft returns an error for a row of a group that is still in the index.
func (r *runner[O, Row, Response]) checkLeft(ctx context.Context, g *group[Row]) error {
	for _, row := range g.rows {
		now, ok, err := r.in.Rows.Get(ctx, r.store, row.Key)
		switch {
		case err != nil:
			return err
		case ok && r.waits(now.Value):
			return fmt.Errorf("the row %.64q is still in the index %q", row.Key, r.in.Pending)
		}
	}
	return nil
}

// reread returns the rows of a group that still wait, as they are now, and reports whether other code has changed any row of the
// group. Versions do not show that: a row that is deleted and inserted again begins at version 1.
func (r *runner[O, Row, Response]) reread(ctx context.Context, g *group[Row]) (current []dohost.Row[Row], changed bool, err error) {
	for _, row := range g.rows {
		now, ok, err := r.in.Rows.Get(ctx, r.store, row.Key)
		if err != nil {
			return nil, false, err
		}
		waits := ok && r.waits(now.Value) && r.groupOf(now.Value) == g.name
		if waits {
			now.Cursor = row.Cursor
			current = append(current, now)
		}
		changed = changed || !waits || !reflect.DeepEqual(now.Value, row.Value)
	}
	return current, changed, nil
}
