package guard

import (
	"context"
	"log/slog"
)

// Handler returns a slog.Handler that calls h on goroutines of their own: a panic or
// runtime.Goexit in h loses a log record, and ends no goroutine of the caller.
func Handler(h slog.Handler) slog.Handler { return &handler{h} }

type handler struct{ h slog.Handler }

// Enabled reports whether h handles records of the level; not if h fails.
func (g *handler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	if Run(func() { enabled = g.h.Enabled(ctx, level) }) != nil {
		return false
	}
	return enabled
}

// Handle passes the record to h.
func (g *handler) Handle(ctx context.Context, r slog.Record) (err error) {
	if failure := Run(func() { err = g.h.Handle(ctx, r) }); failure != nil {
		return failure
	}
	return err
}

// WithAttrs returns a Handler whose records have the attributes as well.
func (g *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return g.with(func() slog.Handler { return g.h.WithAttrs(attrs) })
}

// WithGroup returns a Handler whose records are in a group.
func (g *handler) WithGroup(name string) slog.Handler {
	return g.with(func() slog.Handler { return g.h.WithGroup(name) })
}

func (g *handler) with(f func() slog.Handler) slog.Handler {
	var next slog.Handler
	if Run(func() { next = f() }) != nil {
		return g
	}
	return &handler{next}
}
