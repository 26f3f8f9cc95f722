package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// FiberKind is the name of a method that [StartFiber] starts. T is the type of its checkpoint. It should be a
// constant:
//
//	const research agent.FiberKind[progress] = "research"
type FiberKind[T any] string

// KindOptions tunes the fibers of a kind. A nil *KindOptions, and the zero KindOptions, mean the
// defaults.
type KindOptions struct {
	// MaxRetries bounds the retries of a fiber's method. Two things count: errors that the method returned, and
	// interruptions (ends of its incarnation) since the fiber's checkpoint last changed. So a fiber that makes
	// progress survives any number of restarts, up to 10,000. Zero means 3; negative, no retry.
	MaxRetries int
	// KeepCompleted is the retention period of completed and cancelled fibers. It begins with the end, or with
	// the return of OnFiberEnded. Zero means 24 h; negative, no expiry.
	KeepCompleted time.Duration
	// KeepFailed is the same for failed fibers. Zero means 7 days; negative, no expiry.
	KeepFailed time.Duration
	// Quiet excludes the kind from OnRecovery and OnFiberEnded: interrupted fibers simply resume. It is for
	// packages that build on agents.
	Quiet bool
}

func (o *KindOptions) withDefaults() KindOptions {
	var d KindOptions
	if o != nil {
		d = *o
	}
	d.MaxRetries = cmp.Or(d.MaxRetries, 3)
	d.KeepCompleted = cmp.Or(d.KeepCompleted, 24*time.Hour)
	d.KeepFailed = cmp.Or(d.KeepFailed, 7*24*time.Hour)
	return d
}

// kind is a registered FiberKind.
type kind struct {
	options    KindOptions
	checkpoint reflect.Type
	run        func(self any, ctx context.Context, f *fiberCall, row *fiberRow) (result json.RawMessage, err error)
}

// OnFiber registers the method that fibers of a kind run. The method gets the last checkpoint on its first and
// every later call: starting and resuming are the same code. The names of kinds have 1 to 256 bytes and do not
// begin with "dohost.".
func OnFiber[O, T any](k FiberKind[T], m func(*O, context.Context, *Fiber[T]) error, o *KindOptions) Entry[O] {
	return Entry[O]{bind: func(c *class) {
		_, taken := c.kinds[string(k)]
		switch {
		case k == "" || len(k) > maxName:
			c.mistake("OnFiber of %q: want a name of 1 to %d bytes", k, maxName)
		case strings.HasPrefix(string(k), reservedPrefix):
			c.mistake("OnFiber of %q: names that begin with %q are reserved", k, reservedPrefix)
		case m == nil:
			c.mistake("OnFiber of %q without a method", k)
		case taken:
			c.mistake("a second OnFiber of %q", k)
		}
		c.kinds[string(k)] = kind{o.withDefaults(), reflect.TypeFor[T](),
			func(self any, ctx context.Context, r *fiberCall, row *fiberRow) (json.RawMessage, error) {
				f := &Fiber[T]{ID: row.ID, Attempt: row.Attempt, run: r}
				if _, err := decodeCheckpoint(row.Checkpoint, &f.checkpoint); err != nil {
					return nil, err
				}
				err := m(self.(*O), ctx, f)
				return f.result, err
			}}
	}}
}

// Fiber is a started fiber, for the method that it runs.
type Fiber[T any] struct {
	ID      string
	Attempt int // failures and interruptions before this call

	run        *fiberCall
	checkpoint T
	result     json.RawMessage
}

// Checkpoint returns the last saved checkpoint, or the one given to StartFiber.
func (f *Fiber[T]) Checkpoint() T { return f.checkpoint }

// SaveCheckpoint saves cp as the fiber's checkpoint: see [SaveCheckpoint].
func (f *Fiber[T]) SaveCheckpoint(ctx context.Context, cp T) error {
	if err := SaveCheckpoint(context.WithValue(ctx, fiberKey{}, f.run), cp); err != nil {
		return err
	}
	f.checkpoint = cp
	return nil
}

// SetCheckpoint saves cp as the fiber's checkpoint: see [SetCheckpoint]. Checkpoint returns cp even after a
// rollback.
func (f *Fiber[T]) SetCheckpoint(ctx context.Context, cp T) error {
	if err := SetCheckpoint(context.WithValue(ctx, fiberKey{}, f.run), cp); err != nil {
		return err
	}
	f.checkpoint = cp
	return nil
}

