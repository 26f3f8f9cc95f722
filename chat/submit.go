package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
)

// submit accepts a client's request as the policy decides, and sets the Users of its row. changed reports whether the
// conversation has changed, and merged whether the policy has merged waiting messages into the client's message.
func (k *conversation) submit(ctx context.Context, row *replyRow, sent []Message) (dropped, changed, merged bool, err error) {
	if row.Users, err = k.messages.usersOf(ctx, sent); err != nil {
		return false, false, false, err
	}
	store := func(ctx context.Context) (err error) {
		changed, err = k.messages.merge(ctx, sent, true)
		return err
	}
	if !row.Submits {
		err = k.accept(ctx, *row, store)
		return false, changed, false, err
	}
	rows, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "open"})
	if err != nil {
		return false, false, false, err
	}
	open := make([]replyRow, len(rows))
	for i := range rows {
		open[i] = rows[i].Value
	}
	a := k.options().Policy.admit(open)
	if a.drop {
		return true, false, false, nil
	}
	row.NotBefore = k.options().due(time.Now())
	err = dohost.Transaction(ctx, func(ctx context.Context) error {
		for _, r := range open {
			if slices.Contains(a.skip, r.ID) {
				if err := k.stop(ctx, r, StatusSkipped); err != nil {
					return err
				}
			}
		}
		if merged = len(a.merge) > 0 && len(row.Users) > 0; merged {
			if sent, err = k.messages.join(ctx, a.merge, sent, row.Users[len(row.Users)-1]); err != nil {
				return err
			}
			if row.Users, err = k.messages.usersOf(ctx, sent); err != nil {
				return err
			}
		}
		return k.accept(ctx, *row, store)
	})
	return false, changed, merged, err
}

