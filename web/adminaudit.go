package web

import (
	"net/http"
	"strings"
)

// audited logs each request of an operator that changes something, exports an object, reads its details or
// profiles the process, before it passes the request on: one line, with the remote address.
func (a *admin) audited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.EscapedPath()
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		content := strings.HasSuffix(path, "/export") || strings.HasSuffix(path, "/details")
		if !reads || content || strings.HasPrefix(path, "/debug/pprof/") {
			a.opts.Logger.Info("operator", "remote", r.RemoteAddr, "method", r.Method, "path", path, "query", r.URL.RawQuery)
		}
		next.ServeHTTP(w, r)
	})
}

// conversations passes the page's requests to agents, WebSockets and transcripts, and logs them. It refuses other
// requests: the pages that agents serve would have the origin of the admin listener, and so its rights.
func (a *admin) conversations(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.EscapedPath()
		transcript := r.Method == http.MethodGet && strings.HasSuffix(path, "/get-messages")
		if !transcript && !isHandshake(r) {
			refuse(w, http.StatusForbidden, "not_here", "this listener passes only WebSockets and get-messages to agents; --listen serves other requests")
			return
		}
		a.opts.Logger.Info("operator", "remote", r.RemoteAddr, "method", r.Method, "path", path)
		next.ServeHTTP(&sandboxed{w}, r)
	})
}

// sandboxed prevents the response of an object from being a page of this origin.
type sandboxed struct{ http.ResponseWriter }

// Unwrap is for http.ResponseController.
func (s *sandboxed) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// WriteHeader replaces the object's own headers of that name.
func (s *sandboxed) WriteHeader(status int) {
	s.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
	s.Header().Set("X-Content-Type-Options", "nosniff")
	s.ResponseWriter.WriteHeader(status)
}
