package dohost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// Snapshot is the durable state of an object at one moment: it contains the acknowledged writes, and no write that
// could still be lost. Reading it does not wake the object. It is valid while OnInspect's sequence is read; after
// that [Collection.Scan] yields [ErrFenced].
type Snapshot struct {
	id    ID
	sn    *objectstore.Snapshot
	slot  objectstore.Slot
	query *DetailQuery
	// panicked reports a panic of a function that lists items. Nil reports nothing.
	panicked func(id ID, err error, stack []byte)
}

// ID is the object's.
func (v *Snapshot) ID() ID { return v.id }

// Query selects the items that the caller of OnInspect wants. OnInspect may omit other items, and so read fewer rows. It must
// not change the query.
func (v *Snapshot) Query() *DetailQuery { return v.query }

// Alarm returns the due time of the object's alarm, or zero if none is set. onStart reports whether the alarm is also
// delivered when the host starts.
func (v *Snapshot) Alarm() (at time.Time, onStart bool) {
	if v.slot.Parked != objectstore.NotParked {
		return time.Time{}, false
	}
	return v.slot.Due, v.slot.AtStart
}

// ParkedAlarm returns the object's alarm if it is parked.
func (v *Snapshot) ParkedAlarm() (ParkedAlarm, bool) { return runtime.ParkedAlarmOf(v.id, v.slot) }

func viewOf(sn *objectstore.Snapshot, id ID, q *DetailQuery) (*Snapshot, error) {
	slot, _, err := sn.Slot(id)
	return &Snapshot{id: id, sn: sn, slot: slot, query: q}, err
}

// Scan yields the rows that q selects as they are on the disk, in the order of the query. It reads each row only when the
// loop asks for it, plus the rows that q.Where rejects. A row's Cursor is good for a [Query] of that index.
//
// Errors: a [*NameError], [ErrDamaged], [ErrFenced], [ErrMisuse].
func (c *Collection[T]) Scan(v *Snapshot, q *Query[T]) iter.Seq2[Row[T], error] {
	return func(yield func(Row[T], error) bool) { c.scan(v, q, yield) }
}

// scan is the loop of Scan. The compiler copies the function that Scan returns into each caller, so that function only calls this one.
func (c *Collection[T]) scan(v *Snapshot, q *Query[T], yield func(Row[T], error) bool) {
	rq, err := c.query(q)
	if err != nil {
		yield(Row[T]{}, err)
		return
	}
	n := 0
	for r, err := range v.sn.Rows(v.id, c.Name, rq) {
		var row Row[T]
		if err == nil {
			row, err = c.row(r)
		}
		if err == nil && q != nil && q.Where != nil && !q.Where(row.Value) {
			continue
		}
		n++
		if !yield(row, err) || err != nil || q != nil && n == q.Limit {
			return
		}
	}
}

// Resource describes one item of an object to operators.
type Resource struct {
	Kind  string `json:"kind"`            // such as "fiber"
	ID    string `json:"id"`              // unique among items of its kind
	State string `json:"state,omitempty"` // one word
	Text  string `json:"text,omitempty"`  // one line
	// Digest identifies the content that an operator decides about: see [AdminRequest]. Empty if there is nothing to decide.
	Digest string `json:"digest,omitempty"`
	// Counts are numbers about the item by their names, for programs: Text has them in words.
	Counts map[string]int64 `json:"counts,omitempty"`
	// Fields are the texts and times of the item by their names, for programs. Do not parse Text for them: it may contain text
	// from a client or a model that imitates other fields.
	Fields map[string]string `json:"fields,omitempty"`
	// Can lists the actions of [Host.Operate] that apply to the item.
	Can []Action `json:"can,omitempty"`
	// Cursor continues a list after the item: see [DetailQuery]. An OnInspect function sets it if it considers DetailQuery.After.
	Cursor string `json:"-"`
	// Fault describes an inconsistency, which [CheckDir] reports; empty if there is none.
	Fault string `json:"fault,omitempty"`
}

// Action is an operator's action on an item of an object.
type Action string

// The actions.
const (
	ActionCancel  Action = "cancel"   // end an item that runs or waits
	ActionRetry   Action = "retry"    // run a failed item again
	ActionDelete  Action = "delete"   // delete an item that has ended or failed
	ActionDone    Action = "done"     // record that an item with an unknown outcome took effect, with its result
	ActionNotDone Action = "not-done" // record that an item with an unknown outcome had no effect
	ActionApprove Action = "approve"  // approve an item that waits for an approval
	ActionDeny    Action = "deny"     // refuse it

	ActionComplete Action = "complete" // end an item that another party runs, with its result
	ActionFail     Action = "fail"     // end it with an error, whose text is the result: the item had no effect

	ActionPost Action = "post" // post a task to the item, which the result describes
)

