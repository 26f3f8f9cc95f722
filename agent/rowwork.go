package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/backoff"
	"github.com/dohost/dohost/internal/work"
)

// rowWork calls the methods of OnRows and OnRowBatch.
//
// A row of the index without a task is due. A task is stored for the rows of one call. The batch that begins the call inserts
// it. The batch that takes a row out of the index takes it out of its task too, and deletes the task with the last row. So a
// row that enters the index again gets another task, unless only the running call takes it out and puts it back. Tasks also have the rows
// that wait for a retry, and those that are parked. So the work is the content of the index, and nothing depends on the
// observation of a change.
//
// The alarm is set in the batch that puts a row into the index (written). It is due immediately if a call may begin, and
// otherwise after recheck: the end of a running call begins the next one.
//
// after and atEnd remember how far the index was read. They may only be too early: a Transaction that is rolled back may
// have deleted rows or tasks, so they advance in start alone, which has the turn to itself, and each write of a row
// moves them back. The rows of a running call are not due, so the end of the call moves them back to the rows that were
// written during it.
type rowWork struct {
	*incarnation
	rows    *rows
	indexes []*indexWork

	of rowOwner

	// Owned by the holder of the turn.
	suspectCalls int           // running calls of suspects that do not wait: see rowCall.runsAlone
	ended        int           // calls
	changed      chan struct{} // see Rows.Wait; nil if no code waits
}

// rowOwner is the agent of a rowWork.
type rowOwner interface {
	// rowsParked is called in the batch that parks rows of a collection.
	rowsParked(ctx context.Context, collection string, keys []string) error
}

// indexWork is the work of an index in this incarnation. Owned by the holder of the turn. Its maps are nil while they are empty, since most
// agents in memory have nothing to do.
type indexWork struct {
	*workIndex
	after           dohost.Cursor       // the rows up to here have a task
	atEnd           bool                // and so have all others
	noneInterrupted bool                // no task of an earlier incarnation is left running
	calls           int                 // running calls
	running         map[string]*rowCall // their rows
	groups          map[string]string   // of rows without a task, by their keys; none without workIndex.group
}

// rowCall is a running call.
type rowCall struct {
	rowTask // as it was when the call began
	of      *rowWork
	suspect bool            // its calls may have ended their process
	begun   bool            // it counts in indexWork.calls
	waits   int             // in Rows.Wait
	changed map[string]bool // the rows that other code has written since
	woken   bool            // by Rows.Wake: its PostponeError has no delay
	renewed map[string]bool // the rows that other code, or another call, has taken out of the index or put into it since
	place   dohost.Cursor   // the first place of those that its rows have got since
}

// rowCallKey is the context key of the rowCall whose method is running.
type rowCallKey struct{}

// rowTask is the stored state of the rows of a call.
type rowTask struct {
	ID     string
	Index  string
	Keys   []string
	Origin string // names the first call in positions
	Since  int64  // the time of the first call, in ms since 1970
	Error  string `msgpack:",omitempty"`
	// Postponed is set in the state Waiting alone, if the last call returned a PostponeError.
	Postponed bool `msgpack:",omitempty"`
	work.Item
}

// The indexes of tasks.
const (
	byMember = "member" // index and key of a row
	byRetry  = "retry"  // index and time of a task that waits
	byCaller = "caller" // index and incarnation of a running task
	byParked = "parked" // index of a parked task
)

var rowTasks = dohost.Collection[rowTask]{
	Name: "dohost.rowtasks",
	Key:  func(t rowTask) string { return t.ID },
	Indexes: []dohost.Index[rowTask]{
		{Name: byMember, Each: func(t rowTask) (keys []dohost.Key) {
			for _, key := range t.Keys {
				keys = append(keys, memberKey(t.Index, key))
			}
			return keys
		}},
		{Name: byRetry, Of: func(t rowTask) dohost.Key {
			if t.State != work.Waiting {
				return ""
			}
			return dohost.KeyOf(t.Index) + dohost.KeyOf(t.NotBefore)
		}},
		{Name: byCaller, Of: func(t rowTask) dohost.Key {
			if t.State != work.Running {
				return ""
			}
			return dohost.KeyOf(t.Index) + dohost.KeyOf(t.Owner)
		}},
		{Name: byParked, Of: func(t rowTask) dohost.Key {
			if t.Open() {
				return ""
			}
			return dohost.KeyOf(t.Index)
		}},
	},
}

