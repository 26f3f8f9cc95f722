package agent

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// scheduleRow is a schedule's row.
type scheduleRow struct {
	ID       string // also of its payload
	Callback string
	Kind     ScheduleKind
	Created  time.Time
	Due      time.Time
	Every    time.Duration `msgpack:",omitempty"`
	Cron     string        `msgpack:",omitempty"`
	Zone     string        `msgpack:",omitempty"`
	DedupKey string        // hash of kind, callback, payload and recurrence
	Retry    storedRetry
	work.Item
	// Started is when its run began; zero if there is none.
	Started time.Time
	// StuckAt is the time after which the run of an interval counts as stuck.
	StuckAt time.Time
}

// The indexes of schedules.
const (
	byDue         = "due"
	byCheck       = "check"       // waiting ones by due time; running intervals by StuckAt
	byIncarnation = "incarnation" // running ones
	byDedupKey    = "dedup"
)

var scheduleRows = dohost.Collection[scheduleRow]{
	Name: "dohost.schedules",
	Key:  func(j scheduleRow) string { return j.ID },
	Indexes: []dohost.Index[scheduleRow]{
		{Name: byDue, Of: func(j scheduleRow) dohost.Key { return dohost.KeyOf(j.Due) }},
		{Name: byCheck, Of: func(j scheduleRow) dohost.Key {
			switch {
			case j.Owner == "":
				return dohost.KeyOf(j.Due)
			case j.StuckAt.IsZero():
				return ""
			}
			return dohost.KeyOf(j.StuckAt)
		}},
		{Name: byIncarnation, Of: func(j scheduleRow) dohost.Key {
			if j.Owner == "" {
				return ""
			}
			return dohost.KeyOf(j.Owner)
		}},
		{Name: byDedupKey, Of: func(j scheduleRow) dohost.Key { return dohost.KeyOf(j.DedupKey) }},
	},
}

// dedupKey returns a hash that is equal for schedules of the same kind, callback and payload, and of the same
// interval, or expression and zone.
func (w When) dedupKey(name string, payload json.RawMessage) string {
	spec := ""
	if w.kind.recurs() {
		spec = fmt.Sprintf("%d %q %q", w.delay, w.cron, w.zone)
	}
	h := sha256.Sum256(fmt.Appendf(nil, "%s %q %s\n%s", w.kind, name, spec, payload))
	return base64.RawURLEncoding.EncodeToString(h[:])
}

// Idempotence selects the behavior of [Schedule] if there is an equal schedule: a schedule with the same kind,
// callback and payload, and the same interval, or expression and zone. The times of After and At are not
// compared.
type Idempotence int

// The zero Idempotence suits calls of Schedule that repeat, such as those in OnStart.
const (
	IdempotenceByKind Idempotence = iota // on for Every and Cron, and off for After and At
	IdempotenceOn                        // an equal schedule is kept, and no other is made
	IdempotenceOff                       // another schedule is made
)

// ScheduleOptions tunes [Schedule]. Nil means the defaults.
type ScheduleOptions struct {
	Idempotence Idempotence
	// Retry bounds the attempts of a run: its MaxAttempts and its MaxElapsed begin again if the end of an incarnation
	// interrupts the run. Every error is retried, until the end of the incarnation. ShouldRetry must be nil, since a
	// function cannot be stored.
	Retry dohost.RetryPolicy
}

// Schedule makes the agent run a callback once or repeatedly, and returns the schedule's id. The schedule is as
// durable as the agent's storage. A run that was due while the host was down starts late, and only once for all
// missed times.
//
// A schedule of [After] or [At] is deleted when its callback has returned; an error is reported as
// "schedule:error". If the end of an incarnation cuts off a run, the run starts again; after
// Options.MaxInterruptions such ends the schedule becomes a dead letter ([DeadLetters.List]). If a run of an
// interval takes longer than Options.StuckAfter, the next run starts, and the outcome of the stuck run is ignored.
// A callback that schedules itself should not have [IdempotenceOn], although a running schedule of After or At does not
// count as equal.
//
// Errors name the invalid argument: an unknown callback, or one with another payload type; an invalid [When]; a
// policy; a payload that is not JSON, or a [*dohost.LimitError] for one of more than nearly 2 MiB. Then nothing
// is scheduled.
func Schedule[P any](
	ctx context.Context, a Ref, when When, cb Callback[P], payload P, o *ScheduleOptions,
) (id string, err error) {
	js := &a.base().jobs
	raw, err := encodePayload(js.class, cb, payload)
	if err != nil {
		return "", err
	}
	if o == nil {
		o = &ScheduleOptions{}
	}
	return js.schedule(ctx, when, string(cb), raw, *o)
}

