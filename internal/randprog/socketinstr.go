package randprog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/hostof"
)

// handshake is a request for a socket.
type handshake struct {
	name string
	w    http.ResponseWriter
	r    *http.Request
}

func attachment(n int) string { return fmt.Sprintf("attachment %d", n) }

// accept accepts the request for a socket.
func (x *execution) accept(in Instr) error {
	h := x.handshake
	if h == nil {
		return nil
	}
	f := foundSocket{[]string{h.name}, attachment(in.N)}
	for i, tag := range socketTags[1:] {
		if in.K>>i&1 == 1 {
			f.tags = append(f.tags, tag)
		}
	}
	repeated := slices.Concat(f.tags, f.tags)
	s, err := x.st.Accept(h.w, h.r, &dohost.AcceptOptions{Tags: repeated, Attachment: []byte(f.attachment)})
	if err != nil {
		return err
	}
	x.w.accepted(x.e, h.name, hostof.State(x.st).(*dohost.Host), f)
	x.socket, x.handshake = s, nil
	return nil
}

// onSockets executes an instruction for sockets. An instruction for one of the sockets with a tag is Sockets if there
// is none.
func (x *execution) onSockets(ctx context.Context, in Instr) error {
	list := x.st.Sockets(socketTag(in.K))
	to := []*dohost.Socket{x.socket}
	switch {
	case in.Op == Sockets:
		to = nil
	case in.Op == Broadcast:
		to = list
	case x.socket != nil && in.N%3 != 0:
	case len(list) == 0:
		in.Op, to = Sockets, nil
	default:
		at := in.N % len(list)
		to = list[at : at+1]
	}
	found, recipients := describe(list), describe(to)
	name := ""
	if in.Op != Sockets && in.Op != Broadcast {
		name = recipients[0].tags[0]
	}
	var out *output
	var n int
	var err error
	switch in.Op {
	case Sockets:
		err = x.touch(ctx)
	case SendFrame:
		out, n = x.w.frame(x.e, 0, recipients)
		err = to[0].Send(ctx, frame(n))
	case Broadcast:
		out, n = x.w.frame(x.e, 0, recipients)
		err = x.st.Broadcast(ctx, frame(n), to)
	case CloseSocket:
		out, _ = x.w.frame(x.e, 4000+in.N, recipients)
		err = to[0].Close(ctx, 4000+in.N, "")
	case Attach:
		err = to[0].SetAttachment(ctx, []byte(attachment(in.N)))
	}
	got := ""
	switch {
	case err == nil:
	case ctx.Err() != nil || errors.Is(err, dohost.ErrFenced):
		return err
	case errors.Is(err, dohost.ErrClosed): // the socket, unless the incarnation has ended, and its sockets with it
		if err := x.touch(ctx); err != nil {
			return err
		}
		got = "closed"
	default:
		got = kind(err)
	}
	x.w.socketStep(x.e, in, found, name, out, got)
	return nil
}

// touch returns an error if the incarnation has ended: its sockets can be listed all the same.
func (x *execution) touch(ctx context.Context) error {
	_, _, err := dohost.Get[int](ctx, x.st.Storage(), key(0))
	return err
}

func frame(n int) dohost.Frame { return dohost.Frame{Text: true, Data: fmt.Appendf(nil, "%d", n)} }

// onMessage executes the program of a message.
func (m *machine) onMessage(ctx context.Context, s *dohost.Socket, f dohost.Frame) error {
	e, list := m.w.message(m.st.ID().Name, s.Tags()[0], m.incarnation, string(f.Data))
	_, err := (&execution{machine: m, e: e, socket: s}).perform(ctx, list)
	return err
}

// onClosed executes a program that the name of the socket selects.
func (m *machine) onClosed(ctx context.Context, s *dohost.Socket, how dohost.Closing) error {
	name := s.Tags()[0]
	e := m.w.closedNotice(m.st.ID().Name, name, m.incarnation, how)
	var id uint64
	if _, err := fmt.Sscanf(name, "program %d", &id); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(id, 0))
	list := mixSockets(r, drawBody(r, 1+r.IntN(2), maxDepth, true))
	list = slices.DeleteFunc(list, func(in Instr) bool { return in.Op == Panic || in.Op == Goexit })
	_, err := (&execution{machine: m, e: e, socket: s}).perform(ctx, list)
	return err
}
