package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
)

// LinkHeader is the header of a request that links an edge to an object on another node: the object, the edge, and a signature by the
// secret of the cluster. In the response it has a text that the edge signs too, so a captured request is of no use.
const LinkHeader = "Dohost-Link"

// linkPath is the path of such a request, for logs of other programs. Nodes do not read it.
const linkPath = "/dohost/link"

// The times of a link between nodes.
const (
	aliveTime  = 10 * time.Second // between two messages, at most
	silentTime = 2 * aliveTime    // without a message, after which the link ends
)

// sentLink is the content of LinkHeader. The texts may not be UTF-8.
type sentLink struct {
	To    string `json:"to"` // the id of the node: a request that arrives at another process is refused
	Cell  int    `json:"cell"`
	Class []byte `json:"class"`
	Name  []byte `json:"name"`
	Edge  string `json:"edge"`
}

// proofOf returns the proof that the sender of a LinkHeader has the secret.
func (n *Node) proofOf(header, nonce string) []byte {
	return []byte(n.mac(LinkHeader+" "+nonce, header))
}

// nodeLinker links to objects on another node.
type nodeLinker struct {
	rt *router
	to *target
}

func (l *nodeLinker) linkSockets(ctx context.Context, id dohost.ID, o *dohost.LinkOptions) (socketLink, error) {
	n := l.rt.node
	ctx, end := n.inFlight.begin(ctx, l.to)
	header := n.signContent(LinkHeader, &sentLink{To: l.to.id, Cell: l.to.cell, Class: []byte(id.Class), Name: []byte(id.Name), Edge: o.Edge})
	ws, res, err := websocket.Dial(ctx, l.to.address+linkPath, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: l.rt.o.Transport}, HTTPHeader: http.Header{LinkHeader: {header}},
	})
	if err != nil {
		end()
		return nil, fmt.Errorf("cluster: linking to the node of the object: %w", err)
	}
	ws.SetReadLimit(maxLinkMessage)
	w := &wireLink{ctx: ctx, ws: ws, end: end, send: o.Send, ready: make(chan struct{}), done: make(chan struct{})}
	go w.read()
	for _, p := range helloMessages(n.proofOf(header, res.Header.Get(LinkHeader)), o) {
		if err = ws.Write(ctx, websocket.MessageBinary, p); err != nil {
			break
		}
	}
	if err == nil {
		select {
		case <-w.ready:
			go w.keepAlive()
			return w, nil
		case <-w.done:
		}
	}
	w.Close()
	<-w.done
	return nil, fmt.Errorf("cluster: the node of the object has not made the link: %w", errors.Join(w.err, err))
}

// wireLink is a link to an object on another node.
type wireLink struct {
	ctx   context.Context // of the link
	ws    *websocket.Conn
	end   func() // ends the context of the link
	send  func(*dohost.LinkOutput)
	once  sync.Once     // closes ready
	ready chan struct{} // closed when the other node has made the link
	done  chan struct{} // closed when read has ended
	err   error         // of read, when done is closed
}

// read gets the messages of the other node until the link ends.
func (w *wireLink) read() {
	defer close(w.done)
	defer w.Close()
	for {
		p, err := readMessage(w.ctx, w.ws)
		if err == nil {
			err = w.receive(p)
		}
		if err != nil {
			w.err = err
			return
		}
	}
}

func (w *wireLink) receive(p []byte) error {
	switch p[0] {
	case aliveMessage:
	case readyMessage:
		w.once.Do(func() { close(w.ready) })
	case outputMessage:
		out, err := decodeOutput(p)
		if err != nil {
			return err
		}
		w.send(out)
	default:
		return &badMessage{"a message of another kind"}
	}
	return nil
}

// readMessage reads a message that is not empty.
func readMessage(ctx context.Context, ws *websocket.Conn) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, silentTime)
	defer cancel()
	kind, p, err := ws.Read(ctx)
	if err == nil && (kind != websocket.MessageBinary || len(p) == 0) {
		err = &badMessage{"a message is empty, or text"}
	}
	return p, err
}

// keepAlive sends messages until the link ends.
func (w *wireLink) keepAlive() {
	tick := time.NewTicker(aliveTime)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-w.done:
			return
		}
		if w.ws.Write(w.ctx, websocket.MessageBinary, []byte{aliveMessage}) != nil {
			w.Close()
			return
		}
	}
}

// Deliver implements socketLink. It waits while the other node reads no inputs.
func (w *wireLink) Deliver(in *dohost.LinkInput) error {
	return w.ws.Write(w.ctx, websocket.MessageBinary, appendInput(nil, in))
}

// Acknowledge implements socketLink. An error ends the link.
func (w *wireLink) Acknowledge(position string) {
	if w.ws.Write(w.ctx, websocket.MessageBinary, appendAck(nil, position)) != nil {
		w.Close()
	}
}

// Done implements socketLink.
func (w *wireLink) Done() <-chan struct{} { return w.done }

// Close implements socketLink.
func (w *wireLink) Close() {
	_ = w.ws.CloseNow()
	w.end()
}
