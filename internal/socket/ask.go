package socket

import (
	"context"
	"sync"
	"time"
)

const (
	// askEvery is how often a client of whom nothing was heard is asked whether it is there,
	// and how long it has to answer.
	askEvery = 30 * time.Second
	// askers is how many are asked at a time.
	askers = 64
)

// ask asks clients of whom nothing was heard for a while whether they are there.
func (t *Table) ask() {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-t.quit:
			return
		}
		var wg sync.WaitGroup
		slots := make(chan struct{}, askers)
		for _, c := range t.unheard() {
			slots <- struct{}{}
			wg.Go(func() {
				c.ping()
				<-slots
			})
		}
		wg.Wait()
	}
}

// unheard returns the sockets of whose clients nothing was heard for a while.
func (t *Table) unheard() (cs []*Conn) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for _, r := range s.rooms {
			for c := range r.allLocked() {
				if c.unheard(askEvery) {
					cs = append(cs, c)
				}
			}
		}
		s.mu.Unlock()
	}
	return cs
}

// unheard says that nothing was heard of the client for so long, while somebody listened.
func (c *Conn) unheard(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ws != nil && c.reading && time.Since(c.heard) >= d
}

// ping asks the client whether it is there, and cuts the connection if it does not answer.
func (c *Conn) ping() {
	c.mu.Lock()
	since := c.heard
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, askEvery)
	defer cancel()
	if c.ws.Ping(ctx) == nil {
		return
	}
	c.mu.Lock()
	dead := c.reading && c.heard.Equal(since) // or nobody has listened
	c.mu.Unlock()
	if dead {
		c.cut()
	}
}
