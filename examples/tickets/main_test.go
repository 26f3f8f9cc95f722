package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/streams"
	"github.com/dohost/dohost/streams/consumer"
)

// TestTickets runs the program against a server of streams, by a webhook and by a stream of wakes.
func TestTickets(t *testing.T) {
	for _, pull := range []bool{false, true} {
		classes := streams.Classes(&streams.ClassOptions{Webhooks: &streams.WebhookOptions{Loopback: true}})
		h, err := dohost.Open(t.TempDir(), nil, classes...)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(streams.Server(h, nil))
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		o := &options{addr: free.Addr().String(), data: t.TempDir(), server: server.URL + "/v1/stream", pull: pull}
		if err := free.Close(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if err := create(ctx, o.subscription(), o.config()); err != nil { // a subscription begins at the tails of the streams
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, o) }()
		follow(t, o.server)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		server.Close()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// follow appends messages, and reads their answers.
func follow(t *testing.T, root string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, path := range []string{"/tickets/7", "/answers/7"} {
		if err := send(ctx, http.MethodPut, root+path, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	offset, got, want := "-1", "", ""
	for i := range 5 {
		if err := send(ctx, http.MethodPost, root+"/tickets/7", fmt.Append(nil, i), nil); err != nil {
			t.Fatal(err)
		}
		want += fmt.Sprintf(`"about %d: we are on it",`, i)
	}
	for len(got) < len(want) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, root+"/answers/7?live=long-poll&offset="+offset, nil)
		if err != nil {
			t.Fatal(err)
		}
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(w.Body)
		if _ = w.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if offset = w.Header.Get("Stream-Next-Offset"); w.StatusCode == http.StatusOK && len(text) > 2 {
			got += strings.Trim(string(text), "[]") + ","
		}
	}
	if got != want {
		t.Errorf("the answers are %s, want %s", got, want)
	}
}

// TestAnswersKeepTheirOrder has a server that refuses the first request for an answer. No answer is sent before the earlier ones are
// accepted: the server would refuse it.
func TestAnswersKeepTheirOrder(t *testing.T) {
	const count = 3
	sequence := make(chan string, 100)
	accepted, refused := 0, false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			return
		}
		// The ticket sends one request at a time.
		if sequence <- r.Header.Get("Producer-Seq"); !refused {
			refused = true
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if accepted++; accepted == count {
			close(sequence)
		}
	}))
	defer server.Close()
	h, err := dohost.Open(t.TempDir(), nil, Class(server.URL))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for i := range count {
		b := &consumer.Batch{Messages: []json.RawMessage{json.RawMessage(fmt.Sprint(i))}}
		if err := dohost.CallNoResult(t.Context(), Tickets.Get(h, "7"), (*Ticket).Take, b); err != nil {
			t.Fatal(err)
		}
	}
	got := ""
	for n := range sequence {
		got += n + " "
	}
	if want := "0 0 1 2 "; got != want {
		t.Errorf("the answers were sent in the order %s, want %s", got, want)
	}
}
