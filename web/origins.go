package web

import (
	"log/slog"
	"net/http"
	"strings"
)

// origins checks the origins of requests by browsers.
type origins struct{ check *http.CrossOriginProtection }

// newOrigins returns a check that allows the server's own origin and the trusted ones.
func newOrigins(trusted []string, log *slog.Logger) *origins {
	check := http.NewCrossOriginProtection()
	for _, origin := range trusted {
		if err := check.AddTrustedOrigin(origin); err != nil {
			log.Error("origin ignored", "origin", origin, "err", err)
		}
	}
	return &origins{check}
}

// protect refuses requests of pages of other origins, with any method: a GET, too, wakes an object or creates one.
// It passes links, and WebSockets, whose origins the host checks.
func (o *origins) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isHandshake(r) && !isLink(r) && o.foreign(r) {
			refuse(w, http.StatusForbidden, "foreign_origin", "requests from pages of other origins are not allowed")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// foreign reports whether a page of another origin has sent the request. Without Origin and Sec-Fetch-Site, which
// programs do not send, no page has.
func (o *origins) foreign(r *http.Request) bool {
	unsafe := r.WithContext(r.Context())
	unsafe.Method = http.MethodPost // net/http passes GET, HEAD and OPTIONS unchecked
	return o.check.Check(unsafe) != nil
}

// isLink reports whether a browser opens the response in a tab, perhaps by a link on a page of another origin.
func isLink(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Origin") == "" &&
		strings.EqualFold(r.Header.Get("Sec-Fetch-Mode"), "navigate") && strings.EqualFold(r.Header.Get("Sec-Fetch-Dest"), "document")
}
