package randask

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/inbox"
)

// history has the changes of the letters of all objects, which are committed.
type history struct {
	w        *Observer
	messages []*messageHistory           // to agents
	replies  map[string][]*inbox.Message // by object
	parked   map[string]parkedRow
}

// messageHistory is a message from its insertion to its deletion, or to the end of the run.
type messageHistory struct {
	object  string
	first   inbox.Message // as it was inserted
	last    inbox.Message // as it was then
	deleted time.Time     // zero: it is there
}

// parkedRow is a row that is parked at the end of the run.
type parkedRow struct {
	agent.RowsInfo
	since time.Time // zero if that is not known
}

// read reads the changes of an object, and its calls that have not ended.
func (h *history) read(ctx context.Context, o *askObject) error {
	var changes []dohost.Change
	var at dohost.Position
	for {
		list, err := feed.Read(ctx, o.Storage(), at, 1000)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			break
		}
		changes, at = append(changes, list...), list[len(list)-1].Position
	}
	for _, c := range changes {
		if err := h.add(o.name(), c); err != nil {
			return err
		}
	}
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	if n := h.w.acknowledged[o.name()]; len(changes) < n {
		h.w.Faultf("%s has %d changes, and %d were acknowledged", o.name(), len(changes), n)
	}
	calls, err := o.Rows().List(ctx, &agent.RowsQuery{Limit: 100})
	if err != nil {
		return err
	}
	for _, c := range calls {
		if c.State != agent.RowsParked {
			h.w.Faultf("at rest %s has the call %+v", o.name(), c)
			continue
		}
		for _, key := range c.Keys {
			h.parked[o.name()+"/"+key] = parkedRow{c, h.w.parked[o.name()+"/"+c.ID]}
		}
	}
	pending, err := o.Rows().Pending(ctx)
	if pending {
		h.w.Faultf("at rest rows of %s are pending", o.name())
	}
	return err
}

// add adds a change of a letter.
func (h *history) add(object string, c dohost.Change) error {
	m, ok, err := letters.Value(c)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(h.messages, func(msg *messageHistory) bool {
		return msg.object == object && msg.first.ID == c.Key && msg.deleted.IsZero()
	})
	switch {
	case c.Op == dohost.OpDelete && i >= 0:
		h.messages[i].deleted = c.At
	case !ok:
		return fmt.Errorf("the change %+v of %s has no letter", c, object)
	case m.Role == chat.RoleAssistant && c.Op == dohost.OpInsert:
		h.replies[object] = append(h.replies[object], &m)
	case c.Op == dohost.OpInsert:
		h.messages = append(h.messages, &messageHistory{object: object, first: m, last: m})
	case i >= 0:
		h.messages[i].last = m
	default:
		return fmt.Errorf("%s is changed in %s", text(&m), object)
	}
	return nil
}

// replyTo returns the reply to a request, or nil.
func (h *history) replyTo(object string, asked *inbox.Message) *inbox.Message {
	for _, r := range h.replies[object] {
		if r.InReplyTo == asked.Request && r.From == asked.To && r.To == asked.From {
			return r
		}
	}
	return nil
}
