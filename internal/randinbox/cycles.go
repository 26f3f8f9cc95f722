package randinbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/randtest"
)

// cycle is a cycle of an inbox, from Build to Respond.
type cycle struct {
	inbox  string
	rows   []string
	serial int    // of the model in Build
	at     string // its position
	again  bool   // its rows have left their call, and are in the index again
	last   task   // of the last row
	tasks  []task // of the rows
	done   bool   // its request has a reply
	owner  int    // its incarnation
	asked  string // the position, and the messages of the rows
	prompt string // the numbers of the tasks in the prompt
}

// stamp names the effect of the tool in the cycle.
func (c *cycle) stamp() string { return fmt.Sprint(c.last.Number, " at ", c.at) }

// cycleKey is the context key of the cycle of an execution of the model.
type cycleKey struct{}

// inboxEntries returns the inboxes of the class.
func inboxEntries(w *Observer) (list []agent.Entry[office]) {
	for _, name := range []string{"clerk", "cook", "planner"} {
		s := inboxes[name]
		a := &inbox.Agent{
			Name: name, Model: &answerer{w, name == "cook"}, MaxMessages: s.maxMessages, MaxBytes: s.maxBytes, EachSender: s.eachSender, Options: s.RowsOptions,
		}
		if name == "cook" {
			a.Tools, a.Chunks = []chat.Tool{stamp(w)}, answers
		}
		list = append(list, inbox.On(observed(name, inbox.ForMessages[office](&messages, a), func(i inbox.Message) *inbox.Message { return &i })))
	}
	of := &inbox.Inbox[office, job, string]{
		Rows: &jobs, Pending: openIndex, Group: func(j job) string { return j.Group }, Options: inboxes[shop].RowsOptions,
		Build: func(_ *office, _ context.Context, pending []dohost.Row[job]) (list []chat.Message, err error) {
			for _, row := range pending {
				list = append(list, chat.Text(row.Key, chat.RoleUser, row.Value.Content))
			}
			return list, nil
		},
		Generate: func(o *office, ctx context.Context, c *inbox.Cycle[job]) (string, error) {
			if len(c.Pending)%2 == 0 { // so that other events run
				return c.Group, dohost.Sleep(ctx, 700*time.Millisecond)
			}
			return c.Group, nil
		},
		Respond: (*office).finishJobs,
	}
	return append(list, inbox.On(observed(shop, of, job.item)))
}

// observed compares each function of an inbox with the model.
func observed[Row, R any](name string, in *inbox.Inbox[office, Row, R], item func(Row) *inbox.Message) *inbox.Inbox[office, Row, R] {
	build, generate, respond := in.Build, in.Generate, in.Respond
	items := func(rows []dohost.Row[Row]) (list []*inbox.Message) {
		for _, row := range rows {
			list = append(list, item(row.Value))
		}
		return list
	}
	in.Build = func(o *office, ctx context.Context, pending []dohost.Row[Row]) ([]chat.Message, error) {
		m, err := o.load(ctx)
		if err != nil {
			return nil, err
		}
		list, err := build(o, ctx, pending)
		if err == nil {
			o.begin(m, name, dohost.WorkPositionOf(ctx).Name(), items(pending), list)
			err = o.save(ctx, m)
		}
		return list, err
	}
	in.Generate = func(o *office, ctx context.Context, c *inbox.Cycle[Row]) (r R, err error) {
		now := o.cycles[name]
		if err := o.runTasks(ctx, now); err != nil {
			return r, err
		}
		r, err = generate(o, context.WithValue(ctx, cycleKey{}, now), c)
		if _, ok := errors.AsType[*agent.PostponeError](err); ok {
			return r, errors.Join(o.postponed(ctx, now), err)
		}
		return r, err
	}
	in.Respond = func(o *office, ctx context.Context, r R, pending []dohost.Row[Row]) error {
		if _, err := o.load(ctx); err != nil {
			return err
		}
		now := o.cycles[name]
		if ids := ids(items(pending)); !slices.Equal(ids, now.rows) {
			o.w.Faultf("Respond of %s gets the rows %q, and Build got %q", name, ids, now.rows)
		}
		left := o.leaves(now)
		if left && now.last.Number%2 == 0 {
			return nil // all rows
		}
		if err := respond(o, ctx, r, pending); err != nil {
			return err
		}
		if left {
			return in.Rows.Put(ctx, o.Storage(), pending[len(pending)-1].Value)
		}
		m, err := o.read(ctx) // finishJobs may have changed it
		if err != nil {
			return err
		}
		if err := o.end(ctx, m, now); err != nil {
			return err
		}
		for _, t := range now.tasks {
			if o.w.fails(t, failRespond) {
				return randtest.ErrFail
			}
		}
		return nil
	}
	in.OnError = func(o *office, ctx context.Context, err error, pending []dohost.Row[Row]) {
		_ = o.failed(ctx, name, ids(items(pending)), err) // the incarnation has ended, and the next one compares
	}
	return in
}

