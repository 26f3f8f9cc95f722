package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// item is a row of the queue.
type item struct {
	ID       string
	Callback string
	Payload  string // the key of its payload
	Place    uint64 // in the queue
	Enqueued time.Time
	// Scheduled is the due time of a dead letter that was a schedule, in ns since 1970. Zero means that it was none.
	Scheduled int64 `msgpack:",omitempty"`
	Retry     storedRetry
	work.Item
}

const byPlace = "place"

var queue = dohost.Collection[item]{
	Name:    "dohost.queue",
	Key:     func(it item) string { return it.ID },
	Indexes: []dohost.Index[item]{{Name: byPlace, Of: func(it item) dohost.Key { return dohost.KeyOf(it.Place) }}},
}

// QueueOptions tunes [Enqueue]. Nil means the defaults.
type QueueOptions struct {
	// ID is the item's id, 1 to 256 bytes. If the queue has an item with that id, the new item takes its place.
	// If the old item is running, its outcome is ignored, and the new item runs after it. Empty means a
	// generated id.
	ID string
	// Retry bounds the attempts of a run: its MaxAttempts and its MaxElapsed begin again if the end of an incarnation
	// interrupts the run. Every error is retried, until the end of the incarnation. ShouldRetry must be nil, since a
	// function cannot be stored. The later items wait until the last attempt.
	Retry dohost.RetryPolicy
}

// Enqueue makes the agent run a callback as soon as possible, as a separate event, and returns the item's id.
// The items of an agent run one at a time, in the order of their places in the queue, and are as durable as the
// agent's storage: if the end of an incarnation interrupts an item, it starts again, ahead of the others. A
// failed item that is not retried does not block the next; it becomes one of the [DeadLetters.List].
//
// Errors name the invalid argument: an unknown callback, or one with another payload type; an id; a policy; a
// payload that is not JSON, or a [*dohost.LimitError] for one of more than nearly 2 MiB. Then nothing is
// enqueued.
func Enqueue[P any](ctx context.Context, a Ref, cb Callback[P], payload P, o *QueueOptions) (id string, err error) {
	js := &a.base().jobs
	raw, err := encodePayload(js.class, cb, payload)
	if err != nil {
		return "", err
	}
	if o == nil {
		o = &QueueOptions{}
	}
	return js.enqueue(ctx, string(cb), raw, *o)
}

func (js *jobs) enqueue(ctx context.Context, name string, raw json.RawMessage, o QueueOptions) (id string, err error) {
	if len(o.ID) > maxName {
		return "", fmt.Errorf("agent: QueueOptions.ID has %d bytes: want at most %d", len(o.ID), maxName)
	}
	retry, err := storedPolicy(o.Retry)
	if err != nil {
		return "", err
	}
	if o.ID == "" {
		o.ID = ulid.Make().String()
	}
	it := item{ID: o.ID, Callback: name, Payload: ulid.Make().String(), Enqueued: time.Now(), Retry: retry}
	err = js.rows.transaction(ctx, func(ctx context.Context) error {
		if err := js.putPayload(ctx, it.Payload, raw); err != nil {
			return err
		}
		old, queued, err := get(ctx, js.rows, &queue, it.ID)
		if err != nil {
			return err
		}
		if !queued {
			return js.append(ctx, it)
		}
		if _, err := remove(ctx, js.rows, &payloads, old.Payload); err != nil {
			return err
		}
		it.Place = old.Place
		if it.Item, _, err = js.step(it.ID, old.Item, work.Event{Kind: work.Replace}, js.queuePolicy(), it.Enqueued); err != nil {
			return err
		}
		if err := put(ctx, js.rows, &queue, &it); err != nil {
			return err
		}
		return js.startQueue(ctx, it.Enqueued)
	})
	if err != nil {
		return "", err
	}
	return it.ID, nil
}

