package cluster

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
)

// maxQueued bounds the bytes of the outputs that wait for an edge on another node. One output may be larger.
const maxQueued = 8 << 20

// linked returns the handler of a request with LinkHeader. A node never passes it on.
func (rt *router) linked(r *http.Request, header []string) http.Handler {
	n, s := rt.node, &sentLink{}
	if !n.verifyContent(LinkHeader, header, s) {
		n.logUnsigned(r)
		return http.HandlerFunc(refuseLink)
	}
	via := linkerOf(n.Host(s.Cell))
	if s.To != n.self.ID || via == nil {
		return http.HandlerFunc(moved)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { rt.serveLink(w, r, via, s) })
}

// refuseLink answers a request that has a LinkHeader without a valid signature.
func refuseLink(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusForbidden, &dohost.ErrorBody{
		Code: "not_signed", Message: "the header " + LinkHeader + " has no valid signature: only nodes of the cluster send it", Ran: dohost.OutcomeNotRun.String(),
	})
}

// inLink is a link of an edge on another node. The goroutine of the request reads, and one writes.
type inLink struct {
	ws     *websocket.Conn
	wake   chan struct{}   // holds a hint: an output, or the end of the queue
	linked chan socketLink // gets the link of the host once

	// mu guards the rest. No lock is taken while it is held, and it is not held during I/O.
	mu     sync.Mutex
	queue  [][]byte
	queued int  // bytes of queue
	full   bool // the queue was full: nothing is added any more, and the link ends after the queue
}

// serveLink makes the link of an edge, and serves it until it ends.
func (rt *router) serveLink(w http.ResponseWriter, r *http.Request, via linker, s *sentLink) {
	header, nonce := r.Header.Get(LinkHeader), rand.Text()
	w.Header().Set(LinkHeader, nonce)
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil { // and Accept has answered
		return
	}
	defer ws.CloseNow()
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	l := &inLink{ws: ws, wake: make(chan struct{}, 1), linked: make(chan socketLink, 1)}
	var writing sync.WaitGroup
	writing.Go(func() { l.write(ctx) })
	defer writing.Wait()
	defer cancel()
	o := &dohost.LinkOptions{Edge: s.Edge, Send: l.send}
	if err := l.hello(ctx, rt.node.proofOf(header, nonce), o); err != nil {
		_ = ws.Close(websocket.StatusPolicyViolation, cutText(err.Error(), maxReason))
		return
	}
	ws.SetReadLimit(max(maxLinkMessage, rt.o.MaxFrame+maxCloseReason))
	slow := time.AfterFunc(linkTime, cancel)
	link, err := via.linkSockets(ctx, dohost.ID{Class: string(s.Class), Name: string(s.Name)}, o)
	if err != nil {
		_ = ws.Close(websocket.StatusTryAgainLater, cutText(err.Error(), maxReason))
		return
	}
	defer link.Close()
	if !slow.Stop() {
		return
	}
	l.linked <- link
	err = l.read(ctx, link)
	select {
	case <-link.Done(): // the edge gets the outputs that wait, so that each link makes progress
		time.AfterFunc(aliveTime, cancel)
		writing.Wait()
	default:
		if _, bad := errors.AsType[*badMessage](err); bad {
			_ = ws.Close(websocket.StatusPolicyViolation, cutText(err.Error(), maxReason))
		}
	}
}

// hello reads the options of the link.
func (l *inLink) hello(ctx context.Context, proof []byte, o *dohost.LinkOptions) error {
	l.ws.SetReadLimit(2 * maxHelloPart)
	for size := 0; ; {
		p, err := readMessage(ctx, l.ws)
		if err != nil {
			return err
		}
		first := size == 0
		if size += len(p); size > maxHellos {
			return &badMessage{"the hello is too long"}
		}
		h, err := decodeHello(p, o)
		switch {
		case err != nil:
			return err
		case first && !hmac.Equal(h.Proof, proof):
			return &badMessage{"the hello has no valid signature"}
		case h.Last:
			return nil
		}
	}
}

// read delivers the messages of the edge until the link ends.
func (l *inLink) read(ctx context.Context, link socketLink) error {
	for {
		p, err := readMessage(ctx, l.ws)
		if err != nil {
			return err
		}
		switch p[0] {
		case aliveMessage:
		case inputMessage:
			in, err := decodeInput(p)
			if err == nil {
				err = link.Deliver(in)
			}
			if err != nil {
				return err
			}
		case ackMessage:
			position, err := decodeAck(p)
			if err != nil {
				return err
			}
			link.Acknowledge(position)
		default:
			return &badMessage{"a message of another kind"}
		}
	}
}

// send queues an output. If the queue is full, the link ends after the outputs in it, and the edge gets the others over the next link.
func (l *inLink) send(out *dohost.LinkOutput) {
	p := appendOutput(nil, out)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full = l.full || l.queued > 0 && l.queued+len(p) > maxQueued; !l.full {
		l.queue, l.queued = append(l.queue, p), l.queued+len(p)
	}
	select {
	case l.wake <- struct{}{}:
	default: // it has a hint
	}
}

// take returns the queue, which still counts until the next call.
func (l *inLink) take(written int) (queue [][]byte, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queued -= written
	queue, l.queue = l.queue, nil
	return queue, l.full
}

// write writes the outputs until the link ends.
func (l *inLink) write(ctx context.Context) {
	tick := time.NewTicker(aliveTime)
	defer tick.Stop()
	var ended <-chan struct{} // of the link
	over, written := false, 0
	for {
		queue, full := l.take(written)
		written = 0
		for _, p := range queue {
			if l.ws.Write(ctx, websocket.MessageBinary, p) != nil {
				return
			}
			written += len(p)
		}
		switch {
		case len(queue) > 0:
			continue
		case full:
			_ = l.ws.Close(websocket.StatusTryAgainLater, "too many outputs wait for the edge")
			return
		case over:
			_ = l.ws.Close(websocket.StatusServiceRestart, "the link has ended")
			return
		}
		var note byte
		select {
		case <-l.wake:
		case link := <-l.linked:
			ended, note = link.Done(), readyMessage
		case <-tick.C:
			note = aliveMessage
		case <-ended:
			over = true
		case <-ctx.Done():
			return
		}
		if note != 0 && l.ws.Write(ctx, websocket.MessageBinary, []byte{note}) != nil {
			return
		}
	}
}
