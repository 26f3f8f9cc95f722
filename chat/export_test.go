package chat

import (
	"context"
	"fmt"

	"github.com/dohost/dohost"
)

// Idle says what is left that should not be when everything has ended.
func (k *conversation) Idle(ctx context.Context) error {
	open, err := replies.Count(ctx, k.store(), &dohost.Query[replyRow]{Index: "open"})
	if err != nil {
		return err
	}
	logged, err := chunkRows.Count(ctx, k.store(), nil)
	if err == nil && open+logged > 0 {
		err = fmt.Errorf("%d requests are open, %d chunks are left", open, logged)
	}
	return err
}

// Begun is how often the handler was called, as the rows say.
func (k *conversation) Begun(ctx context.Context) (n int, err error) {
	for row, err := range replies.All(ctx, k.store(), nil) {
		if err != nil {
			return 0, err
		}
		n += row.Value.Runs.Begun
	}
	return n, nil
}
