package chat

import (
	"context"
	"errors"
	"fmt"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat/internal/rawjson"
)

// CountSteps passes f the steps taken by code that handles frames, until the test ends.
func CountSteps(t interface{ Cleanup(func()) }, f func(n int)) {
	rawjson.OnStep = f
	t.Cleanup(func() { rawjson.OnStep = nil })
}

// Idle returns an error if rows remain that should be gone when everything has ended.
func (k *conversation) Idle(ctx context.Context) error {
	open, err := replies.Count(ctx, k.store(), &dohost.Query[replyRow]{Index: "open"})
	if err != nil {
		return err
	}
	logged, err := chunkRows.Count(ctx, k.store(), nil)
	if err == nil && open+logged > 0 {
		err = fmt.Errorf("%d requests are open, %d chunks are left", open, logged)
	}
	return errors.Join(err, k.checkExtent(ctx))
}

// checkExtent compares the count and the bytes of messages with the rows.
func (k *conversation) checkExtent(ctx context.Context) error {
	x, err := extent(ctx, k.store())
	if err != nil {
		return err
	}
	var n, size uint64
	for row, err := range messages.All(ctx, k.store(), &dohost.Query[messageRow]{}) {
		if err != nil {
			return err
		}
		n++
		size += uint64(len(row.Value.JSON))
	}
	if x.Count != n || x.Bytes != size {
		return fmt.Errorf("%d messages of %d bytes are counted, %d of %d are there", x.Count, x.Bytes, n, size)
	}
	return nil
}

// Begun returns the number of calls of the handler, from the rows.
func (k *conversation) Begun(ctx context.Context) (n int, err error) {
	for row, err := range replies.All(ctx, k.store(), nil) {
		if err != nil {
			return 0, err
		}
		n += row.Value.attempts()
	}
	return n, nil
}

// Rows returns the number of rows of chunks and of messages, including unreachable rows.
func (k *conversation) Rows(ctx context.Context) (chunks, rows int, err error) {
	if chunks, err = chunkRows.Count(ctx, k.store(), nil); err != nil {
		return 0, 0, err
	}
	rows, err = messages.rows.Count(ctx, k.store(), nil)
	return chunks, rows, err
}
