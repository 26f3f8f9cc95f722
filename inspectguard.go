package dohost

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"strings"
)

// listFunc is a function of a class that lists the items of an object.
type listFunc = func(context.Context, *Snapshot) iter.Seq2[Resource, error]

// guardedList returns a function like f, which may be nil. If f or its sequence panics, or f returns nil, the sequence of the guarded
// function yields an error and ends. A panic of the loop over that sequence reaches its caller. function names f in errors, and kinds are
// the kinds of its items, nil if they are unknown.
func guardedList(function string, kinds []string, f listFunc) listFunc {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, v *Snapshot) iter.Seq2[Resource, error] {
		return func(yield func(Resource, error) bool) {
			if more, err := listItems(ctx, v, f, yield); err != nil {
				err = fmt.Errorf("dohost: class %q: %s%s: %w", v.id.Class, function, kindsText(kinds, v.query.Kind), err)
				v.reportPanic(err)
				if more {
					yield(Resource{}, err)
				}
			}
		}
	}
}

// listItems yields the items of f until yield returns false. The error is a *PanicError, or reports that f returned nil. more reports
// that yield may be called again: a sequence may panic after the caller has left the loop.
func listItems(ctx context.Context, v *Snapshot, f listFunc, yield func(Resource, error) bool) (more bool, err error) {
	more = true
	inLoop := false // the caller's code runs
	defer func() {
		if inLoop {
			return
		}
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	items := f(ctx, v)
	if items == nil {
		return more, errors.New("the function returned nil")
	}
	for r, err := range items {
		inLoop = true
		more = yield(r, err) && err == nil
		inLoop = false
		if !more {
			break
		}
	}
	return more, nil
}

// kindsText describes the items that a function was asked for: items of one kind, or of all of its kinds.
func kindsText(kinds []string, only string) string {
	if only != "" {
		kinds = []string{only}
	}
	quoted := make([]string, len(kinds))
	for i, kind := range kinds {
		quoted[i] = fmt.Sprintf("%q", kind)
	}
	switch len(quoted) {
	case 0:
		return ""
	case 1:
		return " for the kind " + quoted[0]
	}
	return " for the kinds " + strings.Join(quoted, ", ")
}

// reportPanic reports the error of a function, if it has panicked.
func (v *Snapshot) reportPanic(err error) {
	if p, ok := errors.AsType[*PanicError](err); ok && v.panicked != nil {
		v.panicked(v.id, err, p.Stack)
	}
}
