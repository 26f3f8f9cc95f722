package ledger

import (
	"context"

	"github.com/dohost/dohost"
)

// PartsOf counts the rows with parts of large results.
func PartsOf(ctx context.Context, st *dohost.State) (int, error) {
	return resultParts.Count(ctx, st.Storage(), nil)
}

// DeletePart deletes a part of a result.
func DeletePart(ctx context.Context, st *dohost.State, id ID, number int) error {
	_, err := resultParts.Delete(ctx, st.Storage(), partKey(id, number))
	return err
}
