package web

import (
	"errors"
	"net/http"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
)

// closeSockets answers DELETE /v1/objects/class/name/sockets?tag=t: those of a tag, or all. An empty tag, which may be
// a mistake of a script, does not mean all.
func (a *admin) closeSockets(_ http.ResponseWriter, r *http.Request, id dohost.ID) (any, error) {
	q := r.URL.Query()
	if q.Has("tag") && q.Get("tag") == "" {
		return nil, &dohost.ArgumentError{Method: "sockets", Err: errors.New("the tag is empty: want a tag, or no tag parameter for all sockets")}
	}
	return adminapi.ClosedSockets{Closed: a.host.CloseSockets(id, q.Get("tag"))}, nil
}

// sockets answers GET /v1/objects/class/name/sockets. It wakes no object.
func (a *admin) sockets(id dohost.ID) adminapi.SocketList {
	list := adminapi.SocketList{Sockets: []adminapi.Socket{}}
	open := "hibernating"
	if a.host.IsLive(id) {
		open = "live"
	}
	for _, s := range a.host.Sockets(id) {
		state := s.State.String()
		if s.State == dohost.SocketOpen {
			state = open
		}
		list.Sockets = append(list.Sockets, adminapi.Socket{Tags: s.Tags, Since: s.Since, State: state, Waiting: s.Unsent})
	}
	return list
}
