//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// sigkillRun is a server of orders and its bank, over several processes of each.
type sigkillRun struct {
	t        *testing.T
	rng      *rand.Rand
	bin, dir string
	lookup   bool
	client   *http.Client
	book     book

	bank, server *process
	bankURL      string
	admin        string // URL of the server for operators

	mu         sync.Mutex        // guards the rest
	objects    string            // URL of the server for clients
	running    chan struct{}     // closed while both processes run
	generation int               // counts the kills
	receipts   map[string]string // by order, as the clients have them
	unknown    map[string]bool   // orders without a receipt
	count      counts
}

// counts are for the report.
type counts struct {
	serverKills, serverHits int // and those during a call
	bankKills, bankHits     int
	interrupted, charged    int // calls that a kill of the server has interrupted, and those of them with a charge in the book
	cut                     int // requests of clients without an answer
	unknown                 int // answers of the server that the outcome is unknown
	done, notDone           int // resolved operations
}

func newSigkillRun(t *testing.T, bin string, lookup bool, rng *rand.Rand) *sigkillRun {
	dir := t.TempDir()
	w := &sigkillRun{
		t: t, rng: rng, bin: bin, dir: dir, lookup: lookup, client: &http.Client{Transport: &http.Transport{}},
		book:     book{path: filepath.Join(dir, "book.jsonl"), entries: map[string][]bookEntry{}},
		running:  make(chan struct{}),
		receipts: map[string]string{}, unknown: map[string]bool{},
	}
	t.Cleanup(w.client.CloseIdleConnections)
	// The bank keeps its port. The system gives no connection a port of this range, also not while the bank is down.
	for range 100 {
		w.bankURL = fmt.Sprintf("http://127.0.0.1:%d", 20_000+rng.IntN(10_000))
		if w.bank = w.tryBank(); w.bank != nil {
			break
		}
	}
	if w.bank == nil {
		t.Fatal("the bank does not start")
	}
	w.startServer()
	w.open()
	return w
}

// tryBank starts a bank, and returns nil if the bank does not start.
func (w *sigkillRun) tryBank() *process {
	p := start(w.t, filepath.Join(w.dir, "bank.log"), filepath.Join(w.bin, "bank"),
		"--listen", strings.TrimPrefix(w.bankURL, "http://"), "--book", w.book.path, "--no-keys", "--delay", bankDelay.String())
	if _, err := p.url(); err != nil {
		p.kill()
		return nil
	}
	return p
}

func (w *sigkillRun) startBank() {
	w.t.Helper()
	if p := w.tryBank(); p != nil {
		w.bank = p
		return
	}
	w.t.Fatalf("the bank does not start again at %s", w.bankURL)
}

func (w *sigkillRun) startServer() {
	w.t.Helper()
	args := []string{"--bank", w.bankURL}
	if !w.lookup {
		args = append(args, "--no-lookup")
	}
	args = append(args, "serve", "--data", w.data(), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--new-objects=-1")
	w.server = start(w.t, filepath.Join(w.dir, "orders.log"), filepath.Join(w.bin, "orders"), args...)
	objects, err := w.server.url()
	if err == nil {
		w.admin, err = w.server.url()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.objects = objects
}

func (w *sigkillRun) data() string { return filepath.Join(w.dir, "data") }

// close makes the clients wait before their next requests.
func (w *sigkillRun) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = make(chan struct{})
	w.generation++
}

// open ends the wait of the clients.
func (w *sigkillRun) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.running)
}

// await waits until both processes run, and returns the number of kills until now.
func (w *sigkillRun) await(ctx context.Context) (generation int) {
	w.mu.Lock()
	running := w.running
	w.mu.Unlock()
	select {
	case <-running:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.generation
}

// response is an answer of the server: a receipt, or an error.
type response struct {
	receipt       string
	code, message string
}

// place requests the charge of an order once.
func (w *sigkillRun) place(ctx context.Context, order string, cents int) (r response, err error) {
	w.mu.Lock()
	objects := w.objects
	w.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, "POST", objects+"/objects/order/"+order+"/place", strings.NewReader(fmt.Sprint(cents)))
	if err != nil {
		return r, err
	}
	res, err := w.client.Do(req)
	if err != nil {
		return r, err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		return r, json.NewDecoder(res.Body).Decode(&r.receipt)
	}
	var body struct{ Code, Message string }
	err = json.NewDecoder(res.Body).Decode(&body)
	return response{code: body.Code, message: body.Message}, err
}
