package randagent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/sockettest"
)

// maxConnections is the number of clients that are connected at the same time.
const maxConnections = 2

// connection is a client's connection.
type connection struct {
	name, id string
	readonly bool
	ws       *websocket.Conn // nil until it is connected
	states   []state         // that the client has received
	sent     int             // messages that the client has begun to send
	handled  int             // messages whose handler has begun
	process  *dohost.Host    // that the client has connected to
	leaving  bool            // the client ends it
	ends     int             // of incarnations, when it did so
	ended    bool            // the client has seen its end
	closed   bool            // OnClose was called
}

// message is a frame for OnMessage.
type message struct {
	Number  int
	Program Program
}

// stateFrame is a frame of the wire protocol with a state.
type stateFrame struct {
	Type  string `json:"type"`
	State state  `json:"state"`
}

const stateType = "cf_agent_state"

// Connect connects a client, unless there are enough: then one of them sends a message with the program.
func (w *Observer) Connect(ctx context.Context, h *dohosttest.Host, r *rand.Rand, p Program) error {
	if c := w.chooseConnection(r, maxConnections); c != nil {
		return w.message(ctx, c, p)
	}
	id := fmt.Sprint(w.Next())
	c := &connection{name: "client " + id, id: id, readonly: r.IntN(2) == 0}
	w.Sent(c.name + " connects")
	w.addConnection(c)
	serve := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		c.process = h.Host()
		c.process.ServeObject(rw, r, machines.Get(h, "a").ID())
	})
	ws, _, err := sockettest.Dial(ctx, serve, fmt.Sprintf("/?_pk=%s&readonly=%v", id, c.readonly))
	if err != nil {
		w.connectionEnded(c)
		return w.Err()
	}
	w.connected(c, ws)
	go func() {
		for {
			_, text, err := ws.Read(context.WithoutCancel(ctx))
			if err != nil {
				w.connectionEnded(c)
				_ = ws.CloseNow() // in case it is open
				return
			}
			w.received(c, text)
		}
	}()
	return w.Err()
}

// Act makes a client send a message with a program, try to change the state, or leave.
func (w *Observer) Act(ctx context.Context, r *rand.Rand, p Program) error {
	c := w.chooseConnection(r, 1)
	if c == nil {
		return w.Err()
	}
	switch r.IntN(4) {
	case 0:
		w.leave(c)
		_ = c.ws.Close(3000, "") // the host may have been first
	case 1:
		refused := state{Number: -1, N: 4} // by Validate
		if c.readonly {
			refused.N = 1
		}
		text, err := json.Marshal(stateFrame{stateType, refused})
		if err != nil {
			return err
		}
		_ = c.ws.Write(context.WithoutCancel(ctx), websocket.MessageText, text) // likewise
	default:
		return w.message(ctx, c, p)
	}
	return w.Err()
}

func (w *Observer) message(ctx context.Context, c *connection, p Program) error {
	w.Sent("a message of " + c.name + ": " + p.String())
	text, err := json.Marshal(message{w.nextMessage(c), p})
	if err != nil {
		return err
	}
	_ = c.ws.Write(context.WithoutCancel(ctx), websocket.MessageText, text)
	return w.Err()
}

// onAccept chooses the properties of a connection.
func (a *machine) onAccept(r *http.Request) agent.ConnOptions {
	return agent.ConnOptions{Readonly: r.URL.Query().Get("readonly") == "true"}
}

// onConnect records the id of a connection.
func (a *machine) onConnect(ctx context.Context, c *agent.Conn, r *http.Request) error {
	return c.SetState(ctx, r.URL.Query().Get("_pk"))
}

// onMessage executes the program of a message.
func (a *machine) onMessage(ctx context.Context, c *agent.Conn, f dohost.Frame) error {
	var m message
	if err := json.Unmarshal(f.Data, &m); err != nil {
		a.w.Faultf("OnMessage gets %q: %v", f.Data, err)
		return nil
	}
	var id string
	if ok, err := c.State(&id); !ok || err != nil || id != c.ID() {
		a.w.Faultf("the connection %s has the state %q, %v", c.ID(), id, err)
	}
	a.w.handled(c.ID(), m.Number, c.Readonly())
	_, err := a.run(ctx, m.Program)
	return err
}

