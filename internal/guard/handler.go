package guard

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// callTimeout is how long a log record, or a method of an error, may take.
const callTimeout = time.Second

var errSlow = errors.New("the log handler has not returned")

// Handler returns a slog.Handler that calls h on goroutines of their own: a panic,
// runtime.Goexit or a hang in h loses log records, and neither ends nor stops a goroutine
// of the caller. While a call of h takes longer than a second, records are dropped.
func Handler(h slog.Handler) slog.Handler { return &handler{h, new(atomic.Int64)} }

type handler struct {
	h     slog.Handler
	stuck *atomic.Int64 // calls that have not returned within the time limit
}

// callUnlessStuck calls f, unless an earlier call has not returned.
func callUnlessStuck[T any](g *handler, f func() T) (v T, err error) {
	if g.stuck.Load() > 0 {
		return v, errSlow
	}
	return resultWithin(g.stuck, f)
}

// Enabled reports whether h handles records of the level; not if h fails.
func (g *handler) Enabled(ctx context.Context, level slog.Level) bool {
	enabled, err := callUnlessStuck(g, func() bool { return g.h.Enabled(ctx, level) })
	return enabled && err == nil
}

// Handle passes the record to h.
func (g *handler) Handle(ctx context.Context, r slog.Record) error {
	handled, err := callUnlessStuck(g, func() error { return g.h.Handle(ctx, r) })
	return errors.Join(handled, err)
}

// WithAttrs returns a Handler that adds the attributes to its records.
func (g *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return g.with(func() slog.Handler { return g.h.WithAttrs(attrs) })
}

// WithGroup returns a Handler that puts its records in a group.
func (g *handler) WithGroup(name string) slog.Handler {
	return g.with(func() slog.Handler { return g.h.WithGroup(name) })
}

func (g *handler) with(f func() slog.Handler) slog.Handler {
	next, err := callUnlessStuck(g, f)
	if err != nil {
		return g
	}
	return &handler{next, g.stuck}
}
