package ledger

import (
	"context"
	"fmt"
	"iter"
	"log/slog"

	"github.com/dohost/dohost"
)

// ResourceOutcomes is the kind of the counts of unknown outcomes among the items of an object that operators see. The ID of an item is
// the name of a kind of operations.
const ResourceOutcomes = "outcomes"

// outcomes are the counts of a kind's unknown outcomes since the object began. They stay when the rows of the operations expire.
type outcomes struct {
	Kind   string
	Policy Policy // of the kind, when a count last changed
	// Unknown counts operations whose outcome became unknown. If an operation fails afterwards and becomes unknown again, it counts again.
	Unknown int64
	// Done and NotDone count the decisions about them: of an operator, of the program, or of Find after the operation was unknown.
	Done, NotDone int64
}

var outcomeCounts = dohost.Collection[outcomes]{Name: "dohost.operations.outcomes", Key: func(o outcomes) string { return o.Kind }}

// counted has the numbers that a change of a row adds to the counts of its kind.
type counted struct{ unknown, done, notDone int64 }

// count adds to the counts of a kind. Call it in the transaction that writes the row of the operation.
func count(ctx context.Context, st *dohost.State, kind string, p Policy, c counted) error {
	if c == (counted{}) {
		return nil
	}
	r, _, err := outcomeCounts.Get(ctx, st.Storage(), kind)
	if err != nil {
		return err
	}
	of := r.Value
	of.Kind, of.Policy = kind, p
	of.Unknown, of.Done, of.NotDone = of.Unknown+c.unknown, of.Done+c.done, of.NotDone+c.notDone
	return outcomeCounts.Put(ctx, st.Storage(), of)
}

// resolved returns the numbers of a decision.
func resolved(done bool) counted {
	if done {
		return counted{done: 1}
	}
	return counted{notDone: 1}
}

// reportUnknown reports an operation whose outcome has become unknown. The host's metrics count these reports, so there is one for each
// operation that outcomes counts.
func reportUnknown(ctx context.Context, st *dohost.State, kind string, id ID, p Policy, err error) {
	st.Report(ctx, "ledger:unknown", slog.String("kind", kind), slog.String("operation", string(id)),
		slog.String("policy", p.String()), slog.Any("err", err))
}

// reportResolved reports a decision about an unknown operation.
func reportResolved(ctx context.Context, st *dohost.State, kind string, id ID, p Policy, done bool) {
	outcome := "not-done"
	if done {
		outcome = "done"
	}
	st.Report(ctx, "ledger:resolved", slog.String("kind", kind), slog.String("operation", string(id)),
		slog.String("policy", p.String()), slog.String("outcome", outcome))
}

// inspectOutcomes lists the counts for operators.
func inspectOutcomes(v *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
	return func(yield func(dohost.Resource, error) bool) {
		for r, err := range outcomeCounts.Scan(v, nil) {
			if err != nil {
				yield(dohost.Resource{}, err)
				return
			}
			if !yield(r.Value.resource(), nil) {
				return
			}
		}
	}
}

// resource describes the counts. A decision that an operation had no effect makes its unknown outcome a false unknown.
func (o *outcomes) resource() dohost.Resource {
	text := fmt.Sprintf("%v, %d unknown so far, none resolved", o.Policy, o.Unknown)
	if all := o.Done + o.NotDone; all > 0 {
		text = fmt.Sprintf("%v, %d unknown so far, %d resolved: %d without an effect (%.0f %% false unknowns)",
			o.Policy, o.Unknown, all, o.NotDone, 100*float64(o.NotDone)/float64(all))
	}
	return dohost.Resource{
		Kind: ResourceOutcomes, ID: o.Kind, Text: text, Fields: map[string]string{"policy": o.Policy.String()},
		Counts: map[string]int64{"unknown": o.Unknown, "done": o.Done, "not_done": o.NotDone},
	}
}