// onClose records the end of a connection.
func (a *machine) onClose(_ context.Context, c *agent.Conn, _ dohost.Closing) error {
	a.w.closed(c.ID())
	return nil
}

func (w *Observer) addConnection(c *connection) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.connections = append(w.connections, c)
}

// chooseConnection chooses a connection, or none if there are fewer than least.
func (w *Observer) chooseConnection(r *rand.Rand, least int) *connection {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []*connection
	for _, c := range w.connections {
		if c.ws != nil && !c.leaving && !c.ended {
			list = append(list, c)
		}
	}
	if len(list) < least {
		return nil
	}
	return list[r.IntN(len(list))]
}

func (w *Observer) connected(c *connection, ws *websocket.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.ws = ws
}

func (w *Observer) leave(c *connection) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.leaving, c.ends = true, w.ends
}

// Listener counts the ends of incarnations that close connections.
func (w *Observer) Listener() dohost.Listener {
	return dohost.Listener{Fenced: func(e dohost.Ended) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if e.Cause.Reason != "idle" && e.Cause.Reason != "pressure" {
			w.ends++
		}
	}}
}

func (w *Observer) connectionEnded(c *connection) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.ended = true
}

func (w *Observer) nextMessage(c *connection) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.sent++
	return c.sent
}

// received records a frame that a client has received.
func (w *Observer) received(c *connection, text []byte) {
	var f stateFrame
	if err := json.Unmarshal(text, &f); err != nil || f.Type != stateType {
		return // another frame of the protocol
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(c.states); n > 0 && f.State.Number <= c.states[n-1].Number {
		w.Faultf("%s gets the state %+v after %+v", c.name, f.State, c.states[n-1])
	}
	c.states = append(c.states, f.State)
}

// handled records that the agent handles a message.
func (w *Observer) handled(id string, number int, readonly bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.connectionLocked(id)
	if c == nil {
		w.Faultf("OnMessage gets a message of an unknown connection %s", id)
		return
	}
	w.Compared()
	if c.handled++; number != c.handled || readonly != c.readonly || c.closed {
		w.Faultf("OnMessage gets message %d of %s (readonly: %v), want %d (%v)", number, c.name, readonly, c.handled, c.readonly)
	}
}

func (w *Observer) closed(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.connectionLocked(id); c == nil || c.closed || c.ws != nil && !c.leaving && !c.ended {
		w.Faultf("OnClose gets the connection %s, which has not ended, or again", id)
	} else {
		c.closed = true
	}
}

func (w *Observer) connectionLocked(id string) *connection {
	i := slices.IndexFunc(w.connections, func(c *connection) bool { return c.id == id })
	if i < 0 {
		return nil
	}
	return w.connections[i]
}

// checkConnections compares the states that clients have received with the changes in the model, when the agent is at
// rest. A client has all changes since its connection, and if it is still connected up to the last one.
func (w *Observer) checkConnections(m *model, process *dohost.Host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	numbers := slices.Sorted(maps.Keys(m.Changes))
	for _, c := range w.connections {
		for _, s := range c.states {
			if m.Changes[s.Number].N != s.N {
				w.Faultf("%s has received %+v, which was not committed", c.name, s)
			}
		}
		if len(c.states) > 0 {
			first, last := c.states[0].Number, c.states[len(c.states)-1].Number
			count := 0
			for _, n := range numbers {
				if n >= first && n <= last {
					count++
				}
			}
			if count != len(c.states) {
				w.Faultf("%s has received %d of %d states from %d to %d", c.name, len(c.states), count, first, last)
			}
		}
		if c.leaving && c.process == process && c.ends == w.ends && !c.closed {
			w.Faultf("OnClose was not called for %s", c.name)
		}
		if c.ws == nil || c.ended || c.leaving {
			continue
		}
		switch {
		case len(c.states) > 0 && c.states[len(c.states)-1] != m.State, len(c.states) == 0 && m.State.Number != 0:
			w.Faultf("%s is connected, has received %v, and the state is %+v", c.name, c.states, m.State)
		case c.closed:
			w.Faultf("%s is connected, and OnClose was called", c.name)
		case c.handled < c.sent:
			w.Faultf("%d of %d messages of %s were handled", c.handled, c.sent, c.name)
		}
	}
}