// usersOf returns the ids of the user's messages at the end of a client's list. It skips messages that the client may
// not write, since their ids may belong to other messages.
func (k *storedMessages) usersOf(ctx context.Context, sent []Message) (ids []string, err error) {
	current, replying, err := k.conv.running(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range slices.Backward(sent) {
		row, stored, err := messages.Get(ctx, k.store(), m.ID)
		if err != nil {
			return nil, err
		}
		if replying && m.ID == current.Message || !uimessage.MayWrite(row, stored, &m, k.options().SystemFromClients) {
			continue
		}
		if m.Role != RoleUser {
			break
		}
		ids = append(ids, m.ID)
	}
	slices.Reverse(ids)
	return ids, nil
}

// join merges the user's waiting messages into the sent message with the id last.
func (k *storedMessages) join(ctx context.Context, waiting []string, sent []Message, last string) ([]Message, error) {
	var earlier []Message
	waits := map[string]bool{}
	for _, id := range waiting {
		row, ok, err := messages.Get(ctx, k.store(), id)
		if err != nil {
			return nil, err
		}
		if ok && row.Role != RoleUser {
			continue
		}
		waits[id] = true
		if !ok {
			continue
		}
		m, err := row.Message()
		if err != nil {
			return nil, err
		}
		earlier = append(earlier, m)
		if err := k.deleteMessages(ctx, id); err != nil {
			return nil, err
		}
	}
	at := 0
	for i := range sent {
		if sent[i].ID == last {
			at = i
		}
	}
	kept := slices.Delete(slices.Clone(sent), at, at+1)
	kept = slices.DeleteFunc(kept, func(m Message) bool { return waits[m.ID] })
	return append(kept, uimessage.Join(earlier, sent[at])), nil
}

// accept stores a request and, by store, its messages. It begins to answer the request if no other is being answered.
func (k *conversation) accept(ctx context.Context, row replyRow, store func(context.Context) error) error {
	size := len(row.ID) + len(row.Body) + len(row.Tools)
	for _, id := range row.Users {
		size += len(id)
	}
	if size > maxRequest {
		return &dohost.LimitError{Subject: "request without its messages", Size: size, Limit: maxRequest}
	}
	return dohost.Transaction(ctx, func(ctx context.Context) (err error) {
		if err := store(ctx); err != nil {
			return err
		}
		if row.Asked == nil { // it has neither, and the next continuation of a user's message needs those of the user's request
			if err := notes.Put(ctx, k.store(), noteRow{Name: requestNote, Body: row.Body, Tools: row.Tools}); err != nil {
				return err
			}
		}
		return k.insertReply(ctx, row)
	})
}

// merge stores the list of a client, as far as the client may write it, and reports whether that changes anything. The
// message of the running reply belongs to the server: a client has at most the beginning of it.
func (k *storedMessages) merge(ctx context.Context, sent []Message, mayDelete bool) (changed bool, err error) {
	if len(sent) == 0 {
		return false, nil
	}
	before, err := extent(ctx, k.store())
	if err != nil {
		return false, err
	}
	rows, err := k.rowsOf(ctx)
	if err != nil {
		return false, err
	}
	current, ok, err := k.conv.running(ctx)
	if err != nil {
		return false, err
	}
	if ok {
		sent = slices.DeleteFunc(slices.Clone(sent), func(m Message) bool { return m.ID == current.Message })
		delete(rows, current.Message)
	}
	system := k.options().SystemFromClients
	list, ids := uimessage.Writable(rows, sent, system)
	if n := len(sent) - len(list); n > 0 {
		k.object().Report(ctx, "chat:refused", slog.Int("messages", n))
	}
	stored, differ, err := uimessage.ChangedMessages(rows, list)
	if err != nil {
		return false, err
	}
	rules, err := k.calls.callRules(ctx, len(differ) > 0)
	if err != nil {
		return false, err
	}
	for _, m := range uimessage.Reconcile(stored, differ, rules) {
		if m, err = k.asked.keepAnswer(ctx, rows[m.ID], m); err != nil {
			return false, err
		}
		if err := checkReserve(&m); err != nil {
			return false, err
		}
		put, err := k.putReplacing(ctx, rows[m.ID], m, 0, "")
		if err != nil {
			return false, err
		}
		changed = changed || put
	}
	if mayDelete {
		removed, err := k.asked.withoutRequests(ctx, rows, uimessage.RemovedIDs(rows, ids, system))
		if err != nil {
			return false, err
		}
		if err := k.deleteMessages(ctx, removed...); err != nil {
			return false, err
		}
		changed = changed || len(removed) > 0
	}
	if err := k.trim(ctx); err != nil || !changed {
		return changed, err
	}
	return true, k.checkSize(ctx, before.Bytes)
}

// resultReserve is the space, in bytes, that a client must leave in a message with a call that waits: for its result or its error.
const resultReserve = 64 << 10

// checkReserve returns an error for a message of a client without the reserve, or with calls whose results would be shortened.
func checkReserve(m *Message) error {
	what, most := "message with tool calls", maxMessage
	switch {
	case !slices.ContainsFunc(m.Parts, uimessage.IsCall):
		return nil
	case slices.ContainsFunc(m.Parts, uimessage.IsPending):
		what, most = "message with a call that waits", maxMessage-resultReserve
	}
	raw, err := json.Marshal(m)
	if err == nil && len(raw) > most {
		err = &dohost.LimitError{Subject: what, Size: len(raw), Limit: most}
	}
	return err
}

func (k *storedMessages) rowsOf(ctx context.Context) (map[string]messageRow, error) {
	rows := map[string]messageRow{}
	for row, err := range messages.All(ctx, k.store(), &dohost.Query[messageRow]{}) {
		if err != nil {
			return nil, err
		}
		rows[row.Key] = row.Value
	}
	return rows, nil
}

// setMessages stores a client's list of the conversation.
func (k *conversation) setMessages(ctx context.Context, conn *agent.Conn, data []byte) error {
	var f map[string]json.RawMessage // checkFrame has bounded its members
	var list []Message
	err := json.Unmarshal(data, &f)
	if err == nil {
		list, err = uimessage.ParseList(rawjson.OrNull(f["messages"]))
	}
	if err != nil {
		k.object().Report(ctx, "chat:refused", slog.Any("err", err))
		return nil
	}
	changed := false
	err = dohost.Transaction(ctx, func(ctx context.Context) (err error) {
		changed, err = k.messages.merge(ctx, list, false)
		return err
	})
	if _, large := errors.AsType[*dohost.LimitError](err); large || errors.Is(err, errNesting) {
		return k.calls.sendRefusal(ctx, conn, err)
	}
	if noSpace(err) {
		return k.calls.sendRefusal(ctx, conn, fmt.Errorf("chat: the messages are not stored: %w", err))
	}
	if err != nil || !changed {
		return err
	}
	return k.clients.broadcastTranscript(ctx, k.clients.openConns(conn))
}