// append adds a new item at the end of the queue.
func (js *jobs) append(ctx context.Context, it item) error {
	last, err := js.lastPlace(ctx)
	if err != nil {
		return err
	}
	it.Place = last + 1
	if err := insert(ctx, js.rows, &queue, &it); err != nil {
		return err
	}
	return js.startQueue(ctx, time.Now())
}

// lastPlace returns the place of the last item, or zero.
func (js *jobs) lastPlace(ctx context.Context) (uint64, error) {
	it, _, err := first(ctx, js.rows, &queue, dohost.Query[item]{Index: byPlace, Reverse: true})
	return it.Place, err
}

// head returns the first item. Only the head ever runs.
func (js *jobs) head(ctx context.Context) (item, bool, error) {
	return first(ctx, js.rows, &queue, dohost.Query[item]{Index: byPlace})
}

// QueueInfo is an item of the queue.
type QueueInfo struct {
	ID       string          `json:"id"`
	Callback string          `json:"callback"`
	Payload  json.RawMessage `json:"payload"`
	Enqueued time.Time       `json:"enqueued"` // the last time, if its id was enqueued more than once
	// Running is set if it was started, in this incarnation or in one that has ended.
	Running bool `json:"running"`
}

// QueueQuery selects the queue items that match all its fields. Nil selects all.
type QueueQuery struct {
	Callback string
	Limit    int // the maximum number; zero means no limit
}

// List returns the queue items in the order of their runs, including the running one.
//
// Errors: [dohost.ErrMisuse] for a negative Limit.
func (qu Queue) List(ctx context.Context, q *QueueQuery) ([]QueueInfo, error) {
	if q == nil {
		q = &QueueQuery{}
	}
	query := &dohost.Query[item]{Index: byPlace, Limit: q.Limit, Where: func(it item) bool {
		return it.State != work.Cancelling && (q.Callback == "" || it.Callback == q.Callback)
	}}
	return list(ctx, qu.jobs.rows, &queue, query, qu.jobs.queueInfo)
}

// Get returns an item of the queue. ok is false if there is none of that id, or if it was cancelled.
func (qu Queue) Get(ctx context.Context, id string) (info QueueInfo, ok bool, err error) {
	it, ok, err := get(ctx, qu.jobs.rows, &queue, id)
	if err != nil || !ok || it.State == work.Cancelling {
		return info, false, err
	}
	info, err = qu.jobs.queueInfo(ctx, it)
	return info, err == nil, err
}

func (js *jobs) queueInfo(ctx context.Context, it item) (QueueInfo, error) {
	raw, err := js.payload(ctx, it.Payload)
	return QueueInfo{it.ID, it.Callback, raw, it.Enqueued, it.Owner != ""}, err
}

// Cancel removes an item from the queue, and reports whether there was one. If it is running, its run
// continues; it is not retried and does not become a dead letter.
func (qu Queue) Cancel(ctx context.Context, id string) (existed bool, err error) {
	js := qu.jobs
	err = js.rows.transaction(ctx, func(ctx context.Context) error {
		it, ok, err := get(ctx, js.rows, &queue, id)
		if err != nil || !ok {
			return err
		}
		now := time.Now()
		next, eff, err := js.step(it.ID, it.Item, work.Event{Kind: work.Cancel}, js.queuePolicy(), now)
		if existed = eff != work.Refused; err != nil || !existed {
			return err
		}
		if eff == work.None {
			it.Item = next
			return put(ctx, js.rows, &queue, &it)
		}
		if err := js.removeItem(ctx, it); err != nil {
			return err
		}
		return js.startQueue(ctx, now)
	})
	return existed && err == nil, err
}

// removeItem deletes an item and its payload.
func (js *jobs) removeItem(ctx context.Context, it item) error {
	if _, err := remove(ctx, js.rows, &payloads, it.Payload); err != nil {
		return err
	}
	_, err := remove(ctx, js.rows, &queue, it.ID)
	return err
}