// memberKey returns the key of a row in the index byMember. A hash has a bounded length.
func memberKey(index, key string) dohost.Key {
	sum := sha256.Sum256([]byte(key))
	return dohost.KeyOf(index) + dohost.KeyOf(hex.EncodeToString(sum[:]))
}

// position returns the position of a call.
func (t *rowTask) position() *dohost.WorkPosition {
	return fixedPosition("rows/"+t.Index+"/"+t.Origin, 0)
}

// reset makes the rows due, as if no call had failed.
func (t *rowTask) reset() { t.Item, t.Error, t.Postponed = work.Item{}, "", false }

func (rw *rowWork) init(in *incarnation, rs *rows, of rowOwner) {
	rw.incarnation, rw.rows, rw.of = in, rs, of
	for _, w := range in.class.workIndexes {
		rw.indexes = append(rw.indexes, &indexWork{workIndex: w})
	}
}

// member returns the task of a row.
func (rw *rowWork) member(ctx context.Context, x *indexWork, key string) (rowTask, bool, error) {
	return first(ctx, rw.rows, &rowTasks, dohost.Query[rowTask]{Index: byMember, Equal: memberKey(x.name, key)})
}

// written handles a write of a row. It sets the alarm for a row that an index has now, and removes a row that the index does not
// have from the task of a call that has ended.
func (rw *rowWork) written(ctx context.Context, w *dohost.RowWrite) error {
	for _, x := range rw.indexes {
		if x.collection != w.Collection {
			continue
		}
		rw.wakeWaiters()
		delete(x.groups, w.Key)
		listed, call := false, x.running[w.Key]
		for key, cursor := range w.Places(x.index) {
			if !strings.HasPrefix(string(key), string(x.Prefix)) {
				continue
			}
			listed = true
			x.reread(cursor)
			if call != nil && (call.place == "" || cursor < call.place) {
				call.place = cursor
			}
		}
		if call != nil && ctx.Value(rowCallKey{}) != call && listed != x.covers(w.FormerPlaces(x.index)) {
			call.renewed[w.Key] = true
		}
		if err := rw.writtenIn(ctx, x, w.Key, listed); err != nil {
			return err
		}
	}
	return nil
}

// beginRunning records the call of a row.
func (x *indexWork) beginRunning(key string, call *rowCall) {
	if x.running == nil {
		x.running = map[string]*rowCall{}
	}
	x.running[key] = call
}

// endRunning forgets the call of a row.
func (x *indexWork) endRunning(key string) {
	if delete(x.running, key); len(x.running) == 0 {
		x.running = nil
	}
}

// reread makes start read the index again from a row.
func (x *indexWork) reread(from dohost.Cursor) {
	x.atEnd = false
	if before := from[:len(from)-1]; before < x.after {
		x.after = before
	}
}

func (rw *rowWork) writtenIn(ctx context.Context, x *indexWork, key string, listed bool) error {
	// Two methods that write the same row would otherwise repeat each other without a delay.
	ofCall := ctx.Value(rowCallKey{}) != nil
	now := time.Now()
	if call := x.running[key]; call != nil {
		if !ofCall {
			call.changed[key] = true
		}
		if !listed {
			return rw.takeOut(ctx, x, call, key)
		}
		return errors.Join(rw.putBack(ctx, call, key), rw.rows.armBy(ctx, now.Add(recheck))) // the end of the call decides
	}
	task, ok, err := rw.member(ctx, x, key)
	switch {
	case err != nil:
		return err
	case ok && !listed:
		return rw.forget(ctx, task, key)
	case !listed:
		return nil
	case ok && task.State != work.Running && !ofCall: // a running one begins again, since its incarnation has ended
		task.reset()
		return put(ctx, rw.rows, &rowTasks, &task)
	case ok:
		return nil // its alarm is set
	case x.calls >= x.Parallel:
		return rw.rows.armBy(ctx, now.Add(recheck))
	}
	return rw.rows.armBy(ctx, rw.earliestStart(now))
}

// sameGroup reports whether two rows belong to one group.
func (x *indexWork) sameGroup(a, b any) bool { return x.group == nil || x.group(a) == x.group(b) }

// wakeup returns when a call may begin.
func (rw *rowWork) wakeup(ctx context.Context, now time.Time) (next wakeup, err error) {
	for _, x := range rw.indexes {
		at, err := rw.indexWakeup(ctx, x, now)
		if err != nil {
			return wakeup{}, err
		}
		next = earliest(next, at)
	}
	return next, nil
}

