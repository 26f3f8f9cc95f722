package randchat

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// In a guarded run the class refuses all requests, so clients need a [dohost.GrantAccess]. Some of their connections may only read. The model
// does not know the changes that such a connection requests, so each effect of one is a fault.

// viewerPrefix begins the ids of the requests of connections that may only read, and of their messages.
const viewerPrefix = "viewer "

// readonlyText is the documented error of such a request.
const readonlyText = "Connection is readonly"

// refuseAll is the Authorize function of a guarded class.
func refuseAll(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
	return dohost.Access{}, dohost.ErrForbidden
}

// handler returns the HTTP handler of the agent for a connection of a client.
func (w *Observer) handler(ctx context.Context, h *dohosttest.Host, c *client) http.Handler {
	id := w.agent(h).ID()
	bare := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { h.Host().ServeObject(rw, r, id) })
	if !w.guarded {
		return bare
	}
	w.mu.Lock()
	number := c.connections + int(c.name[len(c.name)-1])
	c.viewer = number%3 == 2 && !w.checking
	access := dohost.Access{Rights: dohost.RightsReadWrite}
	if c.viewer {
		access.Rights = dohost.RightsReadOnly
	}
	w.mu.Unlock()
	if _, err := fetch(ctx, bare); err == nil {
		w.Faultf("%s gets the conversation without an access", c.name)
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		bare(rw, r.WithContext(dohost.GrantAccess(r.Context(), access)))
	})
}

// endViewers ends the connections that may only read, and allows no others from now on.
func (w *Observer) endViewers() {
	w.mu.Lock()
	w.checking = true
	var list []*client
	for _, c := range w.clients {
		if c.viewer {
			list = append(list, c)
		}
	}
	w.mu.Unlock()
	for _, c := range list {
		w.leave(c)
	}
}

// view makes a connection that may only read execute an instruction, and reports whether c is one.
func (w *Observer) view(ctx context.Context, c *client, in Instr) bool {
	w.mu.Lock()
	viewer := c.viewer
	f := w.forgedLocked(c, in)
	w.mu.Unlock()
	if viewer && f != nil {
		w.occurs("a connection that may only read requests a change")
		w.send(ctx, c, f)
	}
	return viewer && in.Op != Probe
}

// forgedLocked returns a frame that has no effect on a connection that may only read; nil for none.
func (w *Observer) forgedLocked(c *client, in Instr) map[string]any {
	switch in.Op {
	case Submit, Edit, Redo:
		q := &request{id: fmt.Sprint(viewerPrefix, w.tickLocked()), submits: in.Op != Redo}
		q.user = userMessage(q.id, q.id)
		if q.list = append(q.list, c.list...); in.Op == Edit {
			q.list = nil
		}
		q.list = append(q.list, q.user)
		return requestFrame(q)
	case Stop:
		if len(w.requests) > 0 {
			return map[string]any{"type": "cf_agent_chat_request_cancel", "id": w.requests[len(w.requests)-1].id}
		}
	case Wipe:
		return map[string]any{"type": "cf_agent_chat_clear"}
	case Answer:
		for _, m := range c.list {
			for _, k := range m.Calls {
				if strings.HasPrefix(k.State, "output-") {
					continue
				}
				if in.N%2 == 0 {
					return map[string]any{"type": "cf_agent_tool_approval", "toolCallId": k.ID, "approved": in.N%3 > 0, "autoContinue": true}
				}
				return map[string]any{"type": "cf_agent_tool_result", "toolCallId": k.ID, "toolName": kindOf(k.ID).name, "output": "forged", "autoContinue": true}
			}
		}
	}
	return nil
}

// refused handles the answer to a request of a connection that may only read.
func (c *client) refused(f frame) {
	if !f.Done || f.Error != true || f.Body != readonlyText {
		c.w.Faultf("%s may only read, and gets %+v", c.name, f)
	}
}
