package randask

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/randtest"
)

// run executes a program, as one event. It returns the number of the changes of the letters.
func (o *askObject) run(ctx context.Context, p Program) (end int, err error) {
	return p.Run(func(name string, list []Instr) error {
		return randtest.Execute(ctx, &o.w.StoredReport, name, list, Instr.control, o.step)
	}, func() (int, error) { return o.end(ctx) })
}

// step executes an instruction.
func (o *askObject) step(ctx context.Context, name string, in Instr) error {
	defer o.w.Compared()
	if o.w.Fault != nil && o.w.Fault(o.incarnation, in) {
		o.w.Faultf("%s: %s is not as expected", name, randtest.Literal(in))
	}
	switch in.Op {
	case Send:
		return o.send(ctx, in)
	case Repeat, Edit, Delete:
		return o.change(ctx, in)
	case Retry:
		parked, err := o.Rows().List(ctx, &agent.RowsQuery{State: agent.RowsParked})
		if c, ok := randtest.At(parked, in.K); ok && err == nil {
			o.w.retry(o.name())
			_, err = o.Rows().Retry(ctx, c.ID)
		}
		return err
	case Release:
		o.w.release()
		return nil
	case WaitReply:
		return o.waitReply(ctx, name, in)
	case Sleep:
		return dohost.Sleep(ctx, time.Duration(in.N)*time.Millisecond+apart(in.K))
	case Sync:
		return o.Storage().Sync(ctx)
	}
	return dohost.Await(ctx, func(context.Context) error { return nil })
}

// maxTasks bounds the tasks of a run that programs send.
const maxTasks = 30

// send sends a message with a new task.
func (o *askObject) send(ctx context.Context, in Instr) error {
	to, _ := place(in.K)
	t, ok := o.w.newTask(o.name(), to, in)
	if !ok {
		return nil
	}
	m := inbox.Message{ID: "m" + t.Name, To: to, From: []string{"ada", "bob", ""}[in.N%3], Content: encode(t)}
	if in.N/3%4 > 0 {
		m.Request = "q" + t.Name
		if in.N%5 == 0 {
			m.Request = fmt.Sprint("r", in.K%2)
		}
		m.Deadline = deadlineOf(in.N/1188, t)
	}
	_, err := inbox.Send(ctx, o.Storage(), &letters, m)
	return err
}

func deadlineOf(n int, t task) time.Time {
	ms := deadlines[n%len(deadlines)]
	if ms == 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(ms)*time.Millisecond + offset(t))
}

// all returns the rows that f selects: the questions of agents first, in the order of their times.
func (o *askObject) all(ctx context.Context, f func(*inbox.Message) bool) (list []*inbox.Message, err error) {
	for row, err := range letters.All(ctx, o.Storage(), nil) {
		if err != nil {
			return nil, err
		}
		if m := row.Value; f(&m) {
			list = append(list, &m)
		}
	}
	slices.SortStableFunc(list, func(a, b *inbox.Message) int {
		if asks := len(b.Path) - len(a.Path); asks != 0 {
			return asks
		}
		return a.Created.Compare(b.Created)
	})
	return list, nil
}

// change executes an instruction that depends on a message.
func (o *askObject) change(ctx context.Context, in Instr) error {
	if in.Op == Delete {
		other := objects[max(in.N, 0)%len(objects)]
		if in.N < 0 || other == o.name() {
			return o.remove(ctx, in.K)
		}
		_, err := dohost.Call(ctx, askObjects.Get(o.Object(), other), (*askObject).removeFor, in.K)
		return err
	}
	list, err := o.all(ctx, func(m *inbox.Message) bool {
		return len(m.Path) == 0 && m.Role == chat.RoleUser && (in.Op == Edit && waits(m) || in.Op == Repeat && m.Request != "")
	})
	slices.Reverse(list)
	m, ok := randtest.At(list, in.K)
	if err != nil || !ok {
		return err
	}
	t, ok := o.w.newTask(o.name(), m.To, in)
	if !ok {
		return nil
	}
	if in.Op == Repeat {
		_, err := inbox.Send(ctx, o.Storage(), &letters, inbox.Message{
			ID: "m" + t.Name, To: m.To, From: m.From, Request: m.Request, Content: encode(t), Deadline: deadlineOf(in.N, t),
		})
		return err
	}
	_, err = letters.Update(ctx, o.Storage(), m.ID, func(m *inbox.Message) error {
		switch {
		case in.N%3 > 0:
			m.Content = encode(t)
		case m.Request != "":
			m.Deadline = deadlineOf(in.N/3, t)
		}
		return nil
	})
	return err
}

// remove deletes a message that waits: the questions of agents are the first.
func (o *askObject) remove(ctx context.Context, k int) error {
	list, err := o.all(ctx, waits)
	if m, ok := randtest.At(list, k); ok && err == nil {
		_, err = letters.Delete(ctx, o.Storage(), m.ID)
	}
	return err
}

// removeFor is remove for a program of another object.
func (o *askObject) removeFor(ctx context.Context, k int) (struct{}, error) {
	return struct{}{}, o.remove(ctx, k)
}

// errWaited ends a wait for a reply.
var errWaited = errors.New("the reply is late")

// waitReply compares the result of a wait with the rows.
func (o *askObject) waitReply(ctx context.Context, name string, in Instr) error {
	list, err := o.all(ctx, func(m *inbox.Message) bool { return m.Request != "" })
	asked, ok := randtest.At(list, in.K)
	if err != nil || !ok {
		return err
	}
	limited, cancel := context.WithTimeoutCause(ctx, time.Duration(in.N)*100*time.Millisecond+apart(in.K), errWaited)
	defer cancel()
	got, err := inbox.WaitReply(limited, o, &letters, *asked)
	now := time.Now()
	if err != nil && !errors.Is(err, inbox.ErrNoReply) {
		if errors.Is(err, errWaited) {
			return nil
		}
		return err
	}
	replies, err2 := o.all(ctx, func(m *inbox.Message) bool {
		return m.Role == chat.RoleAssistant && m.InReplyTo == asked.Request && m.From == asked.To && m.To == asked.From
	})
	if err2 != nil {
		return err2
	}
	stored, exists, err2 := letters.Get(ctx, o.Storage(), asked.ID)
	if err2 != nil {
		return err2
	}
	parked, err2 := o.Rows().Parked(ctx, letters.Name, asked.ID)
	if err2 != nil {
		return err2
	}
	late := exists && !stored.Value.Deadline.IsZero() && !now.Before(stored.Value.Deadline)
	switch {
	case err == nil && (len(replies) != 1 || text(replies[0]) != text(&got)):
		o.w.Faultf("%s: WaitReply for %s returns %s, and there are %d replies", name, text(asked), text(&got), len(replies))
	case err != nil && len(replies) > 0:
		o.w.Faultf("%s: WaitReply for %s, which has the reply %s: %v", name, text(asked), text(replies[0]), err)
	case err != nil && exists && !parked && errors.Is(err, inbox.ErrExpired) != (late || stored.Value.Expired):
		o.w.Faultf("%s: WaitReply for %s at %s: %v", name, text(&stored.Value), clock(now), err)
	}
	return nil
}
