package streams

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dohost/dohost"
)

// subscribeRequest is the body of a PUT of a subscription.
type subscribeRequest struct {
	Type    string              `json:"type"`
	Pattern string              `json:"pattern"`
	Streams boundedList[string] `json:"streams"`
	Webhook struct {
		URL string `json:"url"`
	} `json:"webhook"`
	WakeStream  string `json:"wake_stream"`
	Lease       *int64 `json:"lease_ttl_ms"`
	Description string `json:"description"`
}

// config returns the configuration that a request describes.
func (r *subscribeRequest) config() (*config, error) {
	c := &config{
		Type: r.Type, Pattern: strings.Trim(r.Pattern, "/"), WakeStream: strings.Trim(r.WakeStream, "/"), Lease: defaultLease,
		Description: r.Description,
	}
	switch {
	case r.Type == typeWebhook && r.Webhook.URL == "":
		return nil, fmt.Errorf("webhook.url: want the URL of the webhook")
	case r.Type == typePullWake && !validPath(c.WakeStream):
		return nil, fmt.Errorf("wake_stream: want the path of a stream")
	case r.Type == typeWebhook:
		c.URL, c.WakeStream = r.Webhook.URL, ""
	case r.Type != typePullWake:
		return nil, fmt.Errorf(`type: want "webhook" or "pull-wake"`)
	}
	if c.Pattern != "" && !validPattern(c.Pattern) {
		return nil, fmt.Errorf(`pattern: want a path of at most %d segments in which each "*" and "**" is a whole segment`, maxSegments)
	}
	var err error
	if c.Explicit, err = explicitPaths(r.Streams); err != nil {
		return nil, err
	}
	if c.Pattern == "" && len(c.Explicit) == 0 {
		return nil, fmt.Errorf("want a pattern, or streams")
	}
	if r.Lease != nil {
		if c.Lease = time.Duration(*r.Lease) * time.Millisecond; *r.Lease < minLease.Milliseconds() || *r.Lease > maxLease.Milliseconds() {
			return nil, fmt.Errorf("lease_ttl_ms: want an integer from %d to %d", minLease.Milliseconds(), maxLease.Milliseconds())
		}
	}
	if len(c.Description) > maxDescription || !utf8.ValidString(c.Description) {
		return nil, fmt.Errorf("description: want at most %d bytes of UTF-8", maxDescription)
	}
	return c, nil
}

