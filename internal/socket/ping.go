package socket

import (
	"context"
	"sync"
	"time"
)

const (
	// askEvery is the time of silence after which the host pings a client, and the time that the client has to
	// answer.
	askEvery = 30 * time.Second
	// askers is the number of concurrent pings.
	askers = 64
)

// ask pings clients that have been silent for a while.
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

// unheard returns the sockets of silent clients.
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

// unheard reports whether the host has read from the client for d without receiving a frame.
func (c *Conn) unheard(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ws != nil && c.reading && time.Since(c.heard) >= d
}

// ping pings the client, and cuts the connection if it does not answer.
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
	dead := c.reading && c.heard.Equal(since) // else the host was not reading
	c.mu.Unlock()
	if dead {
		c.cut()
	}
}
