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
func (js *jobs) addDeadLetter(ctx context.Context, it item, now time.Time, cause error) (depth int, err error) {
	it.Item = work.Item{}
	if _, err := js.removeDeadLetter(ctx, it.ID); err != nil {
		return 0, err
	}
	if err := put(ctx, js.rows, &deadLetterRows, &deadLetterRow{it, now, truncatedText(cause)}); err != nil {
		return 0, err
	}
	if _, err := remove(ctx, js.rows, &queue, it.ID); err != nil {
		return 0, err
	}
	return deadLetterRows.Count(ctx, js.store(), &dohost.Query[deadLetterRow]{Index: byDied})
}

// removeDeadLetter removes a dead letter and its payload, and reports whether there was one.
func (js *jobs) removeDeadLetter(ctx context.Context, id string) (existed bool, err error) {
	row, ok, err := get(ctx, js.rows, &deadLetterRows, id)
	if err != nil || !ok {
		return false, err
	}
	if _, err := remove(ctx, js.rows, &payloads, row.Item.Payload); err != nil {
		return false, err
	}
	return remove(ctx, js.rows, &deadLetterRows, id)
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
	return list(ctx, l.jobs.rows, &deadLetterRows, &dohost.Query[deadLetterRow]{Index: byDied, Limit: limit}, l.jobs.deadLetter)
}

// Get returns a dead letter. ok is false if there is none with that id.
func (l DeadLetters) Get(ctx context.Context, id string) (d DeadLetter, ok bool, err error) {
	row, ok, err := get(ctx, l.jobs.rows, &deadLetterRows, id)
	if err != nil || !ok {
		return d, false, err
	}
	d, err = l.jobs.deadLetter(ctx, row)
	return d, err == nil, err
}

func (js *jobs) deadLetter(ctx context.Context, r deadLetterRow) (DeadLetter, error) {
	raw, err := js.payload(ctx, r.Item.Payload)
	return DeadLetter{r.Item.ID, r.Item.Callback, raw, r.Item.Enqueued, r.Died, r.Error}, err
}

// Retry appends a dead letter to the queue, even if it was a schedule, and reports whether there
// was one.
//
// Errors: an error if the queue has an item with the same id.
func (l DeadLetters) Retry(ctx context.Context, id string) (existed bool, err error) {
	js := l.jobs
	err = js.rows.transaction(ctx, func(ctx context.Context) error {
		row, ok, err := get(ctx, js.rows, &deadLetterRows, id)
		if existed = ok; err != nil || !ok {
			return err
		}
		_, queued, err := get(ctx, js.rows, &queue, id)
		if err != nil {
			return err
		}
		if queued {
			return fmt.Errorf("agent: an item with the id %q is already in the queue", id)
		}
		if _, err := remove(ctx, js.rows, &deadLetterRows, id); err != nil {
			return err
		}
		return js.append(ctx, row.Item)
	})
	return existed && err == nil, err
}

// Delete removes a dead letter, and reports whether there was one.
func (l DeadLetters) Delete(ctx context.Context, id string) (existed bool, err error) {
	js := l.jobs
	err = js.rows.transaction(ctx, func(ctx context.Context) (err error) {
		existed, err = js.removeDeadLetter(ctx, id)
		return err
	})
	return existed && err == nil, err
}
