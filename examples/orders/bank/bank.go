// Package bank is a bank for orders in a process of its own: HTTP, and a book in a file, which lists all charges.
//
//	POST /charges          charges an order: {"key":"op_…/1","order":"7","cents":4200}; the answer has the receipt
//	GET  /charges?order=7  lists the charges of an order
package bank

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// Limit is the greatest amount that the bank charges, in cents. It declines more.
const Limit = 100_000

// Entry is a line of the book: a charge, or a decline.
type Entry struct {
	Receipt string `json:"receipt,omitempty"` // empty for a decline
	Key     string `json:"key"`
	Order   string `json:"order"`
	Cents   int    `json:"cents"`
}

// Bank makes charges. Set the fields before Open.
type Bank struct {
	// Keys makes the bank answer a repeated key as before, without a charge.
	Keys bool
	// Delay is the time between a charge and its answer.
	Delay time.Duration
	// Log gets a line for each step of a charge. Nil discards them.
	Log *log.Logger

	mu   sync.Mutex // guards the rest, and the order of the book
	book *os.File
	rows []Entry
}

// Open opens the book, or creates it. It drops a last line that is not complete: its charge was not made.
func (b *Bank) Open(path string) (err error) {
	if b.Log == nil {
		b.Log = log.New(io.Discard, "", 0)
	}
	if b.book, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if err := b.read(); err != nil {
		return errors.Join(fmt.Errorf("the book %s: %w", path, err), b.book.Close())
	}
	return nil
}

// Close closes the book.
func (b *Bank) Close() error { return b.book.Close() }

func (b *Bank) read() error {
	text, err := io.ReadAll(b.book)
	if err != nil {
		return err
	}
	end := bytes.LastIndexByte(text, '\n') + 1
	for line := range bytes.Lines(text[:end]) {
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		b.rows = append(b.rows, e)
	}
	if err := b.book.Truncate(int64(end)); err != nil {
		return err
	}
	_, err = b.book.Seek(int64(end), io.SeekStart)
	return err
}

// add charges an order, or declines. An entry is in the file before add returns.
func (b *Bank) add(e Entry) (Entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, old := range b.rows {
		if b.Keys && old.Key == e.Key {
			return old, nil
		}
	}
	if e.Cents <= Limit {
		e.Receipt = fmt.Sprintf("r_%d", len(b.rows)+1)
	}
	line, err := json.Marshal(e)
	if err != nil {
		return e, err
	}
	if _, err := b.book.Write(append(line, '\n')); err != nil {
		return e, err
	}
	b.rows = append(b.rows, e)
	return e, b.book.Sync()
}

// find returns the charges of an order.
func (b *Bank) find(order string) []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := []Entry{}
	for _, e := range b.rows {
		if e.Order == order && e.Receipt != "" {
			found = append(found, e)
		}
	}
	return found
}

// ServeHTTP serves the two URLs.
func (b *Bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != "/charges":
		http.NotFound(w, r)
	case r.Method == http.MethodPost:
		b.serveCharge(w, r)
	default:
		answer(w, http.StatusOK, b.find(r.FormValue("order")))
	}
}

func (b *Bank) serveCharge(w http.ResponseWriter, r *http.Request) {
	var e Entry
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil || e.Key == "" || e.Receipt != "" {
		http.Error(w, "want a key, an order and cents", http.StatusBadRequest)
		return
	}
	b.Log.Printf("received %s", e.Key)
	e, err := b.add(e)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	status := http.StatusOK
	if e.Receipt == "" {
		status = http.StatusPaymentRequired
		b.Log.Printf("declined %s", e.Key)
	} else {
		b.Log.Printf("charged %s for order %s: %s", e.Key, e.Order, e.Receipt)
	}
	select {
	case <-time.After(b.Delay):
		answer(w, status, e)
		b.Log.Printf("answered %s", e.Key)
	case <-r.Context().Done(): // the client has gone
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}

// Serve serves one connection after the other, in the order in which the clients have opened them. A bank that does not
// find a charge has therefore served all earlier requests: none of them can charge later.
func (b *Bank) Serve(l net.Listener) error {
	s := &http.Server{Handler: b, ReadHeaderTimeout: 5 * time.Second}
	s.SetKeepAlivesEnabled(false) // one request for each connection
	one := make(chan struct{}, 1)
	one <- struct{}{}
	return s.Serve(&inOrder{l, one})
}

// inOrder is a listener with one connection at a time.
type inOrder struct {
	net.Listener
	one chan struct{}
}

// Accept waits until the last connection is closed.
func (l *inOrder) Accept() (net.Conn, error) {
	<-l.one
	c, err := l.Listener.Accept()
	release := sync.OnceFunc(func() { l.one <- struct{}{} })
	if err != nil {
		release()
		return nil, err
	}
	return &conn{c, release}, nil
}

type conn struct {
	net.Conn
	release func()
}

// Close lets the next connection in.
func (c *conn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
