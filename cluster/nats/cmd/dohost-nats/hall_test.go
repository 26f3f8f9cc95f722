//go:build unix

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"

	"github.com/dohost/dohost"
)

const halls dohost.Namespace[hall] = "hall"

// hall numbers the frames of its clients, and tells each to all clients.
type hall struct{ st *dohost.State }

// hallProgram is the program with this class only.
func hallProgram() {
	os.Exit(run(dohost.Bind(halls, func(_ context.Context, st *dohost.State) (*hall, error) { return &hall{st}, nil },
		&dohost.Handlers[hall]{
			OnHTTP:   (*hall).enter,
			OnSocket: &dohost.SocketHandlers[hall]{Durable: true, Message: (*hall).say, Closed: (*hall).leave},
		}, dohost.ExposeRead("left", (*hall).left))))
}

// The keys of a hall.
const (
	saidKey = "said" // frames
	leftKey = "left" // clients that have left
)

func (h *hall) enter(w http.ResponseWriter, r *http.Request) {
	if _, err := h.st.Accept(w, r, nil); err != nil {
		h.st.WriteError(w, err)
	}
}

// told is a frame to all clients.
type told struct {
	Number int
	Text   string // the frame of a client
}

func (h *hall) say(ctx context.Context, _ *dohost.Socket, f dohost.Frame) error {
	if err := dohost.Add(ctx, h.st.Storage(), saidKey, 1); err != nil {
		return err
	}
	n, _, err := dohost.Get[int](ctx, h.st.Storage(), saidKey)
	if err != nil {
		return err
	}
	data, err := json.Marshal(told{n, string(f.Data)})
	if err != nil {
		return err
	}
	return h.st.Broadcast(ctx, dohost.Frame{Text: true, Data: data}, h.st.Sockets(""))
}

func (h *hall) leave(ctx context.Context, _ *dohost.Socket, _ dohost.Closing) error {
	return dohost.Add(ctx, h.st.Storage(), leftKey, 1)
}

// left returns the number of clients that have left, and of sockets.
func (h *hall) left(ctx context.Context, _ struct{}) (counts [2]int, err error) {
	counts[0], _, err = dohost.Get[int](ctx, h.st.Storage(), leftKey)
	counts[1] = len(h.st.Sockets(""))
	return counts, err
}
