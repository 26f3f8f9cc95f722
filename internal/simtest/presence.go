package simtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// presenceObject is an object that knows the present clients by its sockets, and all earlier ones
// by its storage.
type presenceObject struct{ st *dohost.State }

var presenceObjects dohost.Namespace[presenceObject] = "presence"

// accept sends a greeting: a frame that is sent before the handshake is answered must wait for it.
func (p *presenceObject) accept(w http.ResponseWriter, r *http.Request) {
	name, ctx := r.URL.Query().Get("name"), r.Context()
	s, err := p.st.Accept(w, r, &dohost.AcceptOptions{Tags: []string{name, r.URL.Query().Get("team")}})
	err = errors.Join(err, dohost.Put(ctx, p.st.Storage(), "guest/"+name, true))
	if err == nil {
		err = s.Send(ctx, textFrame("welcome"))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (p *presenceObject) onMessage(context.Context, *dohost.Socket, dohost.Frame) error { return nil }

// onClosed records a guest that has left, if the object gets the event.
func (p *presenceObject) onClosed(ctx context.Context, s *dohost.Socket, _ dohost.Closing) error {
	return dohost.Put(ctx, p.st.Storage(), "left/"+s.Tags()[0], true)
}

// present returns the names of the sockets with a tag.
func (p *presenceObject) present(_ context.Context, tag string) (names []string, err error) {
	for _, s := range p.st.Sockets(tag) {
		if !slices.Contains(s.Tags(), tag) && tag != "" {
			err = errors.Join(err, fmt.Errorf("a socket with the tags %q is found by %q", s.Tags(), tag))
		}
		names = append(names, s.Tags()[0])
	}
	slices.Sort(names)
	return names, err
}

// askToLeave asks a guest to leave.
func (p *presenceObject) askToLeave(ctx context.Context, name string) (none, error) {
	return none{}, p.st.Broadcast(ctx, textFrame("go"), p.st.Sockets(name))
}

// guests returns the names of all guests so far.
func (p *presenceObject) guests(ctx context.Context, _ none) (names []string, err error) {
	items, err := dohost.List[bool](ctx, p.st.Storage(), &dohost.ListOptions{Prefix: "guest/"})
	for _, it := range items {
		names = append(names, it.Key[len("guest/"):])
	}
	return names, err
}

// teams has the team of each guest.
var teams = map[string]string{"a": "red", "b": "blue", "c": "red"}

// stayConnected is connected until it is asked to leave.
func stayConnected(ctx context.Context, h *dohosttest.Host, name string) error {
	v := &socketClient{h: h, id: presenceObjects.Get(h, "a").ID(), path: "/?name=" + name + "&team=" + teams[name]}
	for {
		if err := v.connect(ctx); err != nil {
			return err
		}
		for connected := true; connected; {
			var line string
			var err error
			if line, connected, err = v.receive(ctx); err != nil {
				return err
			}
			if line == "go" {
				v.close()
				return nil
			}
		}
	}
}

// waitForPresent waits until exactly these guests are present: an ending disconnects all of them,
// and they reconnect. No guest may have two sockets.
func waitForPresent(ctx context.Context, h *dohosttest.Host, tag string, want ...string) error {
	var found []string
	for range maxConnects {
		var err error
		if found, err = retryCall(ctx, presenceObjects.Get(h, "a"), (*presenceObject).present, tag); err != nil {
			return err
		}
		if len(slices.Compact(slices.Clone(found))) < len(found) {
			return fmt.Errorf("of %q there are %q", tag, found)
		}
		if slices.Equal(found, want) {
			return nil
		}
		h.Advance(time.Second)
	}
	return differ(fmt.Sprintf("clients with tag %q", tag), found, want)
}

// disconnectClient asks a guest to leave until its client has received the request: an ending may lose the request, or
// disconnect the guest, which then reconnects.
func disconnectClient(ctx context.Context, h *dohosttest.Host, name string, left *atomic.Bool, rest ...string) error {
	for range maxConnects {
		if _, err := retryCall(ctx, presenceObjects.Get(h, "a"), (*presenceObject).askToLeave, name); err != nil {
			return err
		}
		h.Advance(time.Second)
		if left.Load() {
			return waitForPresent(ctx, h, "", rest...)
		}
	}
	return fmt.Errorf("%s does not leave", name)
}

func runPresence(ctx context.Context, h *dohosttest.Host) error {
	var clients []*dohosttest.Client
	left := map[string]*atomic.Bool{"a": {}, "b": {}, "c": {}}
	for _, name := range []string{"a", "b", "c"} {
		clients = append(clients, h.Client(func(ctx context.Context) error {
			defer left[name].Store(true)
			return stayConnected(ctx, h, name)
		}))
	}
	err := errors.Join(waitForPresent(ctx, h, "", "a", "b", "c"), waitForPresent(ctx, h, "red", "a", "c"))
	if err == nil {
		h.Advance(25 * time.Second) // the object leaves memory
		err = errors.Join(disconnectClient(ctx, h, "b", left["b"], "a", "c"), waitForPresent(ctx, h, "blue"))
	}
	for _, name := range []string{"a", "c"} {
		if err == nil {
			err = disconnectClient(ctx, h, name, left[name], map[string][]string{"a": {"c"}}[name]...)
		}
	}
	if err != nil {
		return err
	}
	for _, c := range clients {
		err = errors.Join(err, c.Wait())
	}
	return err
}

// newPresence has clients that reconnect whenever their socket is closed, and are found by
// their tags.
func newPresence() dohosttest.Scenario {
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(presenceObjects, func(_ context.Context, st *dohost.State) (*presenceObject, error) {
			return &presenceObject{st}, nil
		}, &dohost.Handlers[presenceObject]{
			OnHTTP: (*presenceObject).accept,
			OnSocket: &dohost.SocketHandlers[presenceObject]{
				Message: (*presenceObject).onMessage, Closed: (*presenceObject).onClosed,
			},
		})},
		Options: dohost.Options{IdleAfter: 10 * time.Second},
		Places:  objectPlaces,
		Run:     runPresence,
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			guests, err := dohost.Call(ctx, presenceObjects.Get(h, "a"), (*presenceObject).guests, none{})
			who, err2 := dohost.Call(ctx, presenceObjects.Get(h, "a"), (*presenceObject).present, "")
			err = errors.Join(err, err2, differ("clients that connected", guests, []string{"a", "b", "c"}))
			return errors.Join(err, differ("connected clients", who, []string{}))
		},
	}
}
