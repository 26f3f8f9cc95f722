package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// deadLetterRow is the row of a dead letter.
type deadLetterRow struct {
	Item  item
	Died  time.Time
	Error string
}

const byDied = "died"

var deadLetterRows = dohost.Collection[deadLetterRow]{
	Name:    "dohost.dead",
	Key:     func(d deadLetterRow) string { return d.Item.ID },
	Indexes: []dohost.Index[deadLetterRow]{{Name: byDied, Of: func(d deadLetterRow) dohost.Key { return dohost.KeyOf(d.Died) }}},
}

// addDeadLetter moves an item to the dead letters and returns their number. It deletes an older dead letter with the
// same id.
func (c *core) addDeadLetter(ctx context.Context, it item, now time.Time, why error) (depth int, err error) {
	it.Item = work.Item{}
	if _, err := c.removeDeadLetter(ctx, it.ID, false); err != nil {
		return 0, err
	}
	if err := c.putDeadLetter(ctx, deadLetterRow{it, now, truncatedText(why)}); err != nil {
		return 0, err
	}
	if err := c.deleteItem(ctx, it.ID); err != nil {
		return 0, err
	}
	return deadLetterRows.Count(ctx, c.store(), &dohost.Query[deadLetterRow]{Index: byDied})
}

// removeDeadLetter removes a dead letter, if there is one. With keep, the payload stays.
func (c *core) removeDeadLetter(ctx context.Context, id string, keepPayload bool) (existed bool, err error) {
	row, ok, err := deadLetterRows.Get(ctx, c.store(), id)
	if err != nil || !ok {
		return false, err
	}
	if !keepPayload {
		if err := c.deletePayload(ctx, row.Value.Item.Payload); err != nil {
			return false, err
		}
	}
	return c.deleteDeadLetter(ctx, id)
}

// DeadLetter is a failed item of the queue, or a schedule of [After] or [At] after its run was cut off
// Options.MaxInterruptions times.
type DeadLetter struct {
	ID       string          `json:"id"` // of the item or of the schedule
	Callback string          `json:"callback"`
	Payload  json.RawMessage `json:"payload"`
	Enqueued time.Time       `json:"enqueued"` // or scheduled
	Died     time.Time       `json:"died"`
	Error    string          `json:"error"` // the text of the last error, up to 4 KiB
}

// List returns the agent's dead letters, the oldest first. A limit of zero means all. A dead
// letter is kept until [DeadLetters.Retry], [DeadLetters.Delete], or the failure of another item with the same id.
//
// Errors: [dohost.ErrMisuse] for a negative limit.
func (l DeadLetters) List(ctx context.Context, limit int) ([]DeadLetter, error) {
	c := l.c
	rows, err := deadLetterRows.List(ctx, c.store(), &dohost.Query[deadLetterRow]{Index: byDied, Limit: limit})
	if err != nil {
		return nil, err
	}
	var all []DeadLetter
	for _, row := range rows {
		d, err := c.deadLetter(ctx, row.Value)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// Get returns a dead letter. ok is false if there is none of that id.
func (l DeadLetters) Get(ctx context.Context, id string) (d DeadLetter, ok bool, err error) {
	if id == "" {
		return d, false, nil
	}
	row, ok, err := deadLetterRows.Get(ctx, l.c.store(), id)
	if err != nil || !ok {
		return d, false, err
	}
	d, err = l.c.deadLetter(ctx, row.Value)
	return d, err == nil, err
}

func (c *core) deadLetter(ctx context.Context, r deadLetterRow) (DeadLetter, error) {
	raw, err := c.payload(ctx, r.Item.Payload)
	return DeadLetter{r.Item.ID, r.Item.Callback, raw, r.Item.Enqueued, r.Died, r.Error}, err
}

// Retry appends a dead letter to the queue, also if it was a schedule, and reports whether
// there was one.
//
// Errors: one if there is an item of its id in the queue.
func (l DeadLetters) Retry(ctx context.Context, id string) (existed bool, err error) {
	c := l.c
	if id == "" {
		return false, nil
	}
	err = c.update(ctx, func(ctx context.Context) error {
		row, ok, err := deadLetterRows.Get(ctx, c.store(), id)
		if existed = ok; err != nil || !ok {
			return err
		}
		_, queued, err := queue.Get(ctx, c.store(), id)
		if err != nil {
			return err
		}
		if queued {
			return fmt.Errorf("agent: an item with the id %q is already in the queue", id)
		}
		if _, err := c.removeDeadLetter(ctx, id, true); err != nil {
			return err
		}
		return c.append(ctx, row.Value.Item)
	})
	return existed && err == nil, err
}

// Delete removes a dead letter, and reports whether there was one.
func (l DeadLetters) Delete(ctx context.Context, id string) (existed bool, err error) {
	c := l.c
	if id == "" {
		return false, nil
	}
	err = c.update(ctx, func(ctx context.Context) (err error) {
		existed, err = c.removeDeadLetter(ctx, id, false)
		return err
	})
	return existed && err == nil, err
}
