package web

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/dohost/dohost"
)

// ObjectOf returns a function that returns the object whose host answers a request to a [Handler] with these options, over these classes;
// ok is false for a request that any host of the classes can answer. A ticket for a socket belongs to the object of the socket. The options
// must have no Handlers.
//
// The object of a sub-agent's request is its root, which delegates the request.
func ObjectOf(classes []dohost.Class, o *Options) func(r *http.Request) (id dohost.ID, ok bool) {
	opts := o.withDefaults()
	p := &public{opts: opts, classes: slices.DeleteFunc(slices.Clone(classes), func(c dohost.Class) bool {
		return !slices.Contains(opts.Classes, c.Name())
	})}
	a := newAgents(p)
	return func(r *http.Request) (id dohost.ID, ok bool) {
		u := r.URL
		if u.Path == hostPath && opts.Page {
			socket := u.Query().Get(socketParam)
			if u, ok = parsePath(socket); !ok {
				return id, false
			}
		}
		return a.object(u)
	}
}

// parsePath returns the URL of a path as in a request.
func parsePath(path string) (*url.URL, bool) {
	u, err := url.ParseRequestURI(path)
	return u, err == nil
}

// object returns the object that a URL names.
func (a *agents) object(u *url.URL) (id dohost.ID, ok bool) {
	if segments, ok := a.split(u); ok {
		class, ok := a.classes[segments[0]]
		return dohost.ID{Class: class, Name: segments[1]}, ok
	}
	segments, ok := splitPath(u, "/objects/", 3)
	if !ok || a.opts.NoObjects {
		return id, false
	}
	return dohost.ID{Class: segments[0], Name: segments[1]}, true
}
