package socket

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// HandshakeError is the reason why a request cannot become a WebSocket.
type HandshakeError struct {
	Status int // of the response
	why    string
}

// Error implements error.
func (e *HandshakeError) Error() string { return "dohost: no WebSocket: " + e.why }

// Answer answers the request.
func (e *HandshakeError) Answer(w http.ResponseWriter) {
	switch e.Status {
	case http.StatusUpgradeRequired:
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", http.MethodGet)
	case http.StatusBadRequest:
		w.Header().Set("Sec-WebSocket-Version", "13")
	}
	http.Error(w, e.Error(), e.Status)
}

// IsUpgrade reports whether a request asks for a WebSocket.
func IsUpgrade(r *http.Request) bool { return hasToken(r.Header, "Upgrade", "websocket") }

// CheckHandshake checks the headers of a WebSocket handshake, the Origin included: that of
// the server itself, and those that match one of the patterns, may connect. It accepts
// nothing that [Conn.Open] refuses. It returns nil for a request that may become a
// WebSocket.
func CheckHandshake(r *http.Request, origins []string) *HandshakeError {
	keys := r.Header.Values("Sec-WebSocket-Key")
	switch {
	case !IsUpgrade(r) || !hasToken(r.Header, "Connection", "Upgrade") || !r.ProtoAtLeast(1, 1):
		return &HandshakeError{http.StatusUpgradeRequired, "the request does not ask for an upgrade to websocket"}
	case r.Method != http.MethodGet:
		return &HandshakeError{http.StatusMethodNotAllowed, "the method is not GET"}
	case r.ContentLength != 0: // the server would wait for the body before it releases the connection
		return &HandshakeError{http.StatusBadRequest, "the request has a body"}
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		return &HandshakeError{http.StatusBadRequest, "Sec-WebSocket-Version is not 13"}
	case len(keys) != 1 || !isKey(keys[0]):
		return &HandshakeError{http.StatusBadRequest, "Sec-WebSocket-Key is not 16 bytes in base64"}
	case !mayConnect(r, origins):
		return &HandshakeError{http.StatusForbidden, "the Origin may not connect"}
	}
	return nil
}

func isKey(key string) bool {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(key))
	return err == nil && len(raw) == 16
}

// CheckOrigin returns an error for a pattern that no origin matches, or that matches the origins that have no host.
func CheckOrigin(pattern string) error {
	host := pattern
	if scheme, rest, ok := strings.Cut(pattern, "://"); ok {
		if host = rest; scheme == "" {
			return errors.New("the scheme is empty")
		}
	}
	switch _, err := path.Match(pattern, ""); {
	case host == "":
		return errors.New("the host is empty")
	case strings.Contains(host, "/"):
		return errors.New("it has a path, and origins have none")
	case err != nil:
		return err
	}
	return nil
}

// mayConnect checks the Origin, which clients other than browsers do not send.
func mayConnect(r *http.Request, origins []string) bool {
	all := r.Header.Values("Origin")
	if len(all) == 0 || len(all) == 1 && all[0] == "" {
		return true
	}
	u, err := url.Parse(all[0])
	if err != nil || len(all) > 1 {
		return false
	}
	if strings.EqualFold(u.Host, r.Host) {
		return true
	}
	for _, pattern := range origins {
		target := u.Host
		if strings.Contains(pattern, "://") {
			target = u.Scheme + "://" + u.Host
		}
		if ok, err := path.Match(strings.ToLower(pattern), strings.ToLower(target)); ok && err == nil {
			return true
		}
	}
	return false
}

// hasToken reports whether a header, a list of tokens, has one of them.
func hasToken(h http.Header, name, token string) bool {
	for _, line := range h.Values(name) {
		for t := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}
