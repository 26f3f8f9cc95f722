package pool

import (
	"context"
	"encoding/json"
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
			if err == nil || !strings.Contains(err.Error(), "not that of a pool") || a.requests != 1 {
				t.Errorf("%s: %v after %d requests", join, err, a.requests)
			}
		})
	}
}
