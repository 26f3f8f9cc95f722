package consumer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/streams"
	"github.com/dohost/dohost/streams/consumer"
)

const tickets dohost.Namespace[ticket] = "ticket"

// ticket is an object that takes the messages of a stream.
type ticket struct {
	state *dohost.State
	fail  error // of the next calls of take
}

// line is a message that a ticket has taken. Its number is that of its place.
type line struct {
	Number int
	Text   string
}

var lines = dohost.Collection[line]{Name: "lines", Key: func(l line) string { return string(dohost.KeyOf(int64(l.Number))) }}

func (t *ticket) storage() *dohost.Storage { return t.state.Storage() }

func (t *ticket) take(ctx context.Context, b *consumer.Batch) error {
	n, _, err := dohost.Get[int](ctx, t.storage(), "count")
	if err != nil {
		return err
	}
	for _, m := range b.Messages {
		if err := lines.Insert(ctx, t.storage(), line{n, string(m)}); err != nil {
			return err
		}
		n++
	}
	if len(b.Data) > 0 {
		if err := lines.Insert(ctx, t.storage(), line{n, string(b.Data)}); err != nil {
			return err
		}
		n++
	}
	if t.fail != nil {
		return t.fail
	}
	return dohost.Put(ctx, t.storage(), "count", n)
}

// texts returns the messages that a ticket has taken.
func (t *ticket) texts(ctx context.Context) (list []string, err error) {
	rows, err := lines.List(ctx, t.storage(), nil)
	for _, row := range rows {
		list = append(list, row.Value.Text)
	}
	return list, err
}

func ticketClass() dohost.Class {
	return dohost.Bind(tickets, func(_ context.Context, st *dohost.State) (*ticket, error) { return &ticket{state: st}, nil }, nil)
}

// nameOf returns the name of the ticket of a stream.
func nameOf(path string) string {
	name, ok := strings.CutPrefix(path, "tickets/")
	if !ok {
		return ""
	}
	return name
}

func toTickets() consumer.Target {
	return consumer.To(tickets, nameOf, (*ticket).storage, (*ticket).take)
}

// handlerTransport sends requests to a handler, without a network.
type handlerTransport struct {
	handler http.Handler
	fake    *fakeServer // instead of the handler
}

func (t *handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.fake != nil {
		return t.fake.RoundTrip(r)
	}
	w := httptest.NewRecorder()
	t.handler.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

const root = "https://streams.example/v1/stream"

// request sends a request to a server of streams.
func request(t *testing.T, s http.Handler, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, root+"/"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code > 299 {
		t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	return w
}

// TestWebhookOfPackageStreams has a server of package streams in the host of the consumer.
func TestWebhookOfPackageStreams(t *testing.T) {
	server, hook := &handlerTransport{}, &handlerTransport{}
	s := &consumer.Subscription{Server: root, ID: "tickets", Targets: []consumer.Target{toTickets()}, Transport: server}
	classes := append(streams.Classes(&streams.ClassOptions{Webhooks: &streams.WebhookOptions{Transport: hook}}), consumer.Class(s), ticketClass())
	dohosttest.Run(t, &dohosttest.Options{Classes: classes}, func(t *testing.T, h *dohosttest.Host) {
		server.handler = streams.Server(h.Host(), &streams.ServerOptions{URL: root})
		hook.handler = s.Webhook(h.Host(), nil)
		if err := s.Create(t.Context(), &consumer.Config{Pattern: "tickets/*", WebhookURL: "https://consumer.example/wake"}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"7", "8"} {
			request(t, server.handler, "PUT", "tickets/"+name, "")
		}
		for i := range 10 {
			request(t, server.handler, "POST", fmt.Sprint("tickets/", 7+i%2), fmt.Sprintf(`[%d,"%d"]`, i, i))
			h.Advance(time.Duration(i) * 100 * time.Millisecond)
		}
		h.Advance(5 * time.Second)
		wantTexts(t, h, "7", `0 "0" 2 "2" 4 "4" 6 "6" 8 "8"`)
		wantTexts(t, h, "8", `1 "1" 3 "3" 5 "5" 7 "7" 9 "9"`)
		var d struct {
			Streams []struct {
				Path  string `json:"path"`
				Acked string `json:"acked_offset"`
			}
		}
		if err := json.Unmarshal(request(t, server.handler, "GET", "__ds/subscriptions/tickets", "").Body.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		for _, at := range d.Streams {
			if tail := request(t, server.handler, "HEAD", at.Path, "").Header().Get("Stream-Next-Offset"); at.Acked != tail {
				t.Errorf("the cursor is at %s of %s", at.Acked, tail)
			}
		}
		if len(d.Streams) != 2 {
			t.Errorf("the subscription has %d streams", len(d.Streams))
		}
		request(t, server.handler, "DELETE", "tickets/7", "")
		request(t, server.handler, "PUT", "tickets/7", "")
		request(t, server.handler, "POST", "tickets/7", `["new"]`)
		h.Advance(5 * time.Second)
		wantTexts(t, h, "7", `0 "0" 2 "2" 4 "4" 6 "6" 8 "8" "new"`)
	})
}

func wantTexts(t *testing.T, h *dohosttest.Host, name, want string) {
	t.Helper()
	got, err := dohost.CallNoArg(t.Context(), tickets.Get(h, name), (*ticket).texts)
	if err != nil || strings.Join(got, " ") != want {
		t.Errorf("ticket %s has %s, %v; want %s", name, strings.Join(got, " "), err, want)
	}
}
