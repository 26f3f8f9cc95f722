package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dohost/dohost"
)

// The times of links.
const (
	firstLinkPause   = 50 * time.Millisecond // before another attempt
	longestLinkPause = 500 * time.Millisecond
	steadyLink       = time.Second      // a link that lasts so long makes the pause short again
	linkTime         = 20 * time.Second // of an attempt
	linkWait         = time.Minute      // without a link; then the edge closes the clients
)

// SocketHost is a [Host] with durable sockets. A *dohost.Host has this method.
type SocketHost interface {
	// LinkSockets makes the link of an edge to an object: see dohost.Host.LinkSockets.
	LinkSockets(ctx context.Context, id dohost.ID, o *dohost.LinkOptions) (*dohost.SocketLink, error)
}

// socketLink is a *dohost.SocketLink, or a link to another node.
type socketLink interface {
	Deliver(in *dohost.LinkInput) error
	Acknowledge(position string)
	Done() <-chan struct{}
	Close()
}

// linker makes links to the objects of a host, or of another node.
type linker interface {
	linkSockets(ctx context.Context, id dohost.ID, o *dohost.LinkOptions) (socketLink, error)
}

// hostLinker is the linker of a SocketHost.
type hostLinker struct{ SocketHost }

func (h hostLinker) linkSockets(ctx context.Context, id dohost.ID, o *dohost.LinkOptions) (socketLink, error) {
	l, err := h.LinkSockets(ctx, id, o)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// linkerOf returns the linker of a host, or nil.
func linkerOf(h Host) linker {
	switch h := h.(type) {
	case linker:
		return h
	case SocketHost:
		return hostLinker{h}
	}
	return nil
}

var errNoSockets = errors.New("cluster: the host of the object has no durable sockets")

// linker returns the linker for an object, or an error if no node serves its cell.
func (e *edgeEntry) linker() (linker, error) {
	n := e.rt.node
	cell := n.o.Cell(e.id)
	if h := n.Host(cell); h != nil {
		if l := linkerOf(h); l != nil {
			return l, nil
		}
		return nil, errNoSockets
	}
	id, address := n.known.Load().holder(cell)
	if address == "" || id == n.self.ID {
		return nil, errNotServed
	}
	return &nodeLinker{rt: e.rt, to: &target{cell: cell, id: id, address: address}}, nil
}

// run links the entry to its object for as long as it has accepted sockets.
func (e *edgeEntry) run(ctx context.Context) {
	pause, linkedAt := firstLinkPause, time.Now()
	for !e.finish() {
		begun := time.Now()
		err := e.linkOnce(ctx)
		now := time.Now()
		switch {
		case ctx.Err() != nil:
			e.drop(closing{Code: closeRestart, Reason: "the node is closing"})
		case err == nil:
			linkedAt = now
		case now.Sub(linkedAt) >= linkWait:
			e.logUnreachable(err)
			e.drop(closing{Code: closeRestart, Reason: "the object cannot be reached"})
		}
		if e.finish() {
			return
		}
		if err == nil && now.Sub(begun) >= steadyLink {
			pause = firstLinkPause
		}
		sleep(ctx, pause/2+rand.N(pause/2))
		pause = min(2*pause, longestLinkPause)
	}
}

// logUnreachable logs that the edge closes the clients of an object that it cannot reach.
func (e *edgeEntry) logUnreachable(err error) {
	if skipped, ok := e.rt.failures.next(); ok {
		e.rt.node.log.Warn("the clients of an object are disconnected, since it cannot be reached", "object", e.id, "err", err, "not_logged", skipped)
	}
}

// linkOnce makes a link, and uses it until it ends. It returns an error if there was no link.
func (e *edgeEntry) linkOnce(ctx context.Context) error {
	via, err := e.linker()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slow := time.AfterFunc(linkTime, cancel)
	l := &edgeLink{entry: e}
	link, err := via.linkSockets(ctx, e.id, e.begin(l))
	if !slow.Stop() && err == nil {
		link.Close()
		err = context.DeadlineExceeded
	}
	if err == nil {
		e.use(ctx, l, link)
		link.Close()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.link = nil
	return err
}

// use delivers inputs and acknowledges outputs until the link ends.
func (e *edgeEntry) use(ctx context.Context, l *edgeLink, link socketLink) {
	for {
		in, position, wait, done := e.nextOf(l)
		if in != nil && link.Deliver(in) != nil {
			return
		}
		if position != "" {
			link.Acknowledge(position)
		}
		switch {
		case done:
			return
		case in != nil || position != "":
			continue
		}
		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-e.wake:
		case <-due:
		case <-link.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}
