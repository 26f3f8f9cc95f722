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

// scribe stores the lines that a socket sends. After every second line it sleeps, without
// the turn.
type scribe struct{ st *dohost.State }

var scribes dohost.Namespace[scribe] = "scribe"

// greet sends the number of lines.
func (s *scribe) greet(w http.ResponseWriter, r *http.Request) {
	have, err := s.lines(r.Context(), none{})
	sock, err2 := s.st.Accept(w, r, nil)
	if err = errors.Join(err, err2); err == nil {
		err = sock.Send(r.Context(), text("have %d", len(have)))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (s *scribe) write(ctx context.Context, from *dohost.Socket, f dohost.Frame) error {
	have, err := s.lines(ctx, none{})
	if err != nil {
		return err
	}
	n := len(have) + 1
	if err := dohost.Put(ctx, s.st.Storage(), fmt.Sprintf("line/%d", n), string(f.Data)); err != nil {
		return err
	}
	if err := from.Send(ctx, text("have %d", n)); err != nil || n%2 == 0 {
		return err
	}
	return dohost.Sleep(ctx, time.Second)
}

func (s *scribe) lines(ctx context.Context, _ none) (lines []string, err error) {
	items, err := dohost.List[string](ctx, s.st.Storage(), &dohost.ListOptions{Prefix: "line/"})
	for _, it := range items {
		lines = append(lines, it.Value)
	}
	return lines, err
}

// dictated has the lines to send, fewer than ten.
var dictated = []string{"one", "two", "three", "four", "five"}

// dictate sends all missing lines, without waiting for an answer in between, and reads the
// confirmations.
func dictate(ctx context.Context, h *dohosttest.Host) error {
	v := &visitor{h: h, id: scribes.Get(h, "a").ID(), path: "/"}
	defer v.leave()
	for have := 0; have < len(dictated); {
		if err := v.connect(ctx); err != nil {
			return err
		}
		said := -1
		for have < len(dictated) {
			line, connected, err := v.hear(ctx)
			if err != nil {
				return err
			}
			if !connected {
				break
			}
			if _, err := fmt.Sscanf(line, "have %d", &have); err != nil {
				return fmt.Errorf("%q: %w", line, err)
			}
			if said < 0 { // the greeting
				for said = have; said < len(dictated); said++ {
					v.say(ctx, dictated[said])
				}
			}
		}
	}
	return nil
}

// newDictation has messages of one socket, which must be handled in order.
func newDictation() dohosttest.Scenario {
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(scribes, func(_ context.Context, st *dohost.State) (*scribe, error) {
			return &scribe{st}, nil
		}, &dohost.Handlers[scribe]{
			OnHTTP:   (*scribe).greet,
			OnSocket: &dohost.SocketHandlers[scribe]{Message: (*scribe).write},
		})},
		Places: turns,
		Run:    dictate,
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			found, err := dohost.Call(ctx, scribes.Get(h, "a"), (*scribe).lines, none{})
			return errors.Join(err, differ("the lines", found, dictated))
		},
	}
}
