package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/streams/consumer"
)

// Tickets is the namespace of Ticket objects.
const Tickets dohost.Namespace[Ticket] = "ticket"

// Ticket takes the messages of a stream, and answers them.
type Ticket struct {
	*agent.Agent[struct{}]
	server string
}

// Message is a message of a ticket.
type Message struct {
	Number   int // from 1, in the order of the stream
	Text     string
	Answered bool
}

var messages = dohost.Collection[Message]{
	Name: "messages",
	Key:  func(m Message) string { return string(dohost.KeyOf(int64(m.Number))) },
	Indexes: []dohost.Index[Message]{{Name: "open", Of: func(m Message) dohost.Key {
		if m.Answered {
			return ""
		}
		return dohost.KeyOf(int64(m.Number))
	}}},
}

// Class returns the class of tickets whose streams are at a server.
func Class(server string) dohost.Class {
	return agent.Bind(Tickets,
		func(_ context.Context, a *agent.Agent[struct{}]) (*Ticket, error) {
			return &Ticket{a, strings.TrimSuffix(server, "/")}, nil
		}, nil,
		agent.OnRowBatch(&messages, "open", (*Ticket).answer, &agent.RowsOptions{Retry: dohost.RetryPolicy{MaxAttempts: -1, MaxDelay: 5 * time.Second}}))
}

// nameOf returns the name of the ticket of a stream.
func nameOf(path string) string {
	name, ok := strings.CutPrefix(path, "tickets/")
	if !ok || strings.Contains(name, "/") {
		return ""
	}
	return name
}

// Take stores messages as rows. The agent answers each row of the index "open", also after a crash.
func (t *Ticket) Take(ctx context.Context, b *consumer.Batch) error {
	number, _, err := dohost.Get[int](ctx, t.Storage(), "messages")
	if err != nil {
		return err
	}
	for _, m := range b.Messages {
		number++
		if err := messages.Insert(ctx, t.Storage(), Message{Number: number, Text: string(m)}); err != nil {
			return err
		}
	}
	return dohost.Put(ctx, t.Storage(), "messages", number)
}

// answer answers all open messages up to the last one of the rows. Messages before the rows are those of a call that has failed and waits: the
// stream of answers would refuse the later ones without them.
func (t *Ticket) answer(ctx context.Context, rows []dohost.Row[Message]) error {
	for last := rows[len(rows)-1].Value.Number; ; {
		open, err := messages.List(ctx, t.Storage(), &dohost.Query[Message]{Index: "open", Limit: 1})
		if err != nil || len(open) == 0 || open[0].Value.Number > last {
			return err
		}
		if err := t.answerOne(ctx, open[0].Value); err != nil {
			return err
		}
	}
}

// answerOne appends an answer to the stream of answers. The ticket is an idempotent producer, so a repeated answer is appended once.
func (t *Ticket) answerOne(ctx context.Context, m Message) error {
	text, err := json.Marshal(fmt.Sprintf("about %s: we are on it", m.Text))
	if err != nil {
		return err
	}
	stream := t.server + "/answers/" + t.Name()
	err = dohost.Await(ctx, func(ctx context.Context) error {
		if err := send(ctx, http.MethodPut, stream, nil, nil); err != nil {
			return err
		}
		return send(ctx, http.MethodPost, stream, text, map[string]string{
			"Producer-Id": "ticket", "Producer-Epoch": "0", "Producer-Seq": fmt.Sprint(m.Number - 1),
		})
	})
	if err != nil {
		return err
	}
	m.Answered = true
	return messages.Put(ctx, t.Storage(), m)
}

// List returns the messages of the ticket.
func (t *Ticket) List(ctx context.Context) (list []Message, err error) {
	rows, err := messages.List(ctx, t.Storage(), nil)
	for _, row := range rows {
		list = append(list, row.Value)
	}
	return list, err
}

// send sends a request to the server of streams.
func send(ctx context.Context, method, to string, body []byte, header map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer w.Body.Close()
	if w.StatusCode > 299 {
		text, err := io.ReadAll(io.LimitReader(w.Body, 200))
		return fmt.Errorf("%s %s: %d %s %v", method, to, w.StatusCode, text, err)
	}
	return nil
}
