package ledger

import (
	"context"
	"log/slog"

	"github.com/dohost/dohost"
)

// maxMarked bounds the bytes of the rows that a start of an object writes, so that the constructor's batch has room for the constructor.
const maxMarked = 1 << 20

// listInterrupted runs when an object wakes, before any other code of the object. At this moment no Do is in progress, so each row
// with a call was interrupted. It reports those that no earlier incarnation has reported. A row that cannot be read, and a disk
// without space, prevent no event of the object: the next Do of the operation returns the error, and a row that is not marked
// is reported again when the object wakes the next time.
func listInterrupted(ctx context.Context, st *dohost.State) error {
	var ids []string
	for r, err := range operations.Keys(ctx, st.Storage(), &dohost.Query[row]{Index: "unfinished", Prefix: dohost.KeyOf(rankCalling)}) {
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
		r.Value.reportInterrupted(ctx, st)
		if marked += len(r.Value.Args) + len(r.Value.Scope) + len(r.Value.Error) + 1<<10; marked > maxMarked {
			continue
		}
		r.Value.Reported = true
		_ = operations.Put(ctx, st.Storage(), r.Value) // see above
	}
	return nil
}

// reportInterrupted reports that the end of an incarnation has interrupted the call of a row.
func (r *row) reportInterrupted(ctx context.Context, st *dohost.State) {
	st.Report(ctx, "ledger:interrupted", slog.String("kind", r.Kind), slog.String("operation", string(r.ID)))
}
