package chat

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// submit accepts a client's request, as the policy says.
func (k *conversation) submit(ctx context.Context, row *replyRow, sent []Message) (dropped bool, err error) {
	if !row.Submits {
		return false, k.accept(ctx, *row, sent, true)
	}
	rows, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "open"})
	if err != nil {
		return false, err
	}
	open := make([]replyRow, len(rows))
	for i := range rows {
		open[i] = rows[i].Value
	}
	a := k.class.options.Policy.admit(open)
	if a.drop {
		return true, nil
	}
	row.Due = k.class.options.due(time.Now())
	return false, dohost.Transaction(ctx, func(ctx context.Context) error {
		for _, r := range open {
			if slices.Contains(a.skip, r.ID) {
				if err := k.stop(ctx, r, Skipped); err != nil {
					return err
				}
			}
		}
		if len(a.merge) > 0 && len(row.Users) > 0 {
			if sent, err = k.join(ctx, a.merge, sent); err != nil {
				return err
			}
			row.Users = usersAtEnd(sent)
		}
		return k.accept(ctx, *row, sent, true)
	})
}

// join makes one of messages that wait and the last of those that were sent.
func (k *conversation) join(ctx context.Context, waiting []string, sent []Message) ([]Message, error) {
	var earlier []Message
	for _, id := range waiting {
		row, ok, err := messages.Get(ctx, k.store(), id)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		m, err := row.message()
		if err != nil {
			return nil, err
		}
		earlier = append(earlier, m)
		if err := messages.Delete(ctx, k.store(), id); err != nil {
			return nil, err
		}
	}
	last := len(sent) - 1
	kept := slices.DeleteFunc(slices.Clone(sent[:last]), func(m Message) bool { return slices.Contains(waiting, m.ID) })
	return append(kept, joined(earlier, sent[last])), nil
}

// accept stores a request with what came with it, and begins to answer it if no other is being answered.
func (k *conversation) accept(ctx context.Context, row replyRow, sent []Message, mayDelete bool) error {
	size := len(row.ID) + len(row.Body) + len(row.Tools)
	for _, id := range row.Users {
		size += len(id)
	}
	if size > maxRequest {
		return &dohost.LimitError{What: "request without its messages", Size: size, Limit: maxRequest}
	}
	return dohost.Transaction(ctx, func(ctx context.Context) (err error) {
		if err := k.merge(ctx, sent, mayDelete); err != nil {
			return err
		}
		if err := notes.Put(ctx, k.store(), noteRow{Name: requestNote, Body: row.Body, Tools: row.Tools}); err != nil {
			return err
		}
		if row.Number, err = k.nextNumber(ctx); err != nil {
			return err
		}
		if err := replies.Insert(ctx, k.store(), row); err != nil {
			return err
		}
		return k.beginNext(ctx)
	})
}

// merge stores what a client has sent. The message that is being made is the server's: what a client has
// of it is less.
func (k *conversation) merge(ctx context.Context, sent []Message, mayDelete bool) error {
	if len(sent) == 0 {
		return nil
	}
	rows, err := k.rowsOf(ctx)
	if err != nil {
		return err
	}
	being, ok, err := k.running(ctx)
	if err != nil {
		return err
	}
	if ok {
		sent = slices.DeleteFunc(slices.Clone(sent), func(m Message) bool { return m.ID == being.Message })
		delete(rows, being.Message)
	}
	stored, changed, err := differing(rows, sent)
	if err != nil {
		return err
	}
	for _, m := range reconcile(stored, changed) {
		if err := k.putOver(ctx, rows[m.ID], m, 0); err != nil {
			return err
		}
	}
	if mayDelete {
		if err := messages.Delete(ctx, k.store(), deletes(rows, sent)...); err != nil {
			return err
		}
	}
	return k.trim(ctx)
}

func (k *conversation) rowsOf(ctx context.Context) (map[string]messageRow, error) {
	rows := map[string]messageRow{}
	for row, err := range messages.All(ctx, k.store(), &dohost.Query[messageRow]{}) {
		if err != nil {
			return nil, err
		}
		rows[row.Key] = row.Value
	}
	return rows, nil
}

// setMessages stores the list that a client has made of the conversation.
func (k *conversation) setMessages(ctx context.Context, conn *agent.Conn, data []byte) error {
	var f struct {
		Messages []Message `json:"messages"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		k.report(ctx, "chat:refused", "", slog.Any("err", err))
		return nil
	}
	err := dohost.Transaction(ctx, func(ctx context.Context) error { return k.merge(ctx, f.Messages, false) })
	if err != nil {
		return err
	}
	return k.showTranscript(ctx, conn.Is)
}
