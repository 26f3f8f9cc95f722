package providertest

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/dohost/dohost/chat"
)

// TruncatedStream runs a provider that speaks HTTP/2, as the real ones do, and resets a stream after its first event.
// The model has to report a truncated connection.
func TruncatedStream(t *testing.T, make New, event string) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("it is asked by %s", r.Proto)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\n\n", event)
		_ = http.NewResponseController(w).Flush() // the client is connected
		panic(http.ErrAbortHandler)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	m, err := make(Config{Double: &Double{}, Key: Key, Retries: -1, Client: clientFor(s)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = answerText(t.Context(), m)
	if e, ok := errors.AsType[*chat.ModelError](err); !ok || !e.Truncated {
		t.Errorf("the error is %v", err)
	}
}

// clientFor returns a client that sends all requests to s.
func clientFor(s *httptest.Server) *http.Client {
	return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.URL.Scheme, r.URL.Host = "https", s.Listener.Addr().String()
		return s.Client().Transport.RoundTrip(r)
	})}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
