// Package room is a chat room: the names of the people in it, and the last lines.
package room

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// Rooms is the namespace of Room objects.
const Rooms dohost.Namespace[Room] = "room"

// Room is a chat room. The list of people in it is not stored: it consists of the open connections. The connections
// outlive the room's time in memory and end with its incarnation, so it never contains a person after the
// connection has closed.
type Room struct{ *agent.Agent[Topic] }

// Topic is a room's state. Everyone in the room may change it.
type Topic struct {
	Topic string `json:"topic"`
}

// Line is a message.
type Line struct {
	Number int       `json:"number"`
	Who    string    `json:"who"`
	Text   string    `json:"text"`
	At     time.Time `json:"at"`
}

const (
	keepLines = 100
	maxName   = 40 // bytes
	maxText   = 4 << 10
)

var lines = dohost.Collection[Line]{
	Name: "lines",
	Key:  func(l Line) string { return string(dohost.KeyOf(l.Number)) },
}

// Class returns the class of rooms, with the methods for clients.
func Class() dohost.Class {
	return agent.Bind(Rooms,
		func(_ context.Context, a *agent.Agent[Topic]) (*Room, error) { return &Room{a}, nil },
		&agent.Handlers[Room, Topic]{
			Initial:   &Topic{"anything"},
			Authorize: authorize,
			OnAccept:  func(_ *Room, r *http.Request) agent.ConnOptions { return agent.ConnOptions{State: nameIn(r)} },
			OnConnect: func(r *Room, ctx context.Context, _ *agent.Conn, _ *http.Request) error { return r.sendNames(ctx) },
			OnClose:   func(r *Room, ctx context.Context, _ *agent.Conn, _ dohost.Closing) error { return r.sendNames(ctx) },
			OnMessage: (*Room).say,
		},
		agent.Callable("who", dohost.NoArg((*Room).names)),
		agent.Callable("lines", (*Room).last))
}

// authorize admits every client, and connections only under a name.
func authorize(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
	name := nameIn(r.Request)
	if r.Kind == dohost.AccessSocket && (name == "" || len(name) > maxName) {
		return dohost.Access{}, &dohost.CloseError{Code: 4000, Reason: fmt.Sprintf("want a name of 1 to %d bytes", maxName)}
	}
	return dohost.Access{Identity: name, Rights: dohost.RightsReadWrite}, nil
}

func nameIn(r *http.Request) string { return r.URL.Query().Get("name") }

// say stores a client's message and sends it to every connection.
func (r *Room) say(ctx context.Context, c *agent.Conn, f dohost.Frame) error {
	if !f.Text || len(f.Data) > maxText {
		return c.Close(ctx, 4001, fmt.Sprintf("want text of at most %d bytes", maxText))
	}
	l := Line{Text: string(f.Data), At: time.Now()}
	if _, err := c.State(&l.Who); err != nil {
		return err
	}
	before, err := lines.List(ctx, r.Storage(), &dohost.Query[Line]{Reverse: true, Limit: 1})
	if err != nil {
		return err
	}
	if len(before) > 0 {
		l.Number = before[0].Value.Number
	}
	l.Number++
	if err := lines.Insert(ctx, r.Storage(), l); err != nil {
		return err
	}
	if _, err := lines.Delete(ctx, r.Storage(), string(dohost.KeyOf(l.Number-keepLines))); err != nil {
		return err
	}
	return r.send(ctx, map[string]any{"type": "line", "line": l})
}

// sendNames sends the list of names to every connection.
func (r *Room) sendNames(ctx context.Context) error {
	names, err := r.names(ctx)
	if err != nil {
		return err
	}
	return r.send(ctx, map[string]any{"type": "who", "who": names})
}

func (r *Room) send(ctx context.Context, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return r.Broadcast(ctx, dohost.Frame{Text: true, Data: data})
}

// names returns the names of the people in the room, the first to arrive first.
func (r *Room) names(context.Context) ([]string, error) {
	names := []string{}
	for c := range r.Connections("") {
		var name string
		if _, err := c.State(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// last returns the last messages, at most n.
func (r *Room) last(ctx context.Context, n int) ([]Line, error) {
	rows, err := lines.List(ctx, r.Storage(), &dohost.Query[Line]{Reverse: true, Limit: min(max(n, 1), keepLines)})
	list := make([]Line, 0, len(rows))
	for i := len(rows) - 1; i >= 0; i-- {
		list = append(list, rows[i].Value)
	}
	return list, err
}
