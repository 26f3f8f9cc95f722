package randchat

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/sockettest"
)

// maxClients is the maximum number of clients.
const maxClients = 3

// client is a client of the wire protocol, with a page.
type client struct {
	page
	w           *Observer
	name        string
	ws          *websocket.Conn // nil if it is not connected
	viewer      bool            // it may only read: see viewers.go
	busy        bool            // it executes an instruction
	connecting  bool
	connections int
	held        string               // the reply that the client was offered, and whose chunks it has not got yet
	replayed    *view                // the replay so far; nil outside of a replay
	sends       []string             // the requests that were sent on this connection
	known       map[string]bool      // the requests that are stored, by id
	over        map[string]bool      // those that have ended
	owned       bool                 // another connection has a continuation: this one may get its chunks from any one on
	answering   bool                 // it has answered a call: the answer may be refused
	wipes       map[string]*deletion // by probe
	wiped       int                  // when it has cleared the conversation last; 0 before
	stale       bool                 // the page may differ from the conversation
}

// frame is any frame of the wire protocol.
type frame struct {
	Type           string    `json:"type"`
	ID             string    `json:"id"`
	Body           string    `json:"body"`
	Reason         string    `json:"reason"`
	Done           bool      `json:"done"`
	Error          any       `json:"error"` // true, or the text of a refusal
	Replay         bool      `json:"replay"`
	ReplayComplete bool      `json:"replayComplete"`
	ProbeID        string    `json:"probeId"`
	Seq            *uint64   `json:"seq"`
	Outcome        string    `json:"outcome"`
	Answered       []string  `json:"messageIds"`
	Messages       []message `json:"messages"`
	Message        message   `json:"message"`
}

// clientLocked returns a client.
func (w *Observer) clientLocked(k int) *client {
	for len(w.clients) <= k {
		w.clients = append(w.clients, &client{w: w, name: fmt.Sprint("client ", len(w.clients)), page: page{views: map[string]*view{}}, wipes: map[string]*deletion{}, known: map[string]bool{}, over: map[string]bool{}})
	}
	return w.clients[k]
}

// do makes a client execute an instruction.
func (w *Observer) do(ctx context.Context, h *dohosttest.Host, in Instr) error {
	w.mu.Lock()
	c := w.clientLocked(in.Client)
	connected, busy := c.ws != nil, c.busy
	c.busy = true
	w.mu.Unlock()
	if busy {
		return w.Err()
	}
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		c.busy = false
	}()
	switch {
	case in.Op == Leave:
		w.leave(c)
		return w.Err()
	case !connected:
		if err := w.connect(ctx, h, c, in.N%2 == 0); err != nil {
			return err
		}
		if !w.isConnected(c) {
			return w.Err()
		}
	}
	if w.view(ctx, c, in) {
		return w.Err()
	}
	switch in.Op {
	case Submit, Edit, Redo:
		if q := w.newRequest(c, in); q != nil {
			w.send(ctx, c, requestFrame(q))
		}
	case Answer:
		if f := w.answerFrame(c, in); f != nil {
			w.send(ctx, c, f)
		}
	case Stop:
		if q, ok := w.choose(nil, in.K); ok {
			w.stop(q.id, true)
			w.send(ctx, c, map[string]any{"type": "cf_agent_chat_request_cancel", "id": q.id})
		}
	case Wipe:
		probe := w.wipe(c)
		w.send(ctx, c, map[string]any{"type": "cf_agent_chat_clear"})
		w.send(ctx, c, map[string]any{"type": "cf_agent_stream_resume_request", "probeId": probe})
	case Again:
		if q, ok := w.choose(c, in.K); ok && !q.forgotten() && q.dropped == 0 {
			w.sendAgain(ctx, c, q.id)
		}
	case Probe:
		w.send(ctx, c, map[string]any{"type": "cf_agent_stream_resume_request", "probeId": "again"})
	}
	return w.Err()
}

func (w *Observer) isConnected(c *client) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return c.ws != nil
}

// stop records that a stop of a request is sent.
func (w *Observer) stop(id string, byClient bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.requestLocked(id)
	w.stopLocked(q)
	q.halted = q.halted || byClient
}

// wipe records that a client clears the conversation.
// It returns the id of a probe whose answer shows that the conversation was cleared.
func (w *Observer) wipe(c *client) (probe string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.clearLocked()
	for _, q := range w.requests {
		q.halted = true
	}
	c.list, c.wiped = nil, w.tickLocked()
	probe = fmt.Sprint("wiped ", c.wiped)
	c.wipes[probe] = d
	return probe
}

// send sends a frame. It ignores the end of the connection, which the reader finds.
func (w *Observer) send(ctx context.Context, c *client, f any) {
	data, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	ws := c.ws
	w.mu.Unlock()
	if ws != nil {
		_ = ws.Write(context.WithoutCancel(ctx), websocket.MessageText, data)
	}
}

