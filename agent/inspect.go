package agent

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// The kinds of an agent's details.
const (
	detailFiber      = "fiber"
	detailSchedule   = "schedule"
	detailItem       = "item"
	detailDeadLetter = "dead-letter"
	detailRows       = "rows"
	detailSub        = "sub-agent"
)

// inspect lists an agent's items for operators, and then those of the extensions. The agent has only the object's alarm, so an item that
// needs an alarm and has none never runs, which is a fault.
func (c *class) inspect(ctx context.Context, v *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
	return func(yield func(dohost.Resource, error) bool) {
		more := details(v, &fiberRows, "", fiberDetail, yield) &&
			details(v, &scheduleRows, byDue, scheduleDetail, yield) &&
			details(v, &queue, byPlace, itemDetail, yield) &&
			details(v, &deadLetterRows, byDied, deadLetterDetail, yield) &&
			details(v, &rowTasks, "", rowsDetail, yield) &&
			details(v, &subRows, "", subDetail, yield)
		for _, x := range c.extensions {
			if more && x.inspect != nil {
				more = x.list(ctx, v, yield)
			}
		}
	}
}

// list yields the items of an extension, and reports whether the caller wants more. The host makes an error of a panic: list adds the kinds
// of the extension to its value. A panic of the caller's loop keeps its value.
func (x *extension) list(ctx context.Context, v *dohost.Snapshot, yield func(dohost.Resource, error) bool) (more bool) {
	inLoop := false // the caller's code runs
	defer func() {
		if inLoop {
			return
		}
		if p := recover(); p != nil {
			panic(fmt.Sprintf("Inspect of an extension with the kinds %q: %v", x.kinds, p))
		}
	}()
	items := x.inspect(ctx, v)
	if items == nil {
		yield(dohost.Resource{}, fmt.Errorf("agent: class %q: Inspect of an extension with the kinds %q returned nil", v.ID().Class, x.kinds))
		return false
	}
	for d, err := range items {
		inLoop = true
		more = yield(d, err) && err == nil
		inLoop = false
		if !more {
			return false
		}
	}
	return true
}

// details yields the rows of a collection, and reports whether the caller wants more.
func details[T any](
	v *dohost.Snapshot, of *dohost.Collection[T], index string, detail func(*dohost.Snapshot, *T) dohost.Resource,
	yield func(dohost.Resource, error) bool,
) bool {
	for row, err := range of.Scan(v, &dohost.Query[T]{Index: index}) {
		if err != nil {
			yield(dohost.Resource{}, err)
			return false
		}
		if !yield(detail(v, &row.Value), nil) {
			return false
		}
	}
	return true
}

func fiberDetail(v *dohost.Snapshot, r *fiberRow) dohost.Resource {
	d := dohost.Resource{Kind: detailFiber, ID: r.ID, State: string(r.status())}
	at, _ := v.Alarm()
	switch {
	case r.State == work.Dead:
		d.Can = []dohost.Action{dohost.ActionRetry, dohost.ActionDelete}
	case !r.Open():
		if r.State == work.Orphaned || r.Outcome == work.Failed { // which were intended: see onAdmin
			d.Can = append(d.Can, dohost.ActionRetry)
		}
		if r.State != work.Notifying {
			d.Can = append(d.Can, dohost.ActionDelete)
		}
		switch {
		case r.State == work.Notifying:
			d.Fault = alarmFault(v)
		case r.Expires != 0 && at.IsZero():
			d.Fault = "the fiber is due to expire, but " + noAlarm(v)
		}
	default:
		d.Can = []dohost.Action{dohost.ActionCancel}
		d.Fault = alarmFault(v)
	}
	text := parts{fmt.Sprintf("%q", r.Name)}
	text.add(r.Started, "started")
	text.add(!r.Started, "run")
	text.add(true, "since %s", r.since().Format(time.RFC3339))
	text.add(r.Key != "", "key %q", r.Key)
	text.add(r.tries() > 0, "%d attempts failed or interrupted", r.tries())
	text.add(r.Checkpoint != nil, "checkpoint of %d bytes", len(r.Checkpoint))
	text.add(r.State == work.Notifying, "the call of OnFiberEnded is pending")
	text.add(r.Error != "", "%q", short(r.Error))
	d.Text = text.String()
	return d
}

func (r *fiberRow) since() time.Time { return time.UnixMilli(r.Created).UTC() }

// alarmFault returns the fault of an item that survives its process without an alarm at the host's start, or "".
func alarmFault(v *dohost.Snapshot) string {
	switch at, atStart := v.Alarm(); {
	case at.IsZero():
		return "work is pending, but " + noAlarm(v)
	case !atStart:
		return "work is pending, but the agent's alarm is not delivered when the host starts"
	}
	return ""
}

// noAlarm describes why nothing delivers an alarm to the agent.
func noAlarm(v *dohost.Snapshot) string {
	if p, ok := v.ParkedAlarm(); ok {
		return fmt.Sprintf("the agent's alarm is parked: %v", p.Reason)
	}
	return "the agent has no alarm"
}

