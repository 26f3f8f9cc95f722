package ledger

import (
	"context"
	"log/slog"

	"github.com/dohost/dohost"
)

// maxMarked bounds the bytes of the rows that a wake of an object reads and writes, so that it takes a short time, and the constructor's
// batch has room for the constructor. Clients may leave any number of interrupted operations, if they end their requests between two calls.
const maxMarked = 1 << 20

// markedRow is added for each row to the lengths of its texts.
const markedRow = 1 << 10

// listInterrupted runs when an object wakes, before any other code of the object. At this moment no Do is in progress, so each row
// with a call was interrupted. It reports those that no earlier incarnation has reported, up to maxMarked; the next wake continues after
// these. A row that cannot be read, and a disk without space, prevent no event of the object: the next Do of the operation returns the
// error, and a row that is not marked is reported again when the object wakes the next time.
func listInterrupted(ctx context.Context, st *dohost.State) error {
	var ids []string
	q := &dohost.Query[row]{Index: "unfinished", Prefix: dohost.KeyOf(rankCalling), Limit: maxMarked / markedRow}
	for r, err := range operations.Keys(ctx, st.Storage(), q) {
		if err != nil {
			return err
		}
		ids = append(ids, r.Key)
	}
	marked := 0
	for _, id := range ids {
		r, ok, err := operations.Get(ctx, st.Storage(), id)
		if err != nil || !ok {
			continue
		}
		marked += markedRow + len(r.Value.Position) + len(r.Value.Scope) + len(r.Value.Args) + len(r.Value.Error)
		if marked > maxMarked {
			return nil
		}
		r.Value.reportInterrupted(ctx, st)
		r.Value.Reported = true
		_ = putRow(ctx, st, r.Value) // see above
	}
	return nil
}

// reportInterrupted reports that the end of an incarnation has interrupted the call of a row.
func (r *row) reportInterrupted(ctx context.Context, st *dohost.State) {
	st.Report(ctx, "ledger:interrupted", slog.String("kind", r.Kind), slog.String("operation", string(r.ID)))
}
