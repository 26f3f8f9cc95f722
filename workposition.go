package dohost

import (
	"context"
	"fmt"

	"github.com/dohost/dohost/alarm"
)

// WorkPosition is the place where durable work continues after an interruption, such as a fiber and the number of its
// checkpoints. The host puts it into the context of an alarm's handler, and packages agent and chat into the contexts of their
// durable work. Package ledger makes the position part of the identity of operations: equal operations of one run have
// different identities, and a repeated run gets the identities of the interrupted run.
//
// A position counts the equal steps of one run of the work. Each run needs its own WorkPosition, which starts counting at
// zero. The holder of the turn owns it.
type WorkPosition struct {
	name   string
	number func(context.Context) (uint64, error)

	at     uint64            // the number that passed is about
	passed map[string]uint64 // the steps that have been passed since then
}

// NewWorkPosition returns the position of one run of the work with a name. The name must be the same in each run, and no other work
// of the object may have it. number returns the number of the place where the work would continue if it were interrupted now; that
// number must be stored, and must change only when the place changes. Next calls number. A nil number means that the work may
// continue anywhere after an interruption: then equal steps are one step, with the number 0.
//
// With an empty name, operations at the position belong to the object.
func NewWorkPosition(name string, number func(context.Context) (uint64, error)) *WorkPosition {
	return &WorkPosition{name: name, number: number}
}

type positionKey struct{}

// Context returns a context for the code of the work, with p instead of the present position.
func (p *WorkPosition) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, positionKey{}, p)
}

// WorkPositionOf returns the position of the code that runs with ctx; nil if it has none. Tasks of [State.Go] and methods that other
// objects call begin without a position.
func WorkPositionOf(ctx context.Context) *WorkPosition {
	p, _ := ctx.Value(positionKey{}).(*WorkPosition)
	return p
}

// Name returns the name of the work; empty if p is no position.
func (p *WorkPosition) Name() string {
	if p == nil {
		return ""
	}
	return p.name
}

// Next returns the number of the place where the work continues, and the ordinal of the next step among the equal steps that
// the run has passed since that place. Until the step is passed, the next equal step has the same ordinal: a failed step is
// repeated, not followed by another step. ctx must hold the turn.
//
// Errors: the errors of the number function.
func (p *WorkPosition) Next(ctx context.Context, step string) (number, ordinal uint64, err error) {
	if p.number == nil {
		return 0, 0, nil
	}
	if number, err = p.number(ctx); err == nil && number == p.at {
		ordinal = p.passed[step]
	}
	return number, ordinal, err
}

// Pass records that a step has succeeded. number and ordinal are the values that Next returned for the step. The caller must hold
// the turn.
func (p *WorkPosition) Pass(step string, number, ordinal uint64) {
	if p.number == nil {
		return
	}
	if p.passed == nil || p.at != number {
		p.at, p.passed = number, map[string]uint64{}
	}
	p.passed[step] = max(p.passed[step], ordinal+1)
}

// alarmPosition returns the position of a run of an alarm's handler, which is the same in each run of the alarm.
func alarmPosition(info alarm.Info) *WorkPosition {
	of := alarm.SettingOf(info)
	return NewWorkPosition(fmt.Sprintf("alarm/%d", of.Generation), func(context.Context) (uint64, error) { return uint64(of.DueMS), nil })
}