func scheduleDetail(v *dohost.Snapshot, j *scheduleRow) dohost.Resource {
	d := dohost.Resource{Kind: detailSchedule, ID: j.ID, State: "waiting", Can: []dohost.Action{dohost.ActionCancel}}
	at, _ := v.Alarm()
	switch {
	case j.Owner != "":
		d.State, d.Fault = "running", alarmFault(v)
	case at.IsZero():
		d.Fault = "the schedule is waiting, but " + noAlarm(v)
	case at.After(j.Due.Add(time.Millisecond)) && j.Due.After(time.Now().Add(overloadPause)):
		d.Fault = fmt.Sprintf("the schedule is due at %s, but the agent's alarm at %s", j.Due, at)
	}
	text := parts{fmt.Sprintf("%q", j.Callback)}
	text.add(true, "due %s", j.Due.UTC().Format(time.RFC3339))
	text.add(j.Every > 0, "every %v", j.Every)
	text.add(j.Cron != "", "at %q in %s", j.Cron, j.Zone)
	text.add(j.Stalls > 0, "started %d times", j.Stalls+1)
	d.Text = text.String()
	return d
}

func itemDetail(v *dohost.Snapshot, it *item) dohost.Resource {
	d := dohost.Resource{Kind: detailItem, ID: it.ID, State: "waiting", Can: []dohost.Action{dohost.ActionCancel}}
	d.Fault = alarmFault(v)
	switch {
	case it.State == work.Cancelling:
		d.State, d.Can = "cancelled, and running", nil
	case it.Owner != "":
		d.State = "running"
	}
	text := parts{fmt.Sprintf("%q", it.Callback)}
	text.add(true, "since %s", it.Enqueued.UTC().Format(time.RFC3339))
	text.add(it.Stalls > 0, "started %d times", it.Stalls+1)
	d.Text = text.String()
	return d
}

func deadLetterDetail(_ *dohost.Snapshot, r *deadLetterRow) dohost.Resource {
	d := dohost.Resource{Kind: detailDeadLetter, ID: r.Item.ID, State: "failed", Can: []dohost.Action{dohost.ActionRetry, dohost.ActionDelete}}
	text := parts{fmt.Sprintf("%q", r.Item.Callback)}
	text.add(true, "since %s", r.Died.UTC().Format(time.RFC3339))
	text.add(true, "%q", short(r.Error))
	d.Text = text.String()
	return d
}

// subDetail names the object of a sub-agent, so that an operator can inspect it.
func subDetail(v *dohost.Snapshot, r *subRow) dohost.Resource {
	object := dohost.ID{Class: r.Class, Name: objectOf(append(pathOf(v.ID()), dohost.ID{Class: r.Class, Name: r.Name}))}
	text := parts{"since " + time.UnixMilli(r.Created).UTC().Format(time.RFC3339)}
	text.add(true, "object %v", object)
	return dohost.Resource{Kind: detailSub, ID: r.Class + "/" + r.Name, Text: text.String()}
}

// parts are the parts of a line.
type parts []string

func (w *parts) add(ok bool, format string, args ...any) {
	if ok {
		*w = append(*w, fmt.Sprintf(format, args...))
	}
}

// String joins the parts.
func (w parts) String() string { return strings.Join(w, ", ") }

// short truncates a text for a line.
func short(text string) string {
	const most = 200
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// onAdmin performs an operator's action. It retries a cancelled fiber if the operator names it.
func (c *core) onAdmin(ctx context.Context, r *dohost.AdminRequest) (bool, error) {
	type act struct {
		kind string
		dohost.Action
	}
	acts := map[act]func(context.Context, string) (bool, error){
		{detailFiber, dohost.ActionCancel}:      Fibers{&c.fibers}.Cancel,
		{detailFiber, dohost.ActionRetry}:       Fibers{&c.fibers}.Retry,
		{detailFiber, dohost.ActionDelete}:      Fibers{&c.fibers}.Delete,
		{detailSchedule, dohost.ActionCancel}:   Schedules{&c.jobs}.Cancel,
		{detailItem, dohost.ActionCancel}:       Queue{&c.jobs}.Cancel,
		{detailRows, dohost.ActionRetry}:        Rows{&c.rowWork}.Retry,
		{detailDeadLetter, dohost.ActionRetry}:  DeadLetters{&c.jobs}.Retry,
		{detailDeadLetter, dohost.ActionDelete}: DeadLetters{&c.jobs}.Delete,
	}
	fn, ok := acts[act{r.Kind, r.Action}]
	if !ok {
		if done, known, err := c.extendedAdmin(ctx, r); known {
			return done, err
		}
		return false, &dohost.ArgumentError{Method: "operate", Err: fmt.Errorf("items of kind %q do not allow the action %s", r.Kind, r.Action)}
	}
	return fn(ctx, r.ID)
}
