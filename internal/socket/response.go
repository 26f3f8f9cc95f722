package socket

import "sync"

// Response is an HTTP response, which shares the budget of the bytes that wait for clients with the sockets.
type Response interface {
	// Unsent returns the number of bytes that wait for the client.
	Unsent() int
	// Cut ends a response that has unsent bytes, and reports whether it was the first to do so. It does not block.
	Cut() bool
}

// responses are those that have had unsent bytes and have not ended.
type responses struct {
	mu  sync.Mutex
	all map[Response]struct{}
}

// AddResponse adds a response. The table cuts it if the bytes that it charges exceed the budget.
func (t *Table) AddResponse(r Response) {
	t.startOverflowLoop()
	t.responses.mu.Lock()
	defer t.responses.mu.Unlock()
	if t.responses.all == nil {
		t.responses.all = map[Response]struct{}{}
	}
	t.responses.all[r] = struct{}{}
}

// RemoveResponse removes a response.
func (t *Table) RemoveResponse(r Response) {
	t.responses.mu.Lock()
	defer t.responses.mu.Unlock()
	delete(t.responses.all, r)
}

// Charge counts n bytes that begin to wait for the client of a response. It does not block.
func (t *Table) Charge(n int) { t.queue.charge(int64(n)) }

// Refund counts n bytes of a response that were sent, or will not be.
func (t *Table) Refund(n int) {
	t.queue.refund(int64(n))
	t.queue.charge(0) // others may have to end, since a response ends later than Cut returns
}

func (t *Table) unsentResponses() (loads []unsentLoad) {
	t.responses.mu.Lock()
	defer t.responses.mu.Unlock()
	for r := range t.responses.all {
		loads = append(loads, unsentLoad{r: r})
	}
	return loads
}

// unsentLoad is a socket or a response with unsent bytes.
type unsentLoad struct {
	n int
	c *Conn
	r Response // if c is nil
}