// SetResult sets the result that [FiberInfo] contains when the method has returned without an error.
//
// Errors: one for a value that is not JSON.
func (f *Fiber[T]) SetResult(v any) (err error) {
	f.result, err = marshal(v)
	return err
}

// FiberOptions tunes [StartFiber]. A nil *FiberOptions, and the zero FiberOptions, mean the
// defaults.
type FiberOptions struct {
	// Key makes StartFiber idempotent: while a fiber with that key is kept, no other is started. At most
	// 256 bytes.
	Key string
}

// Started is the result of [StartFiber].
type Started struct {
	ID string `json:"id"`
	// Accepted is false if ID is an earlier fiber with the same key.
	Accepted bool `json:"accepted"`
}

// StartFiber starts a fiber of a kind from a checkpoint. The fiber runs as a separate task, once the event's
// writes are durable, and not at all if they are rolled back or lost. When its incarnation ends, the next
// incarnation calls the method again with the last checkpoint; when the method fails, it is called again
// immediately. [KindOptions].MaxRetries bounds both. [Fibers.Get] finds the fiber until it has ended, and for
// its retention period afterwards.
//
// Errors: one for a kind that the class does not have, or has with another checkpoint type, and for a key that
// belongs to a fiber of another kind; a [*dohost.LimitError]; [dohost.ErrOverloaded] when the object has too
// many tasks.
func StartFiber[T any](ctx context.Context, a Ref, k FiberKind[T], checkpoint T, o *FiberOptions) (Started, error) {
	fs := &a.base().fibers
	of, ok := fs.class.kinds[string(k)]
	switch {
	case !ok:
		return Started{}, fmt.Errorf("agent: class %s has no fiber kind %q", fs.obj.ID().Class, k)
	case of.checkpoint != reflect.TypeFor[T]():
		return Started{}, fmt.Errorf("agent: the checkpoint of fiber %q is a %v, not a %v", k, of.checkpoint, reflect.TypeFor[T]())
	}
	if o == nil {
		o = &FiberOptions{}
	}
	if len(o.Key) > maxName {
		return Started{}, &dohost.LimitError{Subject: "fiber key", Size: len(o.Key), Limit: maxName}
	}
	raw, err := marshal(checkpoint)
	if err != nil {
		return Started{}, err
	}
	if len(raw) > maxCheckpoint {
		return Started{}, &dohost.LimitError{Subject: "checkpoint", Size: len(raw), Limit: maxCheckpoint}
	}
	now := time.Now().UnixMilli()
	return fs.start(ctx, fiberRow{
		Item: work.Item{State: work.Waiting, Owner: fs.owner, Run: fs.nextRun()},
		ID:   ulid.Make().String(), Name: string(k), Started: true, Key: o.Key, Checkpoint: raw, Retries: max(0, of.options.MaxRetries), Created: now, Updated: now,
	})
}

func (fs *fibers) start(ctx context.Context, row fiberRow) (s Started, err error) {
	if row.Key != "" {
		old, ok, err := fs.byKey(ctx, row.Key)
		switch {
		case err != nil:
			return s, err
		case ok && old.Name != row.Name:
			return s, fmt.Errorf("agent: key %q belongs to a fiber of kind %q", row.Key, old.Name)
		case ok:
			return Started{ID: old.ID}, nil
		}
	}
	err = fs.rows.transaction(ctx, func(ctx context.Context) error {
		if err := fs.add(ctx, &row); err != nil {
			return err
		}
		return fs.launch(ctx, &row, false)
	})
	return Started{ID: row.ID, Accepted: err == nil}, err
}

// byKey returns the fiber that was started with a key.
func (fs *fibers) byKey(ctx context.Context, key string) (row fiberRow, ok bool, err error) {
	return first(ctx, fs.rows, &fiberRows, dohost.Query[fiberRow]{Index: "key", Equal: dohost.KeyOf(key)})
}

// add writes the row of a new fiber, with the next number. Times and random ids would not order rows that are created
// in the same millisecond.
func (fs *fibers) add(ctx context.Context, row *fiberRow) error {
	last, _, err := numbers.Get(ctx, fs.store(), "fiber")
	if err != nil {
		return err
	}
	row.Number = last.Value.Last + 1
	if err := numbers.Put(ctx, fs.store(), number{"fiber", row.Number}); err != nil {
		return err
	}
	return fs.insert(ctx, row)
}