// leaves reports whether Respond leaves a row of a cycle in the index.
func (o *office) leaves(now *cycle) bool {
	return slices.ContainsFunc(now.tasks, func(t task) bool { return o.w.fails(t, failLeft) })
}

// expected reports whether a cycle may fail with an error.
func expected(ctx context.Context, err error) bool {
	text := err.Error()
	return randtest.Ended(ctx, err) || errors.Is(err, errModel) ||
		strings.Contains(text, "the rows have changed") || strings.Contains(text, "is still in the index")
}

// runTasks executes the programs of the rows of a cycle.
func (o *office) runTasks(ctx context.Context, now *cycle) error {
	for _, t := range now.tasks {
		x := &execution{office: o, name: fmt.Sprint("task ", t.Number), cycle: now.inbox}
		if err := x.do(ctx, t.Code); err != nil {
			return err
		}
		if o.w.fails(t, failGenerate) {
			return randtest.ErrFail
		}
		if now.inbox == shop && o.w.fails(t, failBudget) {
			return errors.Join(o.postponed(ctx, now), &agent.PostponeError{After: time.Second, Err: randtest.ErrFail})
		}
	}
	return nil
}

func ids(items []*inbox.Message) (ids []string) {
	for _, i := range items {
		ids = append(ids, i.ID)
	}
	return ids
}

// begin compares the rows and the prompt of a cycle with the model.
func (o *office) begin(m *model, name, position string, rows []*inbox.Message, prompt []chat.Message) {
	now := &cycle{inbox: name, rows: ids(rows), serial: m.Serial, at: position}
	before := o.cycles[name]
	o.cycles[name] = now
	c := m.callWith(name, now.rows[0])
	// Other code has deleted the rows during their call, and inserted them again: the cycle begins again with them.
	again := func(id string) bool { return slices.Contains(before.rows, id) }
	now.again = c == nil && before != nil && !slices.ContainsFunc(now.rows, func(id string) bool { return !again(id) })
	if now.again {
		c = &call{Inbox: name, State: agent.RowsRunning, Touched: true, Position: before.at}
	}
	if c == nil || c.State != agent.RowsRunning || !c.Touched && !slices.Equal(c.Keys, now.rows) {
		o.w.Faultf("a cycle of %s has the rows %q, want those of %v", name, now.rows, c)
		return
	}
	if c.Position == "" {
		c.Position = position
	}
	if c.Position != position || position == "" {
		o.w.Faultf("a cycle of %v has the position %q, and before %q", c, position, c.Position)
	}
	if len(rows) > inboxes[name].Batch {
		o.w.Faultf("a cycle of %s has the rows %q", name, now.rows)
	}
	for _, i := range rows {
		if want := m.Items[i.ID]; !waits(want) || rowText(want) != rowText(i) || want.To != name || groupOf(want) != groupOf(rows[0]) {
			o.w.Faultf("a cycle of %s of the group %q gets the row %s, want %s", name, groupOf(rows[0]), rowText(i), optional(want))
		}
		t, _ := taskOf(i.Content)
		now.tasks, now.last = append(now.tasks, t), t
	}
	now.done = rows[0].Request != "" && m.replyTo(rows[0]) != nil
	var want, got, numbers []string
	line := func(i *inbox.Message) {
		role := chat.RoleUser
		switch {
		case i.From == name && i.To != name:
			role = chat.RoleAssistant
		case i.Role == chat.RoleSystem:
			role = chat.RoleSystem
		}
		want = append(want, fmt.Sprint(i.ID, " ", role, " ", i.Content))
	}
	if name != shop {
		for _, i := range m.history(name) {
			line(i)
		}
	}
	for _, i := range rows {
		line(i)
	}
	for _, msg := range prompt {
		got = append(got, fmt.Sprint(msg.ID, " ", msg.Role, " ", msg.PlainText()))
		if t, ok := taskOf(msg.PlainText()); ok {
			numbers = append(numbers, fmt.Sprint(t.Number))
		}
	}
	now.prompt, now.owner = strings.Join(numbers, " "), o.incarnation
	now.asked = fmt.Sprintf("%s, %q", position, want[len(want)-len(rows):])
	if !slices.Equal(got, want) {
		o.w.Faultf("the prompt of %s is %q, want %q", name, got, want)
	}
}

