package web

import (
	"errors"
	"net/http"
	"time"

	"github.com/dohost/dohost"
)

// Socket describes an object's WebSocket, as JSON.
type Socket struct {
	Tags    []string  `json:"tags,omitempty"`
	Since   time.Time `json:"since"`
	State   string    `json:"state"` // opening, live, hibernating or closing
	Waiting int       `json:"waiting_bytes,omitempty"`
}

// SocketList is an object's WebSockets, in the order of their connection.
type SocketList struct {
	Sockets []Socket `json:"sockets"`
}

// ClosedSockets is the answer to DELETE of an object's sockets.
type ClosedSockets struct {
	Closed int `json:"closed"`
}

// closeSockets answers DELETE /v1/objects/class/name/sockets?tag=t: those of a tag, or all. An empty tag, which may be
// a mistake of a script, does not mean all.
func (a *admin) closeSockets(_ http.ResponseWriter, r *http.Request, id dohost.ID) (any, error) {
	q := r.URL.Query()
	if q.Has("tag") && q.Get("tag") == "" {
		return nil, &dohost.ArgumentError{Method: "sockets", Err: errors.New("the tag is empty: want a tag, or no tag parameter for all sockets")}
	}
	return ClosedSockets{a.host.CloseSockets(id, q.Get("tag"))}, nil
}

// sockets answers GET /v1/objects/class/name/sockets. It wakes no object.
func (a *admin) sockets(id dohost.ID) SocketList {
	list := SocketList{Sockets: []Socket{}}
	open := "hibernating"
	if a.host.IsLive(id) {
		open = "live"
	}
	for _, s := range a.host.Sockets(id) {
		state := s.State.String()
		if s.State == dohost.SocketOpen {
			state = open
		}
		list.Sockets = append(list.Sockets, Socket{Tags: s.Tags, Since: s.Since, State: state, Waiting: s.Unsent})
	}
	return list
}