func (js *jobs) schedule(
	ctx context.Context, when When, name string, raw json.RawMessage, o ScheduleOptions,
) (id string, err error) {
	now := time.Now()
	due, err := when.first(now)
	if err != nil {
		return "", err
	}
	if o.Idempotence < IdempotenceByKind || o.Idempotence > IdempotenceOff {
		return "", fmt.Errorf("agent: ScheduleOptions.Idempotence is %d: want one of the constants", o.Idempotence)
	}
	retry, err := storedPolicy(o.Retry)
	if err != nil {
		return "", err
	}
	j := scheduleRow{
		ID: ulid.Make().String(), Callback: name, Kind: when.kind, Created: now, Due: due,
		Cron: when.cron, Zone: when.zone, DedupKey: when.dedupKey(name, raw), Retry: retry,
	}
	if when.kind == ScheduleInterval {
		j.Every = when.delay
	}
	err = js.rows.transaction(ctx, func(ctx context.Context) error {
		if o.Idempotence == IdempotenceOn || o.Idempotence == IdempotenceByKind && when.kind.recurs() {
			duplicate, ok, err := js.findDuplicate(ctx, j.DedupKey)
			if err != nil {
				return err
			}
			if ok {
				j.ID = duplicate.ID
				return nil
			}
		}
		if err := js.putPayload(ctx, j.ID, raw); err != nil {
			return err
		}
		return insert(ctx, js.rows, &scheduleRows, &j)
	})
	if err != nil {
		return "", err
	}
	return j.ID, nil
}

// findDuplicate finds a schedule equal to a new one, except one that its own run is about to delete.
func (js *jobs) findDuplicate(ctx context.Context, dedupKey string) (scheduleRow, bool, error) {
	return first(ctx, js.rows, &scheduleRows, dohost.Query[scheduleRow]{
		Index: byDedupKey, Equal: dohost.KeyOf(dedupKey),
		Where: func(j scheduleRow) bool { return j.Kind.recurs() || j.Owner != js.owner },
	})
}

// ScheduleInfo is a schedule.
type ScheduleInfo struct {
	ID       string          `json:"id"`
	Callback string          `json:"callback"`
	Kind     ScheduleKind    `json:"kind"`
	Payload  json.RawMessage `json:"payload"`
	Created  time.Time       `json:"created"`
	// Due is its next time or, while it runs, the time of the current run.
	Due time.Time `json:"due"`
	// Running is set if it was started, in this incarnation or in one that has ended.
	Running bool          `json:"running"`
	Every   time.Duration `json:"every,omitempty"` // of an interval
	Cron    string        `json:"cron,omitempty"`  // of a cron schedule
	Zone    string        `json:"zone,omitempty"`
}

func (js *jobs) scheduleInfo(ctx context.Context, j scheduleRow) (ScheduleInfo, error) {
	raw, err := js.payload(ctx, j.ID)
	return ScheduleInfo{
		ID: j.ID, Callback: j.Callback, Kind: j.Kind, Payload: raw, Created: j.Created, Due: j.Due,
		Running: j.Owner != "", Every: j.Every, Cron: j.Cron, Zone: j.Zone,
	}, err
}

// ScheduleQuery selects the schedules that match all its fields. Nil selects all.
type ScheduleQuery struct {
	Callback string
	Kind     ScheduleKind
	From     time.Time // due then or later
	Before   time.Time // due earlier
	Limit    int       // the maximum number; zero means no limit
}

// List returns the agent's schedules, ordered by due time.
//
// Errors: [dohost.ErrMisuse] for a negative Limit.
func (s Schedules) List(ctx context.Context, q *ScheduleQuery) ([]ScheduleInfo, error) {
	js := s.jobs
	if q == nil {
		q = &ScheduleQuery{}
	}
	query := &dohost.Query[scheduleRow]{Index: byDue, Limit: q.Limit, Where: func(j scheduleRow) bool {
		return (q.Callback == "" || j.Callback == q.Callback) && (q.Kind == "" || j.Kind == q.Kind)
	}}
	if !q.From.IsZero() {
		query.Start = dohost.KeyOf(q.From)
	}
	if !q.Before.IsZero() {
		query.End = dohost.KeyOf(q.Before)
	}
	return list(ctx, js.rows, &scheduleRows, query, js.scheduleInfo)
}

// Get returns the schedule with an id, if there is one.
func (s Schedules) Get(ctx context.Context, id string) (ScheduleInfo, bool, error) {
	js := s.jobs
	row, ok, err := get(ctx, js.rows, &scheduleRows, id)
	if err != nil || !ok {
		return ScheduleInfo{}, false, err
	}
	info, err := js.scheduleInfo(ctx, row)
	return info, err == nil, err
}

// Cancel removes a schedule, and reports whether there was one. A run in progress continues, and is not
// retried.
func (s Schedules) Cancel(ctx context.Context, id string) (existed bool, err error) {
	js := s.jobs
	err = js.rows.transaction(ctx, func(ctx context.Context) (err error) {
		_, existed, err = get(ctx, js.rows, &scheduleRows, id)
		if err != nil || !existed {
			return err
		}
		return js.removeSchedule(ctx, id)
	})
	return existed && err == nil, err
}

// removeSchedule deletes a schedule and its payload.
func (js *jobs) removeSchedule(ctx context.Context, id string) error {
	if _, err := remove(ctx, js.rows, &payloads, id); err != nil {
		return err
	}
	_, err := remove(ctx, js.rows, &scheduleRows, id)
	return err
}