// Actions returns all actions.
func Actions() []Action {
	return []Action{ActionCancel, ActionRetry, ActionDelete, ActionDone, ActionNotDone, ActionApprove, ActionDeny, ActionComplete, ActionFail, ActionPost}
}

// AdminRequest is the request of an operator to apply an action to an item of an object.
type AdminRequest struct {
	Action   Action
	Kind, ID string          // of the item, as in its [Resource]
	Result   json.RawMessage // of ActionDone, ActionComplete, ActionFail and ActionPost; nil for the others
	// Digest is the Digest of the Resource that the operator has read; empty for no check. If the content has changed since
	// then, a handler that checks Digest refuses the action.
	Digest        string
	Actor, Reason string // the operator and the reason, for an audit log; may be empty
}

// Details yields the items that the OnInspect function of the object's class finds on the disk: none if the class
// has no such function or is not bound. It does not wake the object.
//
// Errors: a [*NameError], OnInspect's. A panic of OnInspect, or of the Inspect function of an extension, is an error with a [*PanicError]
// that names the class and the kind; the host reports it to the [Listener] as "inspect:panic". A function that returns nil is such an error
// without a PanicError. The items end with the first error.
func (h *Host) Details(ctx context.Context, id ID) iter.Seq2[Resource, error] {
	return h.inspection().details(ctx, id, &DetailQuery{})
}

// Operate applies an action to an item of an object: see [Host.Details]. It is an event of the object, wakes the
// object, and reaches Private objects too. It returns false if there is no item of that kind and id that the action
// applies to.
//
// Errors: an [*Error], with [ErrNotFound] for a class without OnAdmin, and with [ErrMisuse] for a nil request.
func (h *Host) Operate(ctx context.Context, id ID, r *AdminRequest) (done bool, err error) {
	const op = "operate"
	c, bound := h.classes[id.Class]
	switch {
	case r == nil:
		return false, &Error{Op: op, ID: id, Err: fmt.Errorf("%w: the request is nil", ErrMisuse), Outcome: OutcomeNotRun}
	case bound && c.admin == nil:
		return false, &Error{Op: op, ID: id, Err: fmt.Errorf("%w: class %q has no OnAdmin", runtime.ErrNoMethod, id.Class), Outcome: OutcomeNotRun}
	}
	of := *r     // the event may outlast this call
	var did bool // owned by the event until the event has answered
	err = h.rt.Do(ctx, id, runtime.Call{Op: op, Handler: runtime.Func(func(ctx context.Context, instance any) (err error) {
		did, err = c.admin(ctx, instance, &of)
		return err
	})})
	if err != nil {
		return false, err
	}
	return did, nil
}

// checkStore is CheckDir of an open store.
func checkStore(
	ctx context.Context, s *objectstore.Store, report func(CheckProblem), classes []Class,
) (CheckStats, error) {
	stats, err := s.Check(ctx, report)
	if err != nil {
		return stats, err
	}
	sn, err := s.Snapshot(ctx)
	if err != nil {
		return stats, err
	}
	defer sn.Close()
	for _, c := range classes {
		if c.inspect == nil {
			continue
		}
		for id, err := range sn.Objects(c.Name(), "") {
			if err := errors.Join(err, ctx.Err()); err != nil {
				if errors.Is(err, objectstore.ErrDamaged) {
					continue // Check has reported it
				}
				return stats, err
			}
			for fault := range c.faults(ctx, sn, id) {
				stats.Problems++
				report(CheckProblem{Object: id, Detail: fault})
			}
		}
	}
	return stats, nil
}

// faults yields the faults that a class finds in an object.
func (c *Class) faults(ctx context.Context, sn *objectstore.Snapshot, id ID) iter.Seq[string] {
	return func(yield func(string) bool) {
		v, err := viewOf(sn, id, &DetailQuery{})
		if err != nil {
			yield(err.Error())
			return
		}
		for d, err := range c.inspect(ctx, v) {
			switch {
			case err != nil:
				yield(err.Error())
				return
			case d.Fault != "" && !yield(fmt.Sprintf("%s %q: %s", d.Kind, d.ID, d.Fault)):
				return
			}
		}
	}
}
