package streams

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/dohost/dohost"
)

const (
	// controlSegment is the first segment of the paths of the protocol's control requests.
	controlSegment   = "__ds"
	subscriptionPath = controlSegment + "/subscriptions/"
	jwksPath         = controlSegment + "/jwks.json"

	// maxControlBody bounds the body of a control request. It has room for maxExplicit paths.
	maxControlBody = 2 << 20
	// maxDescription bounds the description of a subscription, and the name of a worker, in bytes.
	maxDescription = 1024
	// maxPath bounds a pattern in bytes, as the path of a stream.
	maxPath = 1024
	// maxSubscriptionID bounds the ID of a subscription in bytes.
	maxSubscriptionID = 256
)

// control answers a request for the paths below controlSegment. escaped is the path after the prefix, as the client has sent it.
func (s *server) control(w http.ResponseWriter, r *http.Request, escaped string) {
	w.Header().Set("Cache-Control", "no-store")
	if escaped == jwksPath {
		s.jwks(w, r)
		return
	}
	rest, ok := strings.CutPrefix(escaped, subscriptionPath)
	parts := strings.Split(rest, "/")
	for i, part := range parts {
		text, err := url.PathUnescape(part)
		ok = ok && err == nil
		parts[i] = text
	}
	id := parts[0]
	if !ok || id == "" || len(id) > maxSubscriptionID {
		s.refuseControl(w, refused(http.StatusNotFound, "NO_ROUTE", "want %s{id} with an ID of 1 to %d bytes", subscriptionPath, maxSubscriptionID))
		return
	}
	action := ""
	if len(parts) > 1 {
		action = parts[1]
	}
	answer, method := s.action(r.Method, action, len(parts))
	switch {
	case method == "":
		s.refuseControl(w, refused(http.StatusNotFound, "NO_ROUTE", "there is no such request"))
	case answer == nil:
		w.Header().Set("Allow", method)
		s.refuseControl(w, refused(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "want %s", method))
	default:
		q := &controlRequest{w: w, r: r, id: id}
		if len(parts) > 2 {
			q.path = strings.Join(parts[2:], "/")
		}
		if !workerActions[action] && !s.authorize(q, Subscriptions.Get(s.host, id).ID(), r.Method != http.MethodGet) {
			return
		}
		answer(q)
	}
}

// workerActions are the requests of workers, which have the token of their wake.
var workerActions = map[string]bool{"callback": true, "ack": true, "release": true}

// controlRequest is a request for a subscription.
type controlRequest struct {
	w    http.ResponseWriter
	r    *http.Request
	id   string
	path string // of the stream, in the path of the request
}

// action returns the function that answers a request, or nil for another method, and the methods. They are empty for an unknown path.
func (s *server) action(method, action string, parts int) (answer func(*controlRequest), methods string) {
	type route struct {
		action, method string
		parts          int
	}
	answers := map[route]func(*controlRequest){
		{"", http.MethodPut, 1}:           s.subscribe,
		{"", http.MethodGet, 1}:           s.describe,
		{"", http.MethodDelete, 1}:        s.unsubscribe,
		{"streams", http.MethodPost, 2}:   s.addStreams,
		{"streams", http.MethodDelete, 3}: s.removeStream,
		{"claim", http.MethodPost, 2}:     s.claim,
		{"ack", http.MethodPost, 2}:       s.ackPullWake,
		{"callback", http.MethodPost, 2}:  s.ackWebhook,
		{"release", http.MethodPost, 2}:   s.release,
	}
	parts = min(parts, 3)
	var allowed []string
	for at := range answers {
		if at.action == action && at.parts == parts {
			allowed = append(allowed, at.method)
		}
	}
	slices.Sort(allowed)
	return answers[route{action, method, parts}], strings.Join(allowed, ", ")
}

// authorize decides about a request for an object, or answers it.
func (s *server) authorize(q *controlRequest, id dohost.ID, writes bool) bool {
	ctx, err := s.host.AuthorizeHTTP(q.r, id)
	if err != nil {
		s.host.WriteError(q.w, err)
		return false
	}
	if a, ok := dohost.AccessFrom(ctx); ok && a.Rights == dohost.RightsReadOnly && writes {
		s.refuse(q.w, http.StatusForbidden, "read_only", "the caller may only read")
		return false
	}
	return true
}

// refuseControl writes an error as the protocol has it.
func (s *server) refuseControl(w http.ResponseWriter, r *refusal) {
	e := map[string]any{"code": r.code, "message": r.message}
	if r.holder != "" {
		e["current_holder"], e["generation"] = r.holder, r.generation
	}
	s.writeJSON(w, r.status, map[string]any{"error": e})
}

func (s *server) writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		s.host.WriteError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = s.host.WriteBody(w, body) // the client has gone
}

// decode decodes the body of a request, or answers it. An empty body is an empty object.
func (s *server) decode(q *controlRequest, v any) bool {
	body, release, ok := s.body(q.w, q.r, Subscriptions.Get(s.host, q.id).ID(), maxControlBody)
	defer release()
	if !ok {
		return false
	}
	if len(body) == 0 {
		body = []byte("{}")
	}
	if err := json.Unmarshal(body, v); err != nil {
		s.refuseControl(q.w, refused(http.StatusBadRequest, "INVALID_REQUEST", "the body: %v", err))
		return false
	}
	return true
}

// boundedList is a list in the body of a request. It has at most maxListed elements: in memory, a list may be many times as large as its text.
type boundedList[T any] []T

// UnmarshalJSON decodes the elements one by one.
func (l *boundedList[T]) UnmarshalJSON(text []byte) error {
	*l = nil
	d := json.NewDecoder(bytes.NewReader(text))
	switch begin, err := d.Token(); {
	case err != nil || begin == nil: // null
		return err
	case begin != json.Delim('['):
		return errors.New("want a list")
	}
	for d.More() {
		if len(*l) == maxListed {
			return fmt.Errorf("want at most %d elements of a list", maxListed)
		}
		var v T
		if err := d.Decode(&v); err != nil {
			return err
		}
		*l = append(*l, v)
	}
	return nil
}

// jwks answers a request for the keys that sign the deliveries.
func (s *server) jwks(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		s.refuseControl(w, refused(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "want GET or HEAD"))
		return
	}
	key, err := readKey(r.Context(), s.host)
	if err != nil {
		s.host.WriteError(w, err)
		return
	}
	body, err := key.jwks()
	if err != nil {
		s.host.WriteError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/jwk-set+json")
	w.Header().Set("Cache-Control", "public, max-age=300")
	_, _ = w.Write(body) // the client has gone
}