func (rw *rowWork) indexWakeup(ctx context.Context, x *indexWork, now time.Time) (next wakeup, err error) {
	if x.calls > 0 {
		next = wakeup{now.Add(recheck), true}
	}
	if x.calls >= x.Parallel {
		return next, nil
	}
	interrupted, err := rw.interrupted(ctx, x, 1)
	if err != nil {
		return next, err
	}
	if len(interrupted) > 0 {
		at := rw.earliestStart(now)
		if t := interrupted[0]; rw.suspectCalls > 0 && t.Suspect(rw.owner, x.policy()) {
			at = now.Add(recheck)
		}
		next = earliest(next, wakeup{at, true})
	}
	waiting, ok, err := first(ctx, rw.rows, &rowTasks, dohost.Query[rowTask]{Index: byRetry, Prefix: dohost.KeyOf(x.name)})
	if err != nil {
		return next, err
	}
	if ok {
		at := time.UnixMilli(waiting.NotBefore)
		if start := rw.earliestStart(now); at.Before(start) {
			at = start
		}
		next = earliest(next, wakeup{at, true})
	}
	keys, _, _, err := rw.due(ctx, x, 1)
	if len(keys) > 0 {
		next = earliest(next, wakeup{rw.earliestStart(now), true})
	}
	return next, err
}

// due returns up to limit rows of the index without a task, after x.after. It also returns the cursor before the first of
// them, or of the last row, and whether there is no such row.
func (rw *rowWork) due(ctx context.Context, x *indexWork, limit int) (keys []string, after dohost.Cursor, atEnd bool, err error) {
	after = x.after
	if x.atEnd {
		return nil, after, true, nil
	}
	taken := map[string]bool{}
	for row, err := range x.keys(ctx, rw.store(), x.after) {
		if err != nil {
			return nil, after, false, err
		}
		busy := x.running[row.Key] != nil || taken[row.Key]
		if !busy {
			n, err := rowTasks.Count(ctx, rw.store(), &dohost.Query[rowTask]{Index: byMember, Equal: memberKey(x.name, row.Key), Limit: 1})
			if busy = n > 0; err != nil {
				return nil, after, false, err
			}
		}
		switch {
		case !busy:
			keys, taken[row.Key] = append(keys, row.Key), true
			if len(keys) == limit {
				return keys, after, false, nil
			}
		case len(keys) == 0:
			after = row.Cursor
		}
	}
	return keys, after, len(keys) == 0, nil
}

// interrupted returns up to limit tasks that an earlier incarnation left running.
func (rw *rowWork) interrupted(ctx context.Context, x *indexWork, limit int) (found []rowTask, err error) {
	if x.noneInterrupted {
		return nil, nil
	}
	of := dohost.KeyOf(x.name)
	mine := of + dohost.KeyOf(rw.owner)
	for _, q := range []dohost.Query[rowTask]{{Index: byCaller, Prefix: of, End: mine}, {Index: byCaller, Prefix: of, Start: mine.PrefixEnd()}} {
		q.Limit = limit
		rows, err := rowTasks.List(ctx, rw.store(), &q)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			found = append(found, row.Value)
		}
	}
	return found, nil
}

// alarmIsLate reports whether a call may begin before the alarm. When the agent wakes, the class may not have had the OnRows when
// the rows were written, and an alarm that was parked is not set.
func (rw *rowWork) alarmIsLate(ctx context.Context) (bool, error) {
	if len(rw.indexes) == 0 {
		return false, nil
	}
	now := time.Now()
	at, set, err := rw.obj.GetAlarm(ctx)
	if err != nil || set && !at.After(now) {
		return false, err
	}
	next, err := rw.wakeup(ctx, now)
	return err == nil && !next.at.IsZero() && !(set && !at.After(next.at)), err
}

// jitter returns the jitter of the delay before the next call.
func (rw *rowWork) jitter(t *rowTask) float64 {
	id := rw.obj.ID()
	return backoff.Share(id.Class, id.Name, t.ID, fmt.Sprint(t.Failures))
}

// policy returns the policy of the tasks of an index. A task that is out of attempts is parked.
func (x *indexWork) policy() *work.Policy {
	p := &work.Policy{
		Known: true, Resumable: true, MaxRetries: max(x.Retry.MaxAttempts-1, -1), Isolate: 1, GiveUp: true,
		RetryDelay: x.Retry.BaseDelay, MaxRetryDelay: x.Retry.MaxDelay,
	}
	switch {
	case p.RetryDelay < 0:
		p.RetryDelay, p.MaxRetryDelay = 1, 1 // no delay: with zero the item would keep its owner
	case p.MaxRetryDelay < 0:
		p.MaxRetryDelay = math.MaxInt64
	}
	return p
}
