package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

type rowWriterAgent struct{ *Agent[struct{}] }

// TestRowsWithoutTheirAlarmPanic writes a row in a batch that does not set the alarm. Builds that make the checks panic when those batches end, or
// when the next ones begin.
func TestRowsWithoutTheirAlarmPanic(t *testing.T) {
	errBatch := errors.New("the batch has failed")
	write := func(ctx context.Context, rs *rows) error { return put(ctx, rs, &payloads, &payloadRow{Key: "a"}) }
	later := func(ctx context.Context, rs *rows) context.Context { return pause{ctx, rs}.armLater(ctx) }
	for name, c := range map[string]struct {
		forgets bool
		do      func(context.Context, *rows) error
	}{
		"batch": {do: write},
		"batch after a failed one": {do: func(ctx context.Context, rs *rows) error {
			err := rs.batch(ctx, false, func(ctx context.Context) error { return errors.Join(write(ctx, rs), errBatch) })
			if !errors.Is(err, errBatch) {
				return fmt.Errorf("%v, want %v", err, errBatch)
			}
			return write(ctx, rs)
		}},
		"batch after a row that keeps the alarm": {do: func(ctx context.Context, rs *rows) error {
			rs.plan.keepAlives = 1
			kept := write(rs.keepAlarm(ctx), rs)
			_, set, err := rs.obj.GetAlarm(ctx)
			if err == nil && set {
				err = errors.New("a write with keepAlarm has set the alarm")
			}
			return errors.Join(kept, err, write(ctx, rs))
		}},
		"batch after a row without an alarm": {forgets: true, do: func(ctx context.Context, rs *rows) error {
			return errors.Join(write(later(ctx, rs), rs), write(ctx, rs))
		}},
		"batches after a row without an alarm": {forgets: true, do: func(ctx context.Context, rs *rows) error {
			return errors.Join(write(later(ctx, rs), rs), rs.batches(ctx, false, func(context.Context, pause) (bool, error) { return true, nil }))
		}},
		"batches that arm later": {do: func(ctx context.Context, rs *rows) error {
			return rs.batches(ctx, false, func(ctx context.Context, p pause) (bool, error) {
				err := p.between(func(ctx context.Context) error { return write(p.armLater(ctx), rs) })
				return true, errors.Join(err, p.between(func(ctx context.Context) error { return write(ctx, rs) }))
			})
		}},
		"batches that report no change": {forgets: true, do: func(ctx context.Context, rs *rows) error {
			return rs.batches(ctx, false, func(ctx context.Context, p pause) (bool, error) { return false, write(ctx, rs) })
		}},
	} {
		const ns = dohost.Namespace[rowWriterAgent]("rows")
		class := Bind(ns, func(_ context.Context, a *Agent[struct{}]) (*rowWriterAgent, error) { return &rowWriterAgent{a}, nil }, nil)
		h, err := dohost.Open("data", kernel.OnFS(&dohost.Options{}, objectstore.NewMemFS()), class)
		if err != nil {
			t.Fatal(err)
		}
		err = ns.Get(h, "a").Do(t.Context(), func(ctx context.Context, a *rowWriterAgent) (err error) {
			defer func() {
				if panicked := recover() != nil; panicked != (c.forgets && invariants.Enabled) {
					err = errors.Join(err, fmt.Errorf("the check has panicked: %v", panicked))
				}
			}()
			return c.do(ctx, &a.core.rows)
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}
