package streams

import (
	"net/http"
	"strings"
	"unicode/utf8"
)

// claim answers the claim of a worker.
func (s *server) claim(q *controlRequest) {
	var r struct {
		Worker string `json:"worker"`
	}
	if !s.decode(q, &r) {
		return
	}
	if r.Worker == "" || len(r.Worker) > maxDescription || !utf8.ValidString(r.Worker) {
		s.refuseControl(q.w, refused(http.StatusBadRequest, "INVALID_REQUEST", "worker: want 1 to %d bytes of UTF-8", maxDescription))
		return
	}
	claimed, err := call(q.r.Context(), Subscriptions.Get(s.host, q.id), false, (*Subscription).claim, r.Worker)
	switch {
	case err != nil:
		s.host.WriteError(q.w, err)
	case claimed.Refusal != nil:
		s.refuseControl(q.w, claimed.Refusal)
	default:
		s.writeJSON(q.w, http.StatusOK, map[string]any{
			"wake_id": claimed.Wake.ID, "generation": claimed.Wake.Generation, "token": claimed.Token,
			"streams": infosOf(claimed.Links), "lease_ttl_ms": claimed.Lease.Milliseconds(),
		})
	}
}

// ackPullWake answers the ack of a worker that has claimed a wake.
func (s *server) ackPullWake(q *controlRequest) { s.ack(q, typePullWake) }

// ackWebhook answers the callback of a webhook's worker.
func (s *server) ackWebhook(q *controlRequest) { s.ack(q, typeWebhook) }

func (s *server) ack(q *controlRequest, kind string) {
	result, ok := s.ackAs(q, &ackRequest{Type: kind})
	if ok {
		s.writeJSON(q.w, http.StatusOK, map[string]any{"ok": true, "next_wake": result.NextWake})
	}
}

// release answers the release of a worker: its wake ends, and no cursor moves.
func (s *server) release(q *controlRequest) {
	if _, ok := s.ackAs(q, &ackRequest{Type: typePullWake, Release: true}); ok {
		q.w.WriteHeader(http.StatusNoContent)
	}
}

// ackBody is a cursor in the body of an ack.
type ackBody struct {
	Stream string `json:"stream"`
	Path   string `json:"path"`
	Offset string `json:"offset"`
}

// exists reports whether the subscription exists, or answers the request.
func (s *server) exists(q *controlRequest) bool {
	stored, err := s.host.Exists(q.r.Context(), Subscriptions.Get(s.host, q.id).ID())
	switch {
	case err != nil:
		s.host.WriteError(q.w, err)
	case !stored:
		s.refuseControl(q.w, noSubscription())
	}
	return err == nil && stored
}

// ackAs sends a request of the worker that has the wake to the subscription, or answers it.
func (s *server) ackAs(q *controlRequest, a *ackRequest) (result ackResult, ok bool) {
	scheme, token, _ := strings.Cut(q.r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		s.refuseControl(q.w, refused(http.StatusUnauthorized, "TOKEN_INVALID", "want the token of the wake as a bearer token"))
		return result, false
	}
	var r struct {
		Wake       string               `json:"wake_id"`
		Generation uint64               `json:"generation"`
		Acks       boundedList[ackBody] `json:"acks"`
		Done       bool                 `json:"done"`
	}
	// A client needs no rights for this request: it must not wake objects that do not exist.
	if !s.exists(q) || !s.decode(q, &r) {
		return result, false
	}
	a.Token, a.Wake, a.Generation, a.Done = strings.TrimSpace(token), r.Wake, r.Generation, r.Done
	for _, at := range r.Acks {
		path := at.Stream
		if path == "" {
			path = at.Path
		}
		if path = strings.Trim(path, "/"); path == "" {
			s.refuseControl(q.w, refused(http.StatusBadRequest, "INVALID_REQUEST", "acks: want the path of a stream"))
			return result, false
		}
		a.Acks = append(a.Acks, ack{path, at.Offset})
	}
	if a.Release {
		a.Acks, a.Done = nil, true
	}
	result, err := call(q.r.Context(), Subscriptions.Get(s.host, q.id), false, (*Subscription).ack, a)
	switch {
	case err != nil:
		s.host.WriteError(q.w, err)
	case result.Refusal != nil:
		s.refuseControl(q.w, result.Refusal)
	default:
		return result, true
	}
	return result, false
}