// explicitPaths returns the paths of streams in order, each of them once.
func explicitPaths(texts []string) ([]string, error) {
	var paths []string
	for _, text := range texts {
		path := strings.Trim(text, "/")
		if !validPath(path) {
			return nil, fmt.Errorf("streams: %.64q is not the path of a stream", text)
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	if paths = slices.Compact(paths); len(paths) > maxExplicit {
		return nil, fmt.Errorf("streams: want at most %d of them", maxExplicit)
	}
	return paths, nil
}

// subscribe answers the PUT of a subscription.
func (s *server) subscribe(q *controlRequest) {
	var r subscribeRequest
	if !s.decode(q, &r) {
		return
	}
	c, err := r.config()
	if err != nil {
		s.refuseControl(q.w, refused(http.StatusBadRequest, "INVALID_REQUEST", "%v", err))
		return
	}
	if !s.authorizeStreams(q, c) {
		return
	}
	c.Request, c.Root = rand.Text(), s.root(q.r)
	made, err := call(q.r.Context(), Subscriptions.Get(s.host, q.id), true, (*Subscription).create, c)
	switch {
	case err != nil:
		s.host.WriteError(q.w, err)
	case made.Refusal != nil:
		s.refuseControl(q.w, made.Refusal)
	case made.Created:
		s.writeJSON(q.w, http.StatusCreated, made.body(q.id))
	default:
		s.writeJSON(q.w, http.StatusOK, made.body(q.id))
	}
}

// authorizeStreams decides about the streams of a new subscription, or answers the request. It creates none of them.
func (s *server) authorizeStreams(q *controlRequest, c *config) bool {
	uncounted := dohost.CheckCreation(q.r.Context(), func(*dohost.AccessRequest) error { return nil })
	q = &controlRequest{w: q.w, r: q.r.WithContext(uncounted)}
	reads := c.Explicit
	if c.Pattern != "" {
		reads = append([]string{c.Pattern}, reads...)
	}
	for _, path := range reads {
		if !s.authorize(q, Streams.Get(s.host, path).ID(), false) {
			return false
		}
	}
	return c.WakeStream == "" || s.authorize(q, Streams.Get(s.host, c.WakeStream).ID(), true)
}

// root returns the URL of all streams.
func (s *server) root(r *http.Request) string {
	if s.o.URL != "" {
		return strings.TrimSuffix(s.o.URL, "/") + "/"
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host + s.o.Prefix
}

// body returns the description of a subscription.
func (d *subscribed) body(id string) map[string]any {
	c := &d.Config
	type linkBody struct {
		Path     string `json:"path"`
		LinkType string `json:"link_type"`
		Acked    string `json:"acked_offset"`
	}
	list := make([]linkBody, 0, len(d.Links))
	for _, l := range infosOf(d.Links) {
		list = append(list, linkBody{l.Path, l.LinkType, l.Acked})
	}
	status := "active"
	if d.Wake.ID != "" && !d.Wake.Sent && d.Wake.Failures > 0 {
		status = "failed"
	}
	body := map[string]any{
		"id": id, "subscription_id": id, "type": c.Type, "streams": list, "lease_ttl_ms": c.Lease.Milliseconds(),
		"created_at": c.Created.UTC().Format("2006-01-02T15:04:05.000Z"), "status": status,
		"generation": d.Wake.Generation,
	}
	for name, text := range map[string]string{"pattern": c.Pattern, "wake_stream": c.WakeStream, "description": c.Description} {
		if text != "" {
			body[name] = text
		}
	}
	if c.Type == typeWebhook {
		body["webhook"] = map[string]any{"url": c.URL, "signing": map[string]string{
			"alg": "ed25519", "kid": d.Signer, "jwks_url": c.Root + jwksPath,
		}}
	}
	return body
}

// describe answers the GET of a subscription.
func (s *server) describe(q *controlRequest) {
	found, err := call(q.r.Context(), Subscriptions.Get(s.host, q.id), true, (*Subscription).describe, struct{}{})
	switch {
	case err != nil:
		s.host.WriteError(q.w, err)
	case found == nil:
		s.refuseControl(q.w, noSubscription())
	default:
		s.writeJSON(q.w, http.StatusOK, found.body(q.id))
	}
}

// unsubscribe answers the DELETE of a subscription.
func (s *server) unsubscribe(q *controlRequest) {
	if _, err := call(q.r.Context(), Subscriptions.Get(s.host, q.id), true, (*Subscription).delete, struct{}{}); err != nil {
		s.host.WriteError(q.w, err)
		return
	}
	q.w.WriteHeader(http.StatusNoContent)
}

// addStreams answers the POST of streams.
func (s *server) addStreams(q *controlRequest) {
	var r struct {
		Streams boundedList[string] `json:"streams"`
	}
	if !s.decode(q, &r) {
		return
	}
	paths, err := explicitPaths(r.Streams)
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("streams: want at least one")
	}
	if err != nil {
		s.refuseControl(q.w, refused(http.StatusBadRequest, "INVALID_REQUEST", "%v", err))
		return
	}
	if !s.authorizeStreams(q, &config{Explicit: paths}) {
		return
	}
	result, err := call(q.r.Context(), Subscriptions.Get(s.host, q.id), true, (*Subscription).addStreams, paths)
	s.answerLinked(q, result, err)
}

// removeStream answers the DELETE of a stream.
func (s *server) removeStream(q *controlRequest) {
	path := strings.Trim(q.path, "/")
	if !validPath(path) {
		s.refuseControl(q.w, refused(http.StatusBadRequest, "INVALID_REQUEST", "want the path of a stream"))
		return
	}
	result, err := call(q.r.Context(), Subscriptions.Get(s.host, q.id), true, (*Subscription).removeStream, path)
	s.answerLinked(q, result, err)
}

func (s *server) answerLinked(q *controlRequest, result linked, err error) {
	switch {
	case err != nil:
		s.host.WriteError(q.w, err)
	case result == linkedNotFound:
		s.refuseControl(q.w, noSubscription())
	case result == linkedCrowded:
		s.refuseControl(q.w, tooManyPerStream())
	case result == linkedTooMany:
		s.refuseControl(q.w, refused(http.StatusBadRequest, "INVALID_REQUEST", "streams: want at most %d of them", maxExplicit))
	default:
		q.w.WriteHeader(http.StatusNoContent)
	}
}
