package inbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/ledger"
)

// runner runs the cycles of one call of agent.OnRowBatch.
type runner[O, Row, Response any] struct {
	in    *Inbox[O, Row, Response]
	o     *O
	store *dohost.Storage
	waits func(Row) bool // reports whether a row is in the index
}

// run runs a cycle for each group of rows. The failure of a cycle does not affect the others: their rows leave the index, and
// the call is repeated with the rest.
func (r *runner[O, Row, Response]) run(ctx context.Context, rows []dohost.Row[Row]) error {
	var failed []error
	for _, g := range r.groups(rows) {
		err := r.cycles(ctx, g)
		if errors.Is(err, dohost.ErrFenced) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// group has the rows of a cycle.
type group[Row any] struct {
	request string
	rows    []dohost.Row[Row]
}

// groups returns the rows without a request id as one group, and those of each request id as another, in the order of their first
// rows.
func (r *runner[O, Row, Response]) groups(rows []dohost.Row[Row]) (groups []*group[Row]) {
	byRequest := map[string]*group[Row]{}
	for _, row := range rows {
		request := r.requestOf(row.Value)
		g := byRequest[request]
		if g == nil {
			g = &group[Row]{request: request}
			byRequest[request], groups = g, append(groups, g)
		}
		g.rows = append(g.rows, row)
	}
	return groups
}

func (r *runner[O, Row, Response]) requestOf(row Row) string {
	if r.in.Request == nil {
		return ""
	}
	return r.in.Request(row)
}

// scope returns the ledger scope of the cycles of a group. It separates the operations of the groups of one call.
func (g *group[Row]) scope() string {
	if g.request == "" {
		return "inbox"
	}
	sum := sha256.Sum256([]byte(g.request))
	return "inbox/" + hex.EncodeToString(sum[:16])
}

// cycles runs the cycle of a group, again and again while other code changes its rows.
func (r *runner[O, Row, Response]) cycles(ctx context.Context, g *group[Row]) error {
	ctx = ledger.Scope(ctx, g.scope())
	for {
		current, err := r.cycle(ctx, g)
		if err != nil && ctx.Err() == nil && r.in.OnError != nil {
			r.in.OnError(r.o, ctx, err, g.rows)
		}
		if err != nil || len(current) == 0 {
			return err
		}
		g.rows = current
	}
}

// cycle runs one cycle. If other code has changed its rows, it returns those that still wait.
func (r *runner[O, Row, Response]) cycle(ctx context.Context, g *group[Row]) (current []dohost.Row[Row], err error) {
	c := &Cycle[Row]{Pending: g.rows, Request: g.request}
	if c.Messages, err = r.in.Build(r.o, ctx, g.rows); err != nil {
		return nil, fmt.Errorf("inbox: build: %w", err)
	}
	var response Response
	if response, err = r.in.Generate(r.o, ctx, c); err != nil {
		return nil, fmt.Errorf("inbox: generate: %w", err)
	}
	changed := false
	err = dohost.Transaction(ctx, func(ctx context.Context) (err error) {
		if current, changed, err = r.reread(ctx, g); err != nil || changed {
			return err
		}
		if err := r.in.Respond(r.o, ctx, response, g.rows); err != nil {
			return err
		}
		return r.checkLeft(ctx, g)
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("inbox: respond: %w", err)
	case changed:
		return current, nil
	}
	return nil, nil
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
// group.
func (r *runner[O, Row, Response]) reread(ctx context.Context, g *group[Row]) (current []dohost.Row[Row], changed bool, err error) {
	for _, row := range g.rows {
		now, ok, err := r.in.Rows.Get(ctx, r.store, row.Key)
		if err != nil {
			return nil, false, err
		}
		waits := ok && r.waits(now.Value) && r.requestOf(now.Value) == g.request
		if waits {
			current = append(current, now)
		}
		changed = changed || !waits || now.Version != row.Version
	}
	return current, changed, nil
}
