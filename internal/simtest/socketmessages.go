package simtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// socketLineStore stores the lines that a socket sends. After every second line it sleeps, without
// the turn.
type socketLineStore struct{ st *dohost.State }

var socketLines dohost.Namespace[socketLineStore] = "socket-lines"

// accept sends the number of lines.
func (s *socketLineStore) accept(w http.ResponseWriter, r *http.Request) {
	have, err := s.lines(r.Context(), none{})
	sock, err2 := s.st.Accept(w, r, nil)
	if err = errors.Join(err, err2); err == nil {
		err = sock.Send(r.Context(), textFrame("have %d", len(have)))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (s *socketLineStore) onMessage(ctx context.Context, from *dohost.Socket, f dohost.Frame) error {
	have, err := s.lines(ctx, none{})
	if err != nil {
		return err
	}
	n := len(have) + 1
	if err := dohost.Put(ctx, s.st.Storage(), fmt.Sprintf("line/%d", n), string(f.Data)); err != nil {
		return err
	}
	if err := from.Send(ctx, textFrame("have %d", n)); err != nil || n%2 == 0 {
		return err
	}
	return dohost.Sleep(ctx, time.Second)
}

func (s *socketLineStore) lines(ctx context.Context, _ none) (lines []string, err error) {
	items, err := dohost.List[string](ctx, s.st.Storage(), &dohost.ListOptions{Prefix: "line/"})
	for _, it := range items {
		lines = append(lines, it.Value)
	}
	return lines, err
}

// sentLines has the lines to send, fewer than ten.
var sentLines = []string{"one", "two", "three", "four", "five"}

// sendLines sends all missing lines, without waiting for an answer in between, and reads the
// confirmations.
func sendLines(ctx context.Context, h *dohosttest.Host) error {
	v := &socketClient{h: h, id: socketLines.Get(h, "a").ID(), path: "/"}
	defer v.close()
	for have := 0; have < len(sentLines); {
		if err := v.connect(ctx); err != nil {
			return err
		}
		sent := -1
		for have < len(sentLines) {
			line, connected, err := v.receive(ctx)
			if err != nil {
				return err
			}
			if !connected {
				break
			}
			if _, err := fmt.Sscanf(line, "have %d", &have); err != nil {
				return fmt.Errorf("%q: %w", line, err)
			}
			if sent < 0 { // the greeting
				for sent = have; sent < len(sentLines); sent++ {
					v.send(ctx, sentLines[sent])
				}
			}
		}
	}
	return nil
}

// newSocketMessages has messages of one socket, which must be handled in order.
func newSocketMessages() dohosttest.Scenario {
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(socketLines, func(_ context.Context, st *dohost.State) (*socketLineStore, error) {
			return &socketLineStore{st}, nil
		}, &dohost.Handlers[socketLineStore]{
			OnHTTP:   (*socketLineStore).accept,
			OnSocket: &dohost.SocketHandlers[socketLineStore]{Message: (*socketLineStore).onMessage},
		})},
		Places: objectPlaces,
		Run:    sendLines,
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			found, err := dohost.Call(ctx, socketLines.Get(h, "a"), (*socketLineStore).lines, none{})
			return errors.Join(err, differ("the lines", found, sentLines))
		},
	}
}
