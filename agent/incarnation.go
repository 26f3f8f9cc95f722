package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dohost/dohost"
)

// incarnation is the part of an incarnation that its components share. It also numbers the runs of all durable items.
type incarnation struct {
	// Fixed before any of its code runs.
	obj   *dohost.State
	class *class
	owner string // names this incarnation in the rows that it works on
	self  any    // the user's struct; set when its constructor has returned

	// Owned by the holder of the turn.
	runs     uint64    // the number of the last run of a fiber, a schedule, an item or rows
	notUntil time.Time // the end of a pause after the task limit was reached
}

func (in *incarnation) store() *dohost.Storage { return in.obj.Storage() }

// path returns the agents from the root to this one, each by its own class and name.
func (in *incarnation) path() []dohost.ID { return pathOf(in.obj.ID()) }

func (in *incarnation) name() string {
	path := in.path()
	return path[len(path)-1].Name
}

// report reports an event, with its error if it has one.
func (in *incarnation) report(ctx context.Context, event string, err error, attrs ...slog.Attr) {
	if err != nil {
		attrs = append(attrs, slog.Any("err", err))
	}
	in.obj.Report(ctx, event, attrs...)
}

// reportError reports a hook's error, since no caller waits for it.
func (in *incarnation) reportError(ctx context.Context, hook string, err error) {
	in.report(ctx, "agent:error", err, slog.String("hook", hook))
}

// errorText returns the text of an error for a client.
func (in *incarnation) errorText(op string, err error) string {
	if errors.Is(err, errReadonly) {
		return readonlyText
	}
	return in.obj.ErrorText(op, err)
}

// startTask starts a task. If the task limit is reached, startTask returns false, and no row is started for
// overloadPause.
func (in *incarnation) startTask(ctx context.Context, name string, now time.Time, task func(context.Context) error) (bool, error) {
	err := in.obj.Go(ctx, name, task)
	if errors.Is(err, dohost.ErrOverloaded) {
		in.notUntil = now.Add(overloadPause)
		return false, nil
	}
	return err == nil, err
}

// earliestStart returns the time to start due rows: now, or the end of a pause.
func (in *incarnation) earliestStart(now time.Time) time.Time {
	if in.notUntil.After(now) {
		return in.notUntil
	}
	return now
}
