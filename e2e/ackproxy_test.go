//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// ackProxy passes the requests of a consumer to a server of streams. Acknowledgements pass one at a time, so their order is that of the server.
type ackProxy struct {
	server string // host:port
	others *httputil.ReverseProxy

	mu       sync.Mutex
	at       map[string]string // the last offset of each stream that the server has accepted
	accepted int               // acknowledgements
	ended    []*workerRequest  // accepted requests that have ended their wakes
	backward []string
}

// workerRequest is a request of the worker that has a wake.
type workerRequest struct {
	path, token string
	body        []byte

	Acks []struct{ Stream, Offset string }
	Done bool
}

func newAckProxy(server string) *ackProxy {
	others := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: server})
	others.FlushInterval = -1
	others.ErrorLog = log.New(io.Discard, "", 0) // the server is killed
	return &ackProxy{server: server, others: others, at: map[string]string{}}
}

func (p *ackProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != "POST" || !strings.HasSuffix(r.URL.Path, "/callback") && !strings.HasSuffix(r.URL.Path, "/ack") {
		p.others.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the consumer was killed
	}
	q := &workerRequest{path: r.URL.Path, token: r.Header.Get("Authorization"), body: body}
	if err := json.Unmarshal(body, q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	status, text, err := p.pass(q)
	if err != nil {
		status = http.StatusBadGateway
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the consumer may have been killed
}

// pass sends an acknowledgement to the server, and records it if the server accepts it.
func (p *ackProxy) pass(q *workerRequest) (status int, text []byte, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	status, text, err = p.send(q)
	if err != nil || status != http.StatusOK {
		return status, text, err
	}
	for _, a := range q.Acks {
		p.accepted++
		if last := p.at[a.Stream]; a.Offset < last {
			p.backward = append(p.backward, fmt.Sprintf("%s: %s after %s", a.Stream, a.Offset, last))
		}
		p.at[a.Stream] = a.Offset
	}
	if q.Done {
		p.ended = append(p.ended, q)
	}
	return status, text, nil
}

// send uses a context of its own: a request of a consumer that was killed must not end between the server and the record.
func (p *ackProxy) send(q *workerRequest) (status int, text []byte, err error) {
	r, err := http.NewRequest("POST", "http://"+p.server+q.path, bytes.NewReader(q.body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", q.token)
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer w.Body.Close()
	text, err = io.ReadAll(w.Body)
	return w.StatusCode, text, err
}

// check reports acknowledgements that went backward, and repeats requests of wakes that have ended, which the server must refuse.
func (p *ackProxy) check(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	t.Logf("%d acknowledgements, %d wakes", p.accepted, len(p.ended))
	if p.accepted == 0 || len(p.ended) == 0 {
		t.Error("there were no acknowledgements, or no wakes")
	}
	for _, text := range p.backward {
		t.Error(text)
	}
	for _, q := range p.ended[max(0, len(p.ended)-50):] {
		switch status, text, err := p.send(q); {
		case err != nil:
			t.Error(err)
		case status != http.StatusConflict && status != http.StatusUnauthorized: // 401: the server has lost the subscription of that token
			t.Errorf("a request of an ended wake: %d %s", status, text)
		}
	}
}
