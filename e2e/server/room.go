//go:build e2e

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// roomState is the state of a room.
type roomState struct {
	Title string `json:"title"`
	Count int    `json:"count"`
}

// room is an agent with one feature of each kind that clients can reach.
type room struct {
	*agent.Agent[roomState]
	known bool // this incarnation has been called
}

const rooms dohost.Namespace[room] = "ChatRoom"

func roomClass() dohost.Class {
	return agent.Bind(rooms, func(_ context.Context, a *agent.Agent[roomState]) (*room, error) { return &room{Agent: a}, nil },
		&agent.Handlers[room, roomState]{
			Initial:   &roomState{Title: "untitled"},
			Validate:  (*room).validate,
			Authorize: authorize,
			OnAccept:  (*room).accepted,
			OnConnect: (*room).connected,
			OnMessage: (*room).echo,
			OnRequest: (*room).request,
		},
		agent.Callable("add", (*room).add),
		agent.Callable("sum", sum),
		agent.Callable("join", join),
		agent.Callable("same", same),
		agent.Callable("nothing", dohost.Bare(func(*room, context.Context) error { return nil })),
		agent.Callable("null", dohost.NoArg(func(*room, context.Context) (*int, error) { return nil, nil })),
		agent.Callable("fail", dohost.NoArg(fail)),
		agent.Callable("forever", dohost.Bare(forever)),
		agent.Callable("fresh", dohost.NoArg(fresh)),
		agent.Callable("arrival", dohost.NoArg(arrival)),
		agent.Callable("lock", dohost.NoResult(lock)),
		agent.Callable("leave", dohost.Bare(leave)),
		agent.Streaming("stream", stream))
}

// diary is an agent without a state until a client sets one.
type diary struct{ *agent.Agent[any] }

func diaryClass() dohost.Class {
	return agent.Bind(dohost.Namespace[diary]("Diary"),
		func(_ context.Context, a *agent.Agent[any]) (*diary, error) { return &diary{a}, nil }, nil)
}

// Hidden is no method for clients.
func (r *room) Hidden() {}

func (r *room) validate(_ context.Context, b roomState, _ *agent.Conn) error {
	if b.Count < 0 {
		return &dohost.PublicError{Message: "a count is not negative"}
	}
	return nil
}

// authorize lets a client choose its rights by its query.
func authorize(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
	q := r.Request.URL.Query()
	switch {
	case q.Get("token") == "wrong":
		return dohost.Access{}, &dohost.CloseError{Code: 4001, Reason: "who are you?"}
	case q.Has("readonly"):
		return dohost.Access{Rights: dohost.RightsReadOnly}, nil
	}
	return dohost.Access{Rights: dohost.RightsReadWrite}, nil
}

// accepted keeps the URL of the request with the connection.
func (r *room) accepted(req *http.Request) agent.ConnOptions {
	return agent.ConnOptions{NoProtocol: req.URL.Query().Has("silent"), State: req.URL.RequestURI()}
}

// connected refuses banned clients, and the first connection with the query "fickle".
func (r *room) connected(ctx context.Context, _ *agent.Conn, req *http.Request) error {
	q := req.URL.Query()
	if q.Has("banned") {
		return &dohost.CloseError{Code: 1008, Reason: "not you"}
	}
	if !q.Has("fickle") {
		return nil
	}
	_, again, err := dohost.Get[bool](ctx, r.Storage(), "fickle")
	if err != nil || again {
		return err
	}
	return cmp.Or(dohost.Put(ctx, r.Storage(), "fickle", true), error(&dohost.PublicError{Message: "come again"}))
}

func (r *room) echo(ctx context.Context, c *agent.Conn, f dohost.Frame) error {
	return c.Send(ctx, dohost.Frame{Text: f.Text, Data: append([]byte("heard "), f.Data...)})
}

func (r *room) request(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprintf(w, "%s %s%s?%s %s", req.Method, r.ID().Name, req.URL.EscapedPath(), req.URL.RawQuery, body)
}

func (r *room) add(ctx context.Context, n int) (count int, err error) {
	err = r.UpdateState(ctx, func(b *roomState) error {
		b.Count += n
		count = b.Count
		return nil
	})
	return count, err
}

func sum(_ *room, _ context.Context, ns []int) (total int, err error) {
	for _, n := range ns {
		total += n
	}
	return total, nil
}

func join(_ *room, _ context.Context, p struct{ First, Last string }) (string, error) {
	return p.First + " " + p.Last, nil
}

func same(_ *room, _ context.Context, v json.RawMessage) (json.RawMessage, error) { return v, nil }

func fail(*room, context.Context) (int, error) {
	return 0, &dohost.PublicError{Message: "the paint is wet"}
}

// forever runs until the end of its incarnation.
func forever(_ *room, ctx context.Context) error {
	return dohost.Await(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
}

// fresh returns whether this is its first call in the incarnation.
func fresh(r *room, _ context.Context) (bool, error) {
	was := r.known
	r.known = true
	return !was, nil
}

// lock removes the caller's right to change the state, or restores it.
func lock(_ *room, ctx context.Context, on bool) error {
	return agent.ConnFromContext(ctx).SetReadonly(ctx, on)
}

func leave(_ *room, ctx context.Context) error {
	return agent.ConnFromContext(ctx).Close(ctx, 4000, "goodbye")
}

// arrival returns the caller's id and the URL of its connection.
func arrival(_ *room, ctx context.Context) ([]string, error) {
	c := agent.ConnFromContext(ctx)
	var uri string
	_, err := c.State(&uri)
	return []string{c.ID(), uri}, err
}

// stream sends n chunks of a size, and fails if there are more than two small ones.
func stream(_ *room, ctx context.Context, p struct{ N, Size int }, s *agent.Stream) (string, error) {
	for i := range p.N {
		if err := s.Send(ctx, fmt.Sprint(i, strings.Repeat(".", p.Size))); err != nil {
			return "", err
		}
	}
	if p.N > 2 && p.Size == 0 {
		return "", &dohost.PublicError{Message: fmt.Sprintf("%d is too far", p.N)}
	}
	return "done", nil
}
