package consumer_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/streams"
	"github.com/dohost/dohost/streams/consumer"
)

// Journals is the namespace of Journal objects.
const Journals dohost.Namespace[Journal] = "journal"

// Journal keeps the messages of a stream.
type Journal struct{ st *dohost.State }

// entry is a message of the stream.
type entry struct {
	Number int
	JSON   string
}

var entries = dohost.Collection[entry]{
	Name: "entries",
	Key:  func(e entry) string { return string(dohost.KeyOf(e.Number)) },
	Feed: &dohost.Feed{Name: "entries", Keep: 1000, Values: true, Before: true},
}

// storage has the entries, and the position of the journal in the stream.
func (j *Journal) storage() *dohost.Storage { return j.st.Storage() }

// take inserts the messages of a batch. The entries and the position after the batch become durable together.
func (j *Journal) take(ctx context.Context, b *consumer.Batch) error {
	n, err := entries.Count(ctx, j.storage(), nil)
	if err != nil {
		return err
	}
	for i, m := range b.Messages {
		if err := entries.Insert(ctx, j.storage(), entry{n + i, string(m)}); err != nil {
			return err
		}
	}
	return nil
}

// follow prints entries, until it has printed as many as it should.
func (j *Journal) follow(ctx context.Context, count int) error {
	for d, err := range entries.Watch(ctx, j.storage(), nil, nil) {
		if err != nil {
			return err
		}
		if d.Kind == dohost.DeltaEnter {
			fmt.Println(d.Row.Value.JSON)
			count--
		}
		if count == 0 {
			break
		}
	}
	return nil
}

// sendJSON sends a request.
func sendJSON(method, url, body string) {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		log.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode >= http.StatusBadRequest {
		log.Fatal(answer.Status)
	}
}

// Each stream below journals/ has a journal, which gets every message of the stream once. Here the server of the streams
// is the host of the journals; it may be any server of Durable Streams.
func Example() {
	dir, err := os.MkdirTemp("", "dohost")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	root := server.URL + "/v1/stream"

	subscription := &consumer.Subscription{Server: root, ID: "journals", Targets: []consumer.Target{
		consumer.To(Journals, func(path string) string {
			name, ok := strings.CutPrefix(path, "journals/")
			if !ok {
				return ""
			}
			return name
		}, (*Journal).storage, (*Journal).take),
	}}
	classes := append(streams.Classes(&streams.ClassOptions{Webhooks: &streams.WebhookOptions{Loopback: true}}),
		consumer.Class(subscription),
		dohost.Bind(Journals, func(_ context.Context, st *dohost.State) (*Journal, error) { return &Journal{st}, nil }, nil))
	h, err := dohost.Open(dir, nil, classes...)
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	mux.Handle("/v1/stream/", streams.Server(h, nil))
	mux.Handle("/wake", subscription.Webhook(h, nil))

	ctx := context.Background()
	if err := subscription.Create(ctx, &consumer.Config{Pattern: "journals/*", WebhookURL: server.URL + "/wake"}); err != nil {
		log.Fatal(err)
	}
	sendJSON(http.MethodPut, root+"/journals/ada", "")
	sendJSON(http.MethodPost, root+"/journals/ada", `["hello"]`)
	sendJSON(http.MethodPost, root+"/journals/ada", `["world"]`)
	err = Journals.Get(h, "ada").Do(ctx, func(ctx context.Context, j *Journal) error { return j.follow(ctx, 2) })
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// "hello"
	// "world"
}
