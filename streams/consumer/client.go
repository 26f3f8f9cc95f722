package consumer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/dohost/dohost/agent"
)

// maxReply bounds the responses to control requests in bytes.
const maxReply = 4 << 20

// serverError is an error response of the server.
type serverError struct {
	status        int
	code, message string
}

func (e *serverError) Error() string {
	return fmt.Sprintf("consumer: the server answered with the status %d, code %q: %q", e.status, e.code, e.message)
}

// request sends a request to the server. The caller closes the body of the response.
func (s *Subscription) request(ctx context.Context, method, to, token string, body any) (*http.Response, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("consumer: %w", err)
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	for name, values := range s.Header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	r.Header.Set("User-Agent", "dohost")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w, err := s.httpClient().Do(r)
	if err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	return w, nil
}

// streamURL returns the URL of a stream.
func (s *Subscription) streamURL(path string) string {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		segments[i] = url.PathEscape(segment)
	}
	return strings.TrimSuffix(s.Server, "/") + "/" + strings.Join(segments, "/")
}

// controlURL returns the URL of a control request for the subscription; an empty action is the subscription itself.
func (s *Subscription) controlURL(action string) string {
	text := strings.TrimSuffix(s.Server, "/") + "/__ds/subscriptions/" + url.PathEscape(s.ID)
	if action != "" {
		text += "/" + action
	}
	return text
}

// control sends a control request, and decodes its response into result unless that is nil.
func (s *Subscription) control(ctx context.Context, method, to, token string, body, result any) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	w, err := s.request(ctx, method, to, token, body)
	if err != nil {
		return err
	}
	defer w.Body.Close()
	text, err := io.ReadAll(io.LimitReader(w.Body, maxReply+1))
	switch {
	case err != nil:
		return fmt.Errorf("consumer: %w", err)
	case len(text) > maxReply:
		return fmt.Errorf("consumer: the response of the server to %s %s has more than %d bytes", method, to, maxReply)
	case w.StatusCode < 200 || w.StatusCode > 299:
		return errorOf(w.StatusCode, text)
	case result == nil || len(text) == 0:
		return nil
	}
	if err := json.Unmarshal(text, result); err != nil {
		return fmt.Errorf("consumer: the response of the server to %s %s: %w", method, to, err)
	}
	return nil
}

// errorOf returns the error of a response.
func errorOf(status int, text []byte) error {
	var e struct {
		Error struct{ Code, Message string }
	}
	_ = json.Unmarshal(text, &e) // a proxy may answer in another form
	const shown = 200
	return &serverError{status, e.Error.Code[:min(shown, len(e.Error.Code))], e.Error.Message[:min(shown, len(e.Error.Message))]}
}

// ackBody is a cursor in an acknowledgement.
type ackBody struct {
	Stream string `json:"stream"`
	Offset string `json:"offset"`
}

// ack acknowledges cursors, extends the lease, and ends the wake if done is set.
func (s *Subscription) ack(ctx context.Context, w *wake, cursors []agent.SourceCursor, done bool) error {
	acks := make([]ackBody, 0, len(cursors))
	for _, c := range cursors {
		acks = append(acks, ackBody{c.Source, c.Position})
	}
	action := "callback"
	if w.Pull {
		action = "ack"
	}
	body := map[string]any{"wake_id": w.Wake, "generation": w.Generation, "acks": acks}
	if done {
		body["done"] = true
	}
	return endOfWake(s.control(ctx, http.MethodPost, s.controlURL(action), w.Token, body, nil))
}

// staleError is the error of a response that ends a wake. It is an agent.ErrWakeStale.
type staleError struct{ *serverError }

func (staleError) Is(target error) bool { return target == agent.ErrWakeStale }

// Unwrap returns the error of the response.
func (e staleError) Unwrap() error { return e.serverError }

// endOfWake makes a staleError of the responses that end a wake: it is not the present one, or its subscription does not exist any more.
func endOfWake(err error) error {
	e, ok := errors.AsType[*serverError](err)
	switch {
	case !ok:
		return err
	case e.code == "FENCED", e.code == "TOKEN_INVALID", e.code == "TOKEN_EXPIRED", e.code == "SUBSCRIPTION_NOT_FOUND", e.status == http.StatusGone:
		return staleError{e}
	}
	return err
}
