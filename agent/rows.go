package agent

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
)

// This file is the only writer of the rows of durable work: fibers, schedules, the queue, dead letters and payloads. Every
// write is part of an update, which sets the alarm in the same batch. So no row is ever without its alarm, and no
// caller can forget it.

// update runs change in a Transaction, and then sets the alarm for the rows. Updates nest: the outermost one sets the
// alarm.
func (c *core) update(ctx context.Context, change func(context.Context) error) error {
	return c.updateAs(ctx, false, change)
}

// updateAs is update. For sure see arm.
func (c *core) updateAs(ctx context.Context, sure bool, change func(context.Context) error) error {
	if c.updating {
		return dohost.Transaction(ctx, change)
	}
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		c.updating = true
		defer func() { c.updating = false }()
		if err := change(ctx); err != nil {
			return err
		}
		return c.arm(ctx, sure)
	})
}

// write makes one write as an update, or as a part of the one that is running.
func (c *core) write(ctx context.Context, do func(context.Context) error) error {
	if c.updating {
		return do(ctx)
	}
	return c.update(ctx, do)
}

// put writes a row.
func put[T any](ctx context.Context, c *core, rows *dohost.Collection[T], row T) error {
	return c.write(ctx, func(ctx context.Context) error { return rows.Put(ctx, c.store(), row) })
}

// insert writes a new row.
func insert[T any](ctx context.Context, c *core, rows *dohost.Collection[T], row T) error {
	return c.write(ctx, func(ctx context.Context) error { return rows.Insert(ctx, c.store(), row) })
}

// remove deletes a row.
func remove[T any](ctx context.Context, c *core, rows *dohost.Collection[T], key string) (existed bool, err error) {
	err = c.write(ctx, func(ctx context.Context) error {
		existed, err = rows.Delete(ctx, c.store(), key)
		return err
	})
	return existed && err == nil, err
}

// putFiber writes a fiber's row.
func (c *core) putFiber(ctx context.Context, row fiberRow) error {
	c.fibers.none = false
	return put(ctx, c, &fiberRows, row)
}

// insertFiber writes the row of a new fiber.
func (c *core) insertFiber(ctx context.Context, row fiberRow) error {
	c.fibers.none = false
	return insert(ctx, c, &fiberRows, row)
}

// updateFiber changes a fiber's row.
func (c *core) updateFiber(ctx context.Context, id string, change func(*fiberRow) error) (row fiberRow, err error) {
	err = c.write(ctx, func(ctx context.Context) error {
		written, err := fiberRows.Update(ctx, c.store(), id, change)
		row = written.Value
		return err
	})
	return row, err
}

// errMoved is the error of a change that needs the alarm.
var errMoved = errors.New("agent: the fiber's time has changed without its alarm")

// updateRunningFiber is updateFiber for a change after which the fiber needs the same alarm, such as a new checkpoint.
func (c *core) updateRunningFiber(ctx context.Context, id string, change func(*fiberRow) error) error {
	_, err := fiberRows.Update(ctx, c.store(), id, func(r *fiberRow) error {
		before := r.due()
		if err := change(r); err != nil {
			return err
		}
		if r.due() != before {
			return errMoved
		}
		return nil
	})
	return err
}

// deleteFiber deletes a fiber's row.
func (c *core) deleteFiber(ctx context.Context, id string) (existed bool, err error) {
	return remove(ctx, c, &fiberRows, id)
}

// putPayload writes a payload.
func (c *core) putPayload(ctx context.Context, key string, raw json.RawMessage) error {
	return put(ctx, c, &payloads, payloadRow{key, raw})
}

// newPayload writes a payload, and returns its key.
func (c *core) newPayload(ctx context.Context, raw json.RawMessage) (key string, err error) {
	key = ulid.Make().String()
	return key, c.putPayload(ctx, key, raw)
}

// deletePayload deletes a payload.
func (c *core) deletePayload(ctx context.Context, key string) error {
	_, err := remove(ctx, c, &payloads, key)
	return err
}

// putSchedule writes a schedule's row.
func (c *core) putSchedule(ctx context.Context, j scheduleRow) error {
	return put(ctx, c, &scheduleRows, j)
}

// insertSchedule writes a new schedule.
func (c *core) insertSchedule(ctx context.Context, j scheduleRow) error {
	c.jobs.none = false
	return insert(ctx, c, &scheduleRows, j)
}

// deleteSchedule deletes a schedule's row.
func (c *core) deleteSchedule(ctx context.Context, id string) error {
	_, err := remove(ctx, c, &scheduleRows, id)
	return err
}

// putItem writes the row of a queue item.
func (c *core) putItem(ctx context.Context, it item) error { return put(ctx, c, &queue, it) }

// insertItem writes a new queue item.
func (c *core) insertItem(ctx context.Context, it item) error {
	c.jobs.none = false
	return insert(ctx, c, &queue, it)
}

// deleteItem deletes the row of a queue item.
func (c *core) deleteItem(ctx context.Context, id string) error {
	_, err := remove(ctx, c, &queue, id)
	return err
}

// putDeadLetter writes a dead letter.
func (c *core) putDeadLetter(ctx context.Context, d deadLetterRow) error {
	return put(ctx, c, &deadLetterRows, d)
}

// deleteDeadLetter deletes a dead letter.
func (c *core) deleteDeadLetter(ctx context.Context, id string) (existed bool, err error) {
	return remove(ctx, c, &deadLetterRows, id)
}
