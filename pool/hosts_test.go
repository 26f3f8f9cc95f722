package pool

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// answers is a server with fixed answers.
type answers struct {
	of       map[string]string // by method; missing: {}
	requests int
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.requests++
	_, method, _ := strings.Cut(r.URL.Path, "/objects/pool/p/")
	text, ok := a.of[method]
	if !ok {
		text = "{}"
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

func (a *answers) client() *Client {
	return &Client{URL: "http://pool/objects/pool/p", HTTP: &http.Client{Transport: a}}
}

// TestWorkRefusesTimesThatNoPoolHas joins at servers whose answer has no times, or times out of range: with them the worker would send
// heartbeats, and renew leases, without a pause.
func TestWorkRefusesTimesThatNoPoolHas(t *testing.T) {
	for _, join := range []string{
		"{}", `{"beat_ms":0,"ttl_ms":60000,"lease_ms":60000}`, `{"beat_ms":-1,"ttl_ms":60000,"lease_ms":60000}`,
		`{"beat_ms":9223372036854775807,"ttl_ms":60000,"lease_ms":60000}`, `{"beat_ms":30000,"ttl_ms":60000,"lease_ms":9223372036854775}`, "null",
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &answers{of: map[string]string{"join": join}}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			err := Work(ctx, a.client(), &WorkOptions{Role: "a"}, func(context.Context, *Task) (json.RawMessage, error) { return nil, nil })
			if err == nil || !strings.Contains(err.Error(), "does not come from a pool") || a.requests != 1 {
				t.Errorf("%s: %v after %d requests", join, err, a.requests)
			}
		})
	}
}

// TestClientsFollowNoRedirects has a host that redirects requests, with their tasks, to itself.
func TestClientsFollowNoRedirects(t *testing.T) {
	for _, status := range []int{http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		synctest.Test(t, func(t *testing.T) {
			requests := 0
			c := &Client{URL: "http://pool/objects/pool/p", HTTP: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				requests++
				h := http.Header{"Location": {"http://pool/objects/pool/q"}}
				return &http.Response{StatusCode: status, Header: h, Body: http.NoBody, Request: r}, nil
			})}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := c.Post(ctx, NewTask{Role: "a", Key: "k"}); err == nil || !strings.Contains(err.Error(), fmt.Sprint(status)) || requests != 1 {
				t.Errorf("%d: %v after %d requests", status, err, requests)
			}
		})
	}
}

// roundTrip is a function as a transport.
type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestResultsAreNotEscaped hands off a result of the greatest length that has characters of HTML. Escaped it would be six times as long.
func TestResultsAreNotEscaped(t *testing.T) {
	withServer(t, nil, func(ctx context.Context, s *poolServer) {
		result := json.RawMessage(`"` + strings.Repeat("<", mostResult-2) + `"`)
		task, err := s.client().Post(ctx, NewTask{Role: "a", Text: "<p>"})
		if err != nil {
			t.Fatal(err)
		}
		stop := s.worker(ctx, func(context.Context, *Task) (json.RawMessage, error) { return result, nil })
		s.sleep(time.Second)
		task, err = s.client().Task(ctx, task.ID)
		var text string // the answer of the host is escaped, and the result of the pool is not
		if err != nil || task.Status != StatusDone || json.Unmarshal(task.Result, &text) != nil || len(text) != mostResult-2 || task.Text != "<p>" {
			t.Errorf("%s, %.80q, %d bytes, %v", task.Status, task.Reason, len(task.Result), err)
		}
		if err := stop(); err != errStop {
			t.Error(err)
		}
	})
}
