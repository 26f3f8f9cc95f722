package web

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/dohost/dohost"
)

// splitPath returns the n segments of a path after prefix, decoded one by one, and whether the path has exactly n that
// can be decoded.
func splitPath(u *url.URL, prefix string, n int) ([]string, bool) {
	segments, _, ok := cutSegments(u.EscapedPath(), prefix, n)
	if !ok {
		return nil, false
	}
	for i, s := range segments {
		decoded, err := url.PathUnescape(s)
		if err != nil {
			return nil, false
		}
		segments[i] = decoded
	}
	return segments, true
}

// cutSegments cuts n segments off an encoded path, and returns the rest after the next slash.
func cutSegments(path, prefix string, n int) (segments []string, rest string, ok bool) {
	path, ok = strings.CutPrefix(path, prefix)
	if !ok {
		return nil, "", false
	}
	segments = strings.SplitN(path, "/", n+1)
	if len(segments) < n {
		return nil, "", false
	}
	if len(segments) > n {
		rest = segments[n]
	}
	return segments[:n], rest, true
}

// refuse answers a request before it reaches an object.
func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, status, dohost.ErrorBody{Code: code, Message: message, Ran: dohost.OutcomeNotRun.String()})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// The client may have disconnected; then there is no other one to inform.
	_ = json.NewEncoder(w).Encode(v)
}
