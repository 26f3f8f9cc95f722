package randinbox

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

// names are the receivers of messages. No agent has the last one.
var names = []string{"clerk", "cook", "planner", "clerk", "cook", "nobody"}

// senders are the senders of the messages of programs that no cycle runs.
var senders = []string{"ada", "bob", "", "ada", "clerk"}

// insert executes an instruction that inserts rows.
func (x *execution) insert(ctx context.Context, m *model, in Instr) error {
	switch in.Op {
	case Repeat:
		list := m.sorted(func(i *inbox.Message) bool { return waits(i) && !isJob(i) })
		if i, ok := randtest.At(list, in.K); ok {
			return x.sendMessage(ctx, m, *i)
		}
		return nil
	case Shape:
		return x.shape(ctx, m, in)
	}
	for n := range 1 + in.N/10%3 {
		var err error
		if in.Op == Put {
			err = x.put(ctx, m, in, n)
		} else {
			err = x.sendMessage(ctx, m, x.message(m, in, n))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// message returns message n of a Send.
func (x *execution) message(m *model, in Instr, n int) inbox.Message {
	msg := inbox.Message{To: names[in.K], From: senders[(in.N+n)%len(senders)], Created: time.Now().Add(-time.Duration((in.N+n)%4) * time.Second)}
	if x.cycle != "" {
		msg.From = x.cycle
	}
	if (in.N+n)%3 > 0 {
		msg.Request = fmt.Sprint("r", (in.N+n)%5)
	}
	if in.N%11 == 0 {
		msg.Role = chat.RoleSystem
	}
	msg.Content = m.newTask(in.N, in.Body)
	msg.ID = fmt.Sprint("n", m.Next)
	if in.N%4 == 0 { // one of few, which may be stored
		msg.ID = fmt.Sprint("m", (in.K+n)%4)
	}
	return msg
}

// sendMessage sends a message, which is refused if its id is stored.
func (x *execution) sendMessage(ctx context.Context, m *model, msg inbox.Message) error {
	sent, err := inbox.Send(ctx, x.Storage(), &messages, msg)
	if _, stored := m.Items[msg.ID]; stored {
		if !errors.Is(err, dohost.ErrConflict) && !randtest.Ended(ctx, err) {
			x.w.Faultf("%s: a second message %s: %v", x.name, msg.ID, err)
		}
		if errors.Is(err, dohost.ErrConflict) {
			return nil
		}
		return err
	}
	if err != nil {
		return err
	}
	if msg.Role == "" {
		msg.Role = chat.RoleUser
	}
	if rowText(&sent) != rowText(&msg) {
		x.w.Faultf("%s: Send returns %s, want %s", x.name, rowText(&sent), rowText(&msg))
	}
	m.Items[msg.ID] = &msg
	return x.save(ctx, m)
}

// shape inserts a row to an agent that is no work: it has a field of a reply.
func (x *execution) shape(ctx context.Context, m *model, in Instr) error {
	m.Next++
	msg := inbox.Message{ID: fmt.Sprint("n", m.Next), Role: chat.RoleUser, From: "forger", To: names[in.K], Content: "no work", Created: time.Now()}
	switch in.N % 3 {
	case 0:
		msg.Role = chat.RoleAssistant
	case 1:
		msg.InReplyTo = "r1"
	case 2:
		msg.Processed = time.Now()
	}
	if err := messages.Insert(ctx, x.Storage(), msg); err != nil {
		return err
	}
	m.Items[msg.ID] = &msg
	return x.save(ctx, m)
}

// put writes job n of a Put, also over one that exists.
func (x *execution) put(ctx context.Context, m *model, in Instr, n int) error {
	j := job{ID: fmt.Sprint("j", (in.K+n)%5), Rank: 1 + (in.N+n)%3, Group: fmt.Sprint("g", (in.N+n)%2), Content: m.newTask(in.N+n, in.Body)}
	if err := jobs.Put(ctx, x.Storage(), j); err != nil {
		return err
	}
	m.Items[j.ID] = j.item()
	m.written(shop, j.ID, x.cycle != "", x.incarnation)
	return x.save(ctx, m)
}

// change executes an instruction that changes pending rows.
func (x *execution) change(ctx context.Context, m *model, in Instr) error {
	if in.Op == Retry {
		c, ok := randtest.At(m.Calls, in.K)
		if !ok || c.Touched || x.cycle != "" { // cycles that revive each other never end
			return nil
		}
		existed, err := x.Rows().Retry(ctx, c.ID)
		if err != nil {
			return err
		}
		if existed != (c.State != agent.RowsRunning) {
			x.w.Faultf("%s: Retry of %v returns %t", x.name, c, existed)
		}
		if existed {
			c.reset(x.incarnation)
		}
		return x.save(ctx, m)
	}
	i, ok := randtest.At(m.pending(), in.K)
	if !ok || in.Op == Edit && m.Next >= maxNumber {
		return nil
	}
	if c := m.callWith(i.To, i.ID); (in.Op == Delete || in.Op == Reinsert) && i.To == x.cycle && c != nil && c.State == agent.RowsRunning {
		return nil // it would not be new work if the same cycle inserted it again
	}
	now := *i
	var err error
	switch in.Op {
	case Delete:
		err = x.remove(ctx, i)
		delete(m.Items, i.ID)
	case Reinsert:
		err = x.reinsert(ctx, m, i)
	default:
		if in.N%4 > 0 {
			now.Content = m.newTask(in.N, in.Body)
		}
		if in.N%4 > 1 && now.To != shop {
			now.Request = [...]string{"", "r1", "r2"}[in.N/4%3]
		}
		err = x.update(ctx, &now)
		m.Items[i.ID] = &now
	}
	if err != nil {
		return err
	}
	m.written(i.To, i.ID, x.cycle != "", x.incarnation)
	return x.save(ctx, m)
}

// reinsert deletes a row, and inserts it again.
func (x *execution) reinsert(ctx context.Context, m *model, i *inbox.Message) error {
	if err := x.remove(ctx, i); err != nil {
		return err
	}
	delete(m.Items, i.ID)
	m.written(i.To, i.ID, x.cycle != "", x.incarnation)
	m.Items[i.ID] = i
	if now := x.cycles[i.To]; now != nil && slices.Contains(now.rows, i.ID) {
		now.again = true // it may end as if the row had not left
	}
	if i.To != shop {
		return messages.Insert(ctx, x.Storage(), *i)
	}
	return jobs.Insert(ctx, x.Storage(), job{ID: i.ID, Rank: int(i.Created.Unix()), Group: i.From, Content: i.Content})
}

func (x *execution) remove(ctx context.Context, i *inbox.Message) error {
	of := messages.Delete
	if i.To == shop {
		of = jobs.Delete
	}
	existed, err := of(ctx, x.Storage(), i.ID)
	if err == nil && !existed {
		x.w.Faultf("%s: %s does not exist", x.name, rowText(i))
	}
	return err
}

func (x *execution) update(ctx context.Context, now *inbox.Message) (err error) {
	if now.To == shop {
		_, err = jobs.Update(ctx, x.Storage(), now.ID, func(j *job) error { j.Content = now.Content; return nil })
		return err
	}
	_, err = messages.Update(ctx, x.Storage(), now.ID, func(m *inbox.Message) error {
		m.Content, m.Request = now.Content, now.Request
		return nil
	})
	return err
}

// reply compares the reply to a request with the model.
func (x *execution) reply(ctx context.Context, m *model, in Instr) error {
	asked, ok := randtest.At(m.requests(), in.K)
	if !ok {
		return nil
	}
	got, ok, err := inbox.Reply(ctx, x.Storage(), &messages, *asked)
	if err != nil {
		return err
	}
	if want := m.replyTo(asked); ok != (want != nil) || ok && rowText(&got) != rowText(want) {
		x.w.Faultf("%s: Reply to %s returns %t, %s", x.name, rowText(asked), ok, rowText(&got))
	}
	return nil
}

// errLate ends a wait for a reply.
var errLate = errors.New("the reply is late")

func (x *execution) waitReply(ctx context.Context, m *model, in Instr) error {
	asked, ok := randtest.At(m.requests(), in.K)
	if !ok {
		return nil
	}
	c := m.callWith(asked.To, asked.ID)
	parked := c != nil && c.State == agent.RowsParked && m.replyTo(asked) == nil
	limit := time.Duration(in.N)*100*time.Millisecond + apart(in.N)
	limited, cancel := context.WithTimeoutCause(ctx, limit, errLate)
	defer cancel()
	begun := time.Now()
	got, err := inbox.WaitReply(limited, x, &messages, *asked)
	if own := x.cycle == asked.To; own || errors.Is(err, dohost.ErrMisuse) {
		if own != errors.Is(err, dohost.ErrMisuse) && !randtest.Ended(ctx, err) {
			x.w.Faultf("%s: WaitReply in a cycle of %q for %s: %v", x.name, x.cycle, rowText(asked), err)
		}
		if errors.Is(err, dohost.ErrMisuse) {
			return nil
		}
		return err
	}
	if err != nil && !errors.Is(err, errLate) && !errors.Is(err, inbox.ErrNoReply) {
		return err
	}
	if m, err2 := x.load(ctx); err2 != nil {
		return err2
	} else if err == nil {
		if want := m.replyTo(asked); want == nil || rowText(&got) != rowText(want) {
			x.w.Faultf("%s: WaitReply for %s returns %s", x.name, rowText(asked), rowText(&got))
		}
		return nil
	} else if errors.Is(err, inbox.ErrNoReply) {
		return x.noReply(m, asked)
	}
	if want := m.replyTo(asked); parked || time.Since(begun) < limit || want != nil && time.Since(want.Processed) > time.Second {
		x.w.Faultf("%s: WaitReply for %s is late after %v", x.name, rowText(asked), time.Since(begun))
	}
	return nil
}

// noReply checks that no agent answers a request: its row was deleted, marked or is parked, or there is no such agent.
func (x *execution) noReply(m *model, asked *inbox.Message) error {
	c := m.callWith(asked.To, asked.ID)
	switch {
	case m.replyTo(asked) != nil:
	case m.Items[asked.ID] == nil, c != nil && c.State == agent.RowsParked:
		return nil
	case !waits(m.Items[asked.ID]), asked.To == "nobody":
		return nil
	}
	x.w.Faultf("%s: WaitReply returns no reply for %s, which is in %v", x.name, rowText(asked), c)
	return nil
}

// drain waits until no row is pending, or for a limit.
func (x *execution) drain(ctx context.Context, in Instr) error {
	limits := agent.DrainOptions{MaxCycles: 1 + in.N%4, MaxTime: time.Duration(in.N)*100*time.Millisecond + apart(in.N)}
	if in.N%3 == 0 {
		limits.MaxTime = -1
	}
	begun := time.Now()
	got, err := x.Rows().Drain(ctx, &limits)
	if x.cycle != "" {
		if !errors.Is(err, dohost.ErrMisuse) && !randtest.Ended(ctx, err) {
			x.w.Faultf("%s: Drain in a cycle: %v", x.name, err)
		}
		if errors.Is(err, dohost.ErrMisuse) {
			return nil
		}
		return err
	}
	if err != nil {
		return err
	}
	m, err := x.load(ctx)
	if err != nil {
		return err
	}
	pending := m.unfinished()
	switch late := limits.MaxTime >= 0 && time.Since(begun) >= limits.MaxTime; {
	case got.Work == agent.WorkDone && len(pending) > 0:
		x.w.Faultf("%s: Drain has completed, and %q are pending", x.name, pending)
	case got.Work == agent.WorkPending && got.Cycles < limits.MaxCycles && !late:
		x.w.Faultf("%s: Drain returns %+v after %v, with the limits %+v", x.name, got, time.Since(begun), limits)
	}
	return nil
}

// unfinished returns the ids of the rows that an agent still has to work on: they wait, and are not parked.
func (m *model) unfinished() (ids []string) {
	for _, i := range m.pending() {
		if _, ok := inboxes[i.To]; !ok {
			continue
		}
		if c := m.callWith(i.To, i.ID); c == nil || c.State != agent.RowsParked {
			ids = append(ids, i.ID)
		}
	}
	return slices.Clip(ids)
}
