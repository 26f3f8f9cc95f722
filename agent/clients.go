package agent

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"reflect"
	"slices"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
)

// clients serves the connections of an agent, and the state that they share. A client of another identity cannot replace
// a connection. A change of the state is one batch with its broadcast and the start of OnStateChanged. The frames of a
// refused connection are ignored.
type clients struct{ *incarnation }

// connections yields the open connections, the oldest first; with a tag, only those that have it.
func (cs *clients) connections(tag string) iter.Seq[*Conn] {
	return func(yield func(*Conn) bool) {
		for _, s := range cs.obj.Sockets(tag) {
			if !yield(&Conn{s}) {
				return
			}
		}
	}
}

// broadcast sends a frame to some connections.
func (cs *clients) broadcast(ctx context.Context, f dohost.Frame, wanted func(*Conn) bool) error {
	to := slices.DeleteFunc(cs.obj.Sockets(""), func(s *dohost.Socket) bool { return !wanted(&Conn{s}) })
	return cs.obj.Broadcast(ctx, f, to)
}

// accept opens a connection for a request.
func (cs *clients) accept(w http.ResponseWriter, r *http.Request) {
	var o ConnOptions
	if cs.class.accepted != nil {
		o = cs.class.accepted(cs.self, r)
	}
	conn, err := cs.open(w, r, o)
	if err != nil {
		http.Error(w, cs.errorText("connect", err), http.StatusBadRequest)
		return
	}
	ctx := withConn(r.Context(), conn)
	if err := cs.connect(ctx, conn, r); err != nil {
		cs.refuse(ctx, conn, err)
	}
}

// open accepts the socket, in place of an older one of the same client.
func (cs *clients) open(w http.ResponseWriter, r *http.Request, options ConnOptions) (*Conn, error) {
	id := r.URL.Query().Get("_pk")
	older := slices.DeleteFunc(cs.obj.Sockets(id), func(s *dohost.Socket) bool { return s.Tags()[0] != id })
	if id == "" || slices.ContainsFunc(older, func(s *dohost.Socket) bool { return !sameCaller(s, r) }) {
		id, older = ulid.Make().String(), nil
	}
	attached := []byte{byte(options.flags())}
	if options.State != nil {
		raw, err := marshal(options.State)
		if err != nil {
			return nil, err
		}
		attached = append(attached, raw...)
	}
	s, err := cs.obj.Accept(w, r, &dohost.AcceptOptions{Tags: append([]string{id}, options.Tags...), Attachment: attached})
	if err != nil {
		return nil, err
	}
	for _, o := range older {
		cs.close(r.Context(), &Conn{o}, CloseReplaced, "replaced by a newer connection of the same id")
	}
	return &Conn{s}, nil
}

// sameCaller reports whether a request has the identity of a connection. The client of another identity may know the id
// of the connection, and must not close it.
func sameCaller(s *dohost.Socket, r *http.Request) bool {
	before, _ := s.Access()
	now, _ := dohost.AccessFrom(r.Context())
	return reflect.DeepEqual(before.Identity, now.Identity)
}

// close closes a connection that may be closed by now. The end of an incarnation closes all of them. If the
// code or reason is invalid, close uses valid ones, so that the connection closes.
func (cs *clients) close(ctx context.Context, conn *Conn, code int, reason string) {
	err := conn.Close(ctx, code, reason)
	if err == nil || errors.Is(err, dohost.ErrClosed) || ctx.Err() != nil {
		return
	}
	cs.reportError(ctx, "close", err)
	if err := conn.Close(ctx, CloseFailed, "the agent gave no valid reason"); err != nil {
		cs.reportError(ctx, "close", err)
	}
}

// connect sends the first frames of the protocol to a new connection and calls the user's hook.
func (cs *clients) connect(ctx context.Context, conn *Conn, r *http.Request) error {
	if err := cs.extendedConnect(ctx, conn); err != nil {
		return err
	}
	if conn.Protocol() {
		if err := cs.sendInitialFrames(ctx, conn); err != nil {
			return err
		}
	}
	if err := cs.extendedConnected(ctx, conn); err != nil {
		return err
	}
	if cs.class.connect == nil {
		return nil
	}
	return cs.class.connect(cs.self, ctx, conn, r)
}

// refuse sends the reason of a refusal to a client and closes its connection. The agent ignores the frames
// that the client has sent by then.
func (cs *clients) refuse(ctx context.Context, conn *Conn, cause error) {
	if err := conn.setFlags(ctx, conn.flags()|refused); err != nil {
		return // the incarnation has ended
	}
	if e, ok := errors.AsType[*dohost.CloseError](cause); ok && e != nil {
		cs.close(ctx, conn, e.Code, e.Reason)
		return
	}
	cs.reportError(ctx, "connect", cause)
	if err := conn.send(ctx, errorFrame{Error: cs.errorText("connect", cause)}); err == nil {
		cs.close(ctx, conn, CloseFailed, "the agent refused the connection")
	}
}

// disconnected calls the hooks for a closed connection.
func (cs *clients) disconnected(ctx context.Context, conn *Conn, how dohost.Closing) error {
	cs.extendedClose(withConn(ctx, conn), conn)
	if cs.class.closed == nil || conn.flags()&refused != 0 {
		return nil
	}
	return cs.class.closed(cs.self, withConn(ctx, conn), conn, how)
}
