package socket

import (
	"context"
	"sync"
	"time"
)

const (
	// pingInterval is the time of silence after which the host pings a client, and the time that the client has to
	// answer.
	pingInterval = 30 * time.Second
	// maxPings is the number of concurrent pings.
	maxPings = 64
)

// pingLoop pings clients that have been silent for a while.
func (t *Table) pingLoop() {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-t.quit:
			return
		}
		var wg sync.WaitGroup
		slots := make(chan struct{}, maxPings)
		for _, c := range t.silent() {
			slots <- struct{}{}
			wg.Go(func() {
				c.ping()
				<-slots
			})
		}
		wg.Wait()
	}
}

// silent returns the sockets of silent clients.
func (t *Table) silent() (cs []*Conn) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for _, r := range s.objects {
			for c := range r.allLocked() {
				if c.silentFor(pingInterval) {
					cs = append(cs, c)
				}
			}
		}
		s.mu.Unlock()
	}
	return cs
}

// silentFor reports whether the host has read from the client for d without receiving a frame.
func (c *Conn) silentFor(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ws != nil && c.reading && time.Since(c.receivedAt) >= d
}

// ping pings the client, and cuts the connection if it does not answer.
func (c *Conn) ping() {
	c.mu.Lock()
	since := c.receivedAt
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, pingInterval)
	defer cancel()
	if c.ws.Ping(ctx) == nil {
		return
	}
	c.mu.Lock()
	dead := c.reading && c.receivedAt.Equal(since) // else the host was not reading
	c.mu.Unlock()
	if dead {
		c.abort()
	}
}