// end makes the end of a cycle in the model: its rows are processed, and there is a reply, unless the request has one.
func (o *office) end(ctx context.Context, m *model, now *cycle) error {
	c := m.callWith(now.inbox, now.rows[0])
	if c == nil && now.again {
		c = &call{}
	}
	if c == nil {
		o.w.Faultf("a cycle of %s ends with the rows %q, which are in no call", now.inbox, now.rows)
		return nil
	}
	c.Keys = slices.DeleteFunc(c.Keys, func(key string) bool { return slices.Contains(now.rows, key) })
	if now.inbox != shop {
		if err := o.endReply(ctx, m, now); err != nil {
			return err
		}
	}
	o.w.Compared()
	return o.save(ctx, m)
}

func (o *office) endReply(ctx context.Context, m *model, now *cycle) error {
	last := m.Items[now.rows[len(now.rows)-1]]
	want := &inbox.Message{
		Role: chat.RoleAssistant, From: now.inbox, To: last.From, Created: time.Now(), Processed: time.Now(), InReplyTo: last.Request, Content: "re " + now.prompt,
	}
	if now.inbox == "cook" {
		want.Generation = "some"
	}
	answered := last.Request != "" && m.replyTo(last) != nil
	for _, key := range now.rows {
		i := *m.Items[key]
		if i.From != want.To {
			want.To = ""
		}
		i.Processed = time.Now()
		m.Items[key] = &i
	}
	found, err := o.items(ctx)
	if err != nil {
		return err
	}
	var inserted []*inbox.Message
	for id, i := range found {
		if m.Items[id] == nil {
			inserted = append(inserted, i)
			want.ID = id
		}
	}
	if len(inserted) == 1 && slices.Contains(o.w.texts(now), inserted[0].Content) { // of an earlier attempt, with an earlier conversation
		want.Content = inserted[0].Content
	}
	switch {
	case answered && len(inserted) > 0:
		o.w.Faultf("a second reply to a request is %s", rowText(inserted[0]))
	case answered:
		return nil
	case len(inserted) != 1 || rowText(inserted[0]) != rowText(want):
		o.w.Faultf("a cycle inserts %d messages, want %s", len(inserted), rowText(want))
		for _, i := range inserted {
			o.w.Faultf("it inserts %s", rowText(i))
		}
		return nil
	case now.inbox == "cook" && !o.w.hasStamp(now.stamp()):
		o.w.Faultf("the reply %s is without the effect of its tool", rowText(inserted[0]))
	}
	m.Items[want.ID] = inserted[0]
	return o.checkAnswer(ctx, inserted[0])
}

// finishJobs is the Respond of the inbox of jobs. It deletes the rows, or marks them, and sends a message to an agent.
func (o *office) finishJobs(ctx context.Context, group string, pending []dohost.Row[job]) error {
	m, err := o.load(ctx)
	if err != nil {
		return err
	}
	for n, row := range pending {
		if n%2 == 0 {
			_, err = jobs.Delete(ctx, o.Storage(), row.Key)
			delete(m.Items, row.Key)
		} else {
			_, err = jobs.Update(ctx, o.Storage(), row.Key, func(j *job) error { j.Done = true; return nil })
			row.Value.Done = true
			m.Items[row.Key] = row.Value.item()
		}
		if err != nil {
			return err
		}
	}
	t, _ := taskOf(pending[0].Value.Content)
	if m.Next < maxNumber && group == "g0" {
		msg := inbox.Message{ID: fmt.Sprint("job", t.Number), Role: chat.RoleUser, From: shop, To: names[t.Number%3], Request: row0(pending), Created: time.Now(), Content: m.newTask(0, nil)}
		if _, err := inbox.Send(ctx, o.Storage(), &messages, msg); err != nil {
			return err
		}
		m.Items[msg.ID] = &msg
	}
	return o.save(ctx, m)
}

func row0(rows []dohost.Row[job]) string { return rows[0].Key }

// failed counts a cycle that failed.
func (o *office) failed(ctx context.Context, name string, keys []string, why error) error {
	if !expected(ctx, why) {
		o.w.Faultf("a cycle of %s fails: %v", name, why)
	}
	m, err := o.read(ctx)
	if err != nil {
		return err
	}
	for _, c := range m.Calls {
		if c.Inbox == name && c.State == agent.RowsRunning && (len(keys) == 0 || slices.Contains(c.Keys, keys[0])) {
			c.Failures++
			c.Touched = c.Touched || len(keys) == 0
		}
	}
	return o.save(ctx, m)
}

// postponed records that the end of a cycle counts as no attempt.
func (o *office) postponed(ctx context.Context, now *cycle) error {
	m, err := o.load(ctx)
	if err != nil {
		return err
	}
	if c := m.callWith(now.inbox, now.rows[0]); c != nil {
		c.Postponed = true
	}
	return o.save(ctx, m)
}
