package randinbox

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/inbox"
)

// verify compares the object with the model. Calls that have begun, attempts, and chunks are made in the model.
func (o *office) verify(ctx context.Context, m *model) error {
	found, err := o.items(ctx)
	if err != nil {
		return err
	}
	for id, i := range found {
		if want := m.Items[id]; want == nil || rowText(i) != rowText(want) {
			o.w.Faultf("there is the row %s, want %s", rowText(i), optional(want))
		}
	}
	for id, i := range m.Items {
		if found[id] == nil {
			o.w.Faultf("the row %s is missing", rowText(i))
		}
	}
	if err := o.verifyCalls(ctx, m); err != nil {
		return err
	}
	return o.verifyStreams(ctx, m)
}

func optional(i *inbox.Message) string {
	if i == nil {
		return "none"
	}
	return rowText(i)
}

// items returns all rows of the inboxes.
func (o *office) items(ctx context.Context) (map[string]*inbox.Message, error) {
	found := map[string]*inbox.Message{}
	for row, err := range messages.All(ctx, o.Storage(), nil) {
		if err != nil {
			return nil, err
		}
		found[row.Key] = &row.Value
	}
	for row, err := range jobs.All(ctx, o.Storage(), nil) {
		if err != nil {
			return nil, err
		}
		found[row.Key] = row.Value.item()
	}
	return found, nil
}

// verifyCalls compares the calls that have begun with the model.
func (o *office) verifyCalls(ctx context.Context, m *model) error {
	list, err := o.Rows().List(ctx, &agent.RowsQuery{Limit: 100})
	if err != nil {
		return err
	}
	listed := map[string]agent.RowsInfo{}
	for _, info := range list {
		listed[info.ID] = info
	}
	unknown := map[string]bool{} // inboxes with rows that may have been in a call when another one began
	for _, c := range slices.Clone(m.Calls) {
		info, ok := listed[c.ID]
		unknown[c.Inbox] = unknown[c.Inbox] || c.Touched
		switch {
		case ok:
			o.compareCall(m, c, info)
			delete(listed, c.ID)
			continue
		case len(c.Keys) > 0 && !c.Touched:
			o.w.Faultf("%v is missing", c)
		}
		m.Calls = slices.DeleteFunc(m.Calls, func(other *call) bool { return other == c })
	}
	begun := slices.SortedFunc(maps.Values(listed), func(a, b agent.RowsInfo) int {
		return cmp.Or(a.Since.Compare(b.Since), slices.Compare(order(a.ID), order(b.ID)))
	})
	for _, info := range begun {
		o.beginCall(m, info, unknown)
	}
	m.Seen = o.incarnation
	return nil
}

// order returns the numbers in the id of a call, which order the calls that begin at one time: those of its process, of its incarnation,
// and of the call.
func order(id string) (numbers []int) {
	for _, part := range strings.Split(id, ".")[1:] {
		n, err := strconv.Atoi(part)
		if err != nil {
			panic(err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// beginCall makes a call in the model that has begun since the last comparison. It has the first rows that are due.
func (o *office) beginCall(m *model, info agent.RowsInfo, unknown map[string]bool) {
	first := m.Items[info.Keys[0]]
	if !waits(first) {
		o.w.Faultf("a call has begun with the row %s, which does not wait", optional(first))
		return
	}
	c := &call{ID: info.ID, Inbox: first.To, Keys: info.Keys, State: agent.RowsRunning, Since: max(m.Seen, 1)}
	if due := m.due(first.To); !unknown[c.Inbox] && !slices.Equal(due, info.Keys) {
		o.w.Faultf("%v has begun, and the due rows are %q", c, due)
	}
	if !strings.Contains(info.Index, first.To) && first.To != shop {
		o.w.Faultf("%v has begun in the index %s", c, info.Index)
	}
	m.Calls = append(m.Calls, c)
	o.compareCall(m, c, info)
}

// compareCall compares the rows, the attempts and the state of a call with the model.
func (o *office) compareCall(m *model, c *call, info agent.RowsInfo) {
	if c.Touched {
		c.Keys, c.Failures, c.Since, c.Touched, c.Postponed = info.Keys, info.Attempt, o.incarnation, info.State == agent.RowsRunning, true
	}
	if kept := m.sameGroup(c); info.State == agent.RowsRunning && slices.Equal(kept, info.Keys) {
		c.Keys = kept
	}
	if !slices.Equal(c.Keys, info.Keys) {
		o.w.Faultf("%v has the rows %q", c, info.Keys)
	}
	if stalls := info.Attempt - c.Failures; stalls < 0 || stalls > o.incarnation-c.Since {
		o.w.Faultf("%v of incarnation %d has %d attempts in incarnation %d", c, c.Since, info.Attempt, o.incarnation)
	}
	parked := info.State == agent.RowsParked
	if most := inboxes[c.Inbox].attempts(); parked && info.Attempt < most || !parked && info.Attempt >= most && !c.Postponed {
		o.w.Faultf("%v is %s after %d attempts", c, info.State, info.Attempt)
	}
	if parked && c.State != info.State && m.Seen == o.incarnation {
		c.ParkedIn = o.incarnation
	}
	c.State = info.State
}
