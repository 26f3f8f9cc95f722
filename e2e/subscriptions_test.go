//go:build e2e

package e2e

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// wakeWorker is the worker of a webhook. It keeps its own cursors, in place of a database.
type wakeWorker struct {
	s *streamServer

	mu         sync.Mutex
	at         map[string]string // by stream
	data       map[string]string
	generation uint64
	wakes      int
	wrong      []error
}

// ServeHTTP handles a delivery.
func (w *wakeWorker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.handle(r); err != nil {
		rw.WriteHeader(http.StatusInternalServerError)
		return
	}
	fmt.Fprint(rw, `{"done":true}`)
}

// handle takes the data of a wake. An error of the server, which may have been killed, is returned; everything else is wrong.
func (w *wakeWorker) handle(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if err := w.verify(r.Header.Get("Webhook-Signature"), body); err != nil {
		return err
	}
	var wake struct {
		Generation uint64
		Streams    []struct {
			Path    string
			Acked   string `json:"acked_offset"`
			Pending bool   `json:"has_pending"`
		}
	}
	if err := json.Unmarshal(body, &wake); err != nil {
		return err
	}
	w.wakes++
	if wake.Generation < w.generation {
		w.wrong = append(w.wrong, fmt.Errorf("generation %d follows %d", wake.Generation, w.generation))
	}
	w.generation = wake.Generation
	for _, s := range wake.Streams {
		if !s.Pending {
			continue
		}
		from, known := w.at[s.Path]
		if !known {
			from = s.Acked
		} else if s.Acked > from {
			w.wrong = append(w.wrong, fmt.Errorf("%s: the cursor %s is after %s", s.Path, s.Acked, from))
		}
		text, header, err := w.s.ask("GET", s.Path+"?offset="+from, "")
		if err != nil {
			return err
		}
		if text = strings.Trim(text, "[]"); text != "" {
			w.data[s.Path] += text + ","
		}
		w.at[s.Path] = header.Get("Stream-Next-Offset")
	}
	return nil
}

// verify checks a signature with the published key.
func (w *wakeWorker) verify(field string, body []byte) error {
	text, _, err := w.s.ask("GET", "__ds/jwks.json", "")
	if err != nil {
		return err
	}
	var set struct{ Keys []struct{ Kid, X string } }
	if err := json.Unmarshal([]byte(text), &set); err != nil || len(set.Keys) != 1 {
		return fmt.Errorf("the keys are %s: %v", text, err)
	}
	parts := map[string]string{}
	for part := range strings.SplitSeq(field, ",") {
		name, value, _ := strings.Cut(part, "=")
		parts[name] = value
	}
	x, err := base64.RawURLEncoding.DecodeString(set.Keys[0].X)
	signature, err2 := base64.RawURLEncoding.DecodeString(parts["ed25519"])
	if err := errors.Join(err, err2); err != nil || parts["kid"] != set.Keys[0].Kid || !ed25519.Verify(x, append([]byte(parts["t"]+"."), body...), signature) {
		w.wrong = append(w.wrong, fmt.Errorf("the signature %s is not that of the key %s: %v", field, text, err))
	}
	return nil
}

// ask sends a request for a stream.
func (s *streamServer) ask(method, path, body string, header ...string) (string, http.Header, error) {
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.at+"/v1/stream/"+path, strings.NewReader(body))
	if err != nil {
		return "", nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	for _, field := range header {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Set(name, value)
	}
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", nil, err
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err == nil && w.StatusCode > 299 {
		err = fmt.Errorf("%s %s: %d %s", method, path, w.StatusCode, text)
	}
	return string(text), w.Header, err
}

// TestWebhookSurvivesSIGKILL kills the server while messages are appended, and while a webhook takes them. The webhook gets each message once
// and in order, after its own cursors.
func TestWebhookSurvivesSIGKILL(t *testing.T) {
	const messages, streams, kills = 60, 3, 6
	s := startStreams(t, "../cmd/dohost")
	worker := &wakeWorker{s: s, at: map[string]string{}, data: map[string]string{}}
	hook := httptest.NewServer(worker)
	defer hook.Close()
	for n := range streams {
		if _, _, err := s.ask("PUT", fmt.Sprint("events/", n), ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.ask("PUT", "__ds/subscriptions/s", `{"type":"webhook","pattern":"events/*","webhook":{"url":"`+hook.URL+`"},"lease_ttl_ms":2000}`); err != nil {
		t.Fatal(err)
	}
	killed := 0
	for i := range messages {
		seq := fmt.Sprint("Producer-Seq: ", i/streams)
		for attempt := 0; ; attempt++ {
			if i%10 == 5 && attempt == 0 {
				go s.kill()
			}
			_, _, err := s.ask("POST", fmt.Sprint("events/", i%streams), fmt.Sprint(i), "Producer-Id: p", "Producer-Epoch: 0", seq)
			if i%10 == 5 && attempt == 0 {
				s.kill()
				s.start()
				killed++
				continue // an idempotent producer may repeat each request
			}
			if err == nil {
				break
			}
			t.Fatal(err)
		}
	}
	for n := range streams {
		path, want := fmt.Sprint("events/", n), ""
		for i := n; i < messages; i += streams {
			want += fmt.Sprint(i, ",")
		}
		deadline := time.After(30 * time.Second)
		for {
			worker.mu.Lock()
			got := worker.data[path]
			worker.mu.Unlock()
			if got == want {
				break
			}
			select {
			case <-deadline:
				t.Fatalf("%s: the webhook has %s, want %s", path, got, want)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	worker.mu.Lock()
	defer worker.mu.Unlock()
	t.Logf("%d wakes, generation %d, %d kills", worker.wakes, worker.generation, killed)
	if killed != kills || worker.wrong != nil {
		t.Errorf("%d kills, want %d; wrong: %v", killed, kills, worker.wrong)
	}
}