// sendAgain sends a request again.
func (w *Observer) sendAgain(ctx context.Context, c *client, id string) {
	w.mu.Lock()
	q := w.requestLocked(id)
	q.resent++
	w.mayReplaceLocked(q)
	c.stale = c.stale || q.replaces || len(w.deletions) > 0 || w.answered // its list may store messages again
	c.sends = append(c.sends, id)
	w.mu.Unlock()
	w.send(ctx, c, requestFrame(q))
}

// choose chooses one of the last requests of a client, or of all.
func (w *Observer) choose(c *client, k int) (q request, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []*request
	for _, q := range w.requests {
		if c == nil || q.client == c {
			list = append(list, q)
		}
	}
	if len(list) == 0 {
		return q, false
	}
	return *list[len(list)-1-k%len(list)], true
}

// forgotten reports whether the agent may have forgotten a request.
func (q *request) forgotten() bool { return !q.over.IsZero() && time.Since(q.over) > known }

// connect connects a client. It loads the conversation if the page is loaded again. Then the client sends the requests
// again that may be lost.
func (w *Observer) connect(ctx context.Context, h *dohosttest.Host, c *client, reload bool) error {
	w.mu.Lock()
	if c.ws != nil || c.connecting {
		w.mu.Unlock()
		return w.Err()
	}
	c.connecting = true
	w.mu.Unlock()
	serve := w.handler(ctx, h, c)
	var list []message
	var err error
	if reload || c.connections == 0 {
		reload = true
		list, err = fetch(ctx, serve)
	}
	var ws *websocket.Conn
	if err == nil {
		ws, _, err = sockettest.Dial(ctx, serve, "/?_pk="+c.name[len("client "):])
	}
	w.mu.Lock()
	c.connecting = false
	if err != nil {
		w.mu.Unlock()
		return w.Err()
	}
	ws.SetReadLimit(32 << 20)
	again := w.connectedLocked(c, ws, reload, list)
	w.mu.Unlock()
	// The reader answers frames, too: in each run of a seed after these frames, and before the next ones.
	w.send(ctx, c, map[string]any{"type": "cf_agent_stream_resume_request", "probeId": "first"})
	for _, id := range again {
		w.sendAgain(ctx, c, id)
	}
	go w.read(context.WithoutCancel(ctx), c, ws)
	time.Sleep(time.Millisecond + time.Duration(c.name[len(c.name)-1])*time.Microsecond) // clients wake one after the other
	return w.Err()
}

// connectedLocked records a new connection, and returns the requests that may be lost.
func (w *Observer) connectedLocked(c *client, ws *websocket.Conn, reload bool, list []message) (again []string) {
	c.ws, c.held, c.replayed, c.sends, c.owned = ws, "", nil, nil, false
	c.connections++
	if reload {
		c.page = page{list: list, views: map[string]*view{}}
		c.checkTranscript("get-messages", c.list)
	}
	// A client that connects again gets the transcript if a request has ended recently.
	c.stale = !slices.ContainsFunc(w.requests, func(q *request) bool { return q.ended > 0 && !q.forgotten() })
	for _, q := range w.requests {
		if lost := q.client == c && !c.over[q.id] && q.dropped == 0 && !q.forgotten(); lost && c.viewer {
			c.stale = true // the page has its message
			continue
		}
		if q.client == c && !c.over[q.id] && q.dropped == 0 && !q.forgotten() {
			again = append(again, q.id)
			if !c.known[q.id] && q.sent > c.wiped && indexOf(c.list, q.user.ID) < 0 {
				c.list = append(c.list, q.user)
			}
		}
	}
	return again
}

// fetch returns the conversation from get-messages.
func fetch(ctx context.Context, serve http.Handler) (list []message, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the handler panicked: %v", p)
		}
	}()
	rw := httptest.NewRecorder()
	serve.ServeHTTP(rw, httptest.NewRequestWithContext(ctx, http.MethodGet, "/get-messages", nil))
	if rw.Code != http.StatusOK {
		return nil, fmt.Errorf("get-messages: %d", rw.Code)
	}
	return list, json.Unmarshal(rw.Body.Bytes(), &list)
}

// leave ends a connection.
func (w *Observer) leave(c *client) {
	w.mu.Lock()
	ws := c.ws
	c.ws = nil
	w.mu.Unlock()
	if ws != nil {
		_ = ws.Close(websocket.StatusNormalClosure, "") // the host may have been first
	}
}

// read handles the frames of a connection until its end.
func (w *Observer) read(ctx context.Context, c *client, ws *websocket.Conn) {
	for {
		_, data, err := ws.Read(ctx)
		if err != nil {
			w.mu.Lock()
			if c.ws == ws {
				c.ws = nil
			}
			w.mu.Unlock()
			_ = ws.CloseNow() // in case it is open
			return
		}
		var f frame
		if err := json.Unmarshal(data, &f); err != nil {
			w.Faultf("%s gets %q: %v", c.name, data, err)
			continue
		}
		w.mu.Lock()
		reply := map[string]any(nil)
		if c.ws == ws {
			reply = c.receive(f)
		}
		w.mu.Unlock()
		if reply != nil {
			w.send(ctx, c, reply)
		}
	}
}
