package web

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/dohost/dohost"
)

// agents serves objects under the URLs of the Agents SDK. It splits paths by itself: net/http's own routing redirects
// a path with an empty segment, and the clients' agentFetch sends such paths.
type agents struct {
	*public
	prefix  []string
	classes map[string]string // stored name by its name in URLs
}

func newAgents(p *public) *agents {
	a := &agents{p, pathSegments(p.opts.AgentsPrefix), map[string]string{}}
	for _, c := range p.classes {
		if c.ServesHTTP() {
			a.classes[dohost.URLName(c.Name())] = c.Name()
		}
	}
	return a
}

// pathSegments splits a path, without its empty segments.
func pathSegments(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// matches reports whether a request is for an agent, and returns the segments after the prefix.
func (a *agents) matches(r *http.Request) (segments []string, ok bool) { return a.split(r.URL) }

func (a *agents) split(u *url.URL) (segments []string, ok bool) {
	segments = pathSegments(u.EscapedPath())
	if len(segments) < len(a.prefix)+2 {
		return nil, false
	}
	for i, want := range a.prefix {
		if segments[i] != want {
			return nil, false
		}
	}
	return segments[len(a.prefix):], true
}

// ServeHTTP calls the agent. The name is used as it was sent, undecoded.
func (a *agents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	segments, _ := a.matches(r)
	class, ok := a.classes[segments[0]]
	if !ok {
		http.Error(w, "Invalid request", http.StatusBadRequest)
		return
	}
	id := dohost.ID{Class: class, Name: segments[1]}
	if err := id.Validate(); err != nil {
		a.host.WriteError(w, &dohost.Error{Op: "http", ID: id, Err: err, Outcome: dohost.OutcomeNotRun})
		return
	}
	if !a.bounded(w, r, "http", id) {
		return
	}
	rest := "/" + strings.Join(segments[2:], "/")
	path, err := url.PathUnescape(rest)
	if err != nil {
		refuse(w, http.StatusBadRequest, "bad_path", err.Error())
		return
	}
	a.deliver(w, r, id, path, rest)
}

// allowAllOrigins lets pages of all origins use next, except by WebSockets: the object checks their origins.
func allowAllOrigins(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if dohost.IsUpgrade(r) {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Allow-Methods", "GET, POST, HEAD, OPTIONS")
		h.Set("Access-Control-Allow-Headers", "*, Authorization") // the star does not include it
		h.Set("Access-Control-Max-Age", "86400")
		if r.Method != http.MethodOptions {
			next.ServeHTTP(w, r)
		}
	})
}
