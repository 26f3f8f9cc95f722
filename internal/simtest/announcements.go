package simtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// announcer numbers the messages of its sockets, each text once, and broadcasts the number
// to all of them.
type announcer struct{ st *dohost.State }

var announcers dohost.Namespace[announcer] = "announcer"

func (a *announcer) serve(w http.ResponseWriter, r *http.Request) {
	if _, err := a.st.Accept(w, r, nil); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (a *announcer) onMessage(ctx context.Context, from *dohost.Socket, f dohost.Frame) error {
	key := "thing/" + string(f.Data)
	n, known, err := dohost.Get[int](ctx, a.st.Storage(), key)
	if err != nil {
		return err
	}
	if known {
		return from.Send(ctx, textFrame("%s %d", f.Data, n))
	}
	last, _, err := dohost.Get[int](ctx, a.st.Storage(), "last")
	if err != nil {
		return err
	}
	n = last + 1
	err = errors.Join(dohost.Put(ctx, a.st.Storage(), "last", n), dohost.Put(ctx, a.st.Storage(), key, n))
	if err != nil {
		return err
	}
	return a.st.Broadcast(ctx, textFrame("%s %d", f.Data, n), a.st.Sockets(""))
}

// numbers returns the number of each text.
func (a *announcer) numbers(ctx context.Context, _ none) (map[string]int, error) {
	items, err := dohost.List[int](ctx, a.st.Storage(), &dohost.ListOptions{Prefix: "thing/"})
	all := map[string]int{}
	for _, it := range items {
		all[it.Key[len("thing/"):]] = it.Value
	}
	return all, err
}

// The number of clients, and of the texts of each.
const (
	announcementClients = 2
	textsPerClient      = 2
)

// announcementsRun has the numbers that clients received.
type announcementsRun struct {
	mu   sync.Mutex
	seen map[string]int
}

// recordNumber records a number. All clients must receive the same number for a text, and no two
// texts may have the same number.
func (a *announcementsRun) recordNumber(line string) (thing string, err error) {
	var n int
	if _, err := fmt.Sscanf(line, "%s %d", &thing, &n); err != nil {
		return "", err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for other, m := range a.seen {
		if (other == thing) != (m == n) {
			return "", fmt.Errorf("%s received %d, %s receives %d", other, m, thing, n)
		}
	}
	a.seen[thing] = n
	return thing, nil
}

// sendTexts sends texts, each until its number arrives, and stays idle in between.
func (a *announcementsRun) sendTexts(ctx context.Context, h *dohosttest.Host, name string) error {
	v := &socketClient{h: h, id: announcers.Get(h, "a").ID(), path: "/"}
	defer v.close()
	for k := range textsPerClient {
		if err := a.sendUntilNumbered(ctx, v, fmt.Sprintf("%s%d", name, k)); err != nil {
			return err
		}
		h.Advance(25 * time.Second) // the object leaves memory, the socket stays
	}
	return nil
}

func (a *announcementsRun) sendUntilNumbered(ctx context.Context, v *socketClient, thing string) error {
	for {
		if err := v.connect(ctx); err != nil {
			return err
		}
		v.send(ctx, thing)
		for connected := true; connected; {
			var line, what string
			var err error
			if line, connected, err = v.receive(ctx); err != nil {
				return err
			}
			if connected {
				what, err = a.recordNumber(line)
			}
			if err != nil || what == thing {
				return err
			}
		}
	}
}

func (a *announcementsRun) run(ctx context.Context, h *dohosttest.Host) error {
	var clients []*dohosttest.Client
	for i := range announcementClients {
		name := string(rune('a' + i))
		clients = append(clients, h.Client(func(ctx context.Context) error { return a.sendTexts(ctx, h, name) }))
	}
	var err error
	for _, c := range clients {
		err = errors.Join(err, c.Wait())
	}
	return err
}

func (a *announcementsRun) check(ctx context.Context, h *dohosttest.Host) error {
	found, err := dohost.Call(ctx, announcers.Get(h, "a"), (*announcer).numbers, none{})
	err = errors.Join(err, differ("number of announcements", len(found), announcementClients*textsPerClient))
	return errors.Join(err, differ("the numbers that clients have received", a.seen, found))
}

// newAnnouncements has clients that receive only durable numbers, over sockets that outlive the incarnation.
func newAnnouncements() dohosttest.Scenario {
	a := new(announcementsRun)
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(announcers, func(_ context.Context, st *dohost.State) (*announcer, error) {
			return &announcer{st}, nil
		}, &dohost.Handlers[announcer]{
			OnHTTP: (*announcer).serve,
			OnSocket: &dohost.SocketHandlers[announcer]{
				Message: (*announcer).onMessage,
			},
		})},
		Options: dohost.Options{IdleAfter: 10 * time.Second},
		Places:  objectPlaces,
		Reset:   func() { a.seen = map[string]int{} },
		Run:     a.run,
		Check:   a.check,
	}
}
