package socket

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

const (
	// pingEvery is how often a client of whom nothing was heard is asked whether it is there,
	// and how long it has to answer.
	pingEvery = 30 * time.Second
	// pingers is how many are asked at a time.
	pingers = 64
	// farewell is how long Close waits for clients to close.
	farewell = 5 * time.Second
)

// Table is the sockets of a host, by object. Its methods may be called from any goroutine.
type Table struct {
	host  *runtime.Host  // set before the first Accept
	conns sync.WaitGroup // those that were accepted and have not ended

	mu    sync.Mutex // order: before a Conn's
	rooms map[runtime.ID]*room
	last  uint64 // number of a socket
	shut  bool
	quit  chan struct{} // closed with shut
	pings bool          // there is somebody who asks
}

// room is an object's sockets.
type room struct {
	conns    map[*Conn]uint64 // numbered in the order in which they came
	tagged   map[string]map[*Conn]struct{}
	request  string // empty: nothing is answered
	response string
}

// New returns an empty table. Its Ended belongs into the options of the host.
func New() *Table { return &Table{rooms: map[runtime.ID]*room{}, quit: make(chan struct{})} }

// Serve gives the table its host, before that serves a request: none is accepted earlier.
func (t *Table) Serve(h *runtime.Host) { t.host = h }

func (t *Table) roomLocked(id runtime.ID) *room {
	r := t.rooms[id]
	if r == nil {
		r = &room{conns: map[*Conn]uint64{}, tagged: map[string]map[*Conn]struct{}{}}
		t.rooms[id] = r
	}
	return r
}

// leaveLocked forgets a room that has nothing in it.
func (t *Table) leaveLocked(id runtime.ID, r *room) {
	if len(r.conns) == 0 && r.request == "" && t.rooms[id] == r {
		delete(t.rooms, id)
	}
}

// Accept adds a socket that is not open yet. Whoever calls it opens it, or ends it.
//
// Errors: ErrClosed, and a *LimitError for one beyond MaxSockets.
func (t *Table) Accept(id runtime.ID, h *Handlers, o *Options) (*Conn, error) {
	c := &Conn{table: t, id: id, handlers: h, origins: o.Origins, attachment: slices.Clone(o.Attachment)}
	for _, tag := range o.Tags {
		if !slices.Contains(c.tags, tag) {
			c.tags = append(c.tags, tag)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shut {
		return nil, runtime.ErrClosed
	}
	r := t.roomLocked(id)
	if n := len(r.conns); n >= MaxSockets {
		return nil, &objectstore.LimitError{What: "set of sockets", Size: n + 1, Limit: MaxSockets}
	}
	t.last++
	r.conns[c] = t.last
	for _, tag := range c.tags {
		if r.tagged[tag] == nil {
			r.tagged[tag] = map[*Conn]struct{}{}
		}
		r.tagged[tag][c] = struct{}{}
	}
	t.conns.Add(1)
	if !t.pings {
		t.pings = true
		go t.ping()
	}
	return c, nil
}

// remove takes a socket away from its object.
func (t *Table) remove(c *Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rooms[c.id]
	if r == nil {
		return
	}
	delete(r.conns, c)
	for _, tag := range c.tags {
		delete(r.tagged[tag], c)
		if len(r.tagged[tag]) == 0 {
			delete(r.tagged, tag)
		}
	}
	t.leaveLocked(c.id, r)
}

// Of returns an object's sockets to which something can be sent, of one tag if that is not
// empty, in the order in which they came.
func (t *Table) Of(id runtime.ID, tag string) []*Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rooms[id]
	if r == nil {
		return nil
	}
	all := slices.Collect(maps.Keys(r.conns))
	if tag != "" {
		all = slices.Collect(maps.Keys(r.tagged[tag]))
	}
	all = slices.DeleteFunc(all, (*Conn).Silent)
	slices.SortFunc(all, func(a, b *Conn) int { return cmp.Compare(r.conns[a], r.conns[b]) })
	return all
}

// Ended closes an object's sockets when its incarnation was ended, unless it was because
// it had nothing to do, or to save memory. It is for runtime.Options.
func (t *Table) Ended(id runtime.ID, why *runtime.Fenced, style runtime.Style) {
	if why.Reason == runtime.ReasonIdle || why.Reason == runtime.ReasonPressure {
		return
	}
	t.mu.Lock()
	r := t.rooms[id]
	delete(t.rooms, id)
	t.mu.Unlock()
	if r == nil {
		return
	}
	for c := range r.conns {
		c.release(string(why.Reason))
		if style == runtime.StyleCrash {
			c.cut()
		}
	}
}

// SetAutoResponse has text frames of an object's sockets that equal request answered
// without it. An empty request ends that.
func (t *Table) SetAutoResponse(id runtime.ID, request, response string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.roomLocked(id)
	r.request, r.response = request, response
	t.leaveLocked(id, r)
}

// autoResponse is what such a frame is answered with.
func (t *Table) autoResponse(id runtime.ID, text []byte) ([]byte, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rooms[id]
	if r == nil || r.request == "" || r.request != string(text) {
		return nil, false
	}
	return []byte(r.response), true
}

// ping asks clients of whom nothing was heard for a while whether they are there.
func (t *Table) ping() {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-t.quit:
			return
		}
		var wg sync.WaitGroup
		slots := make(chan struct{}, pingers)
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
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.rooms {
		for c := range r.conns {
			if c.unheard(pingEvery) {
				cs = append(cs, c)
			}
		}
	}
	return cs
}

// Close closes all sockets, lets no more come, and waits for the clients, for a while.
func (t *Table) Close() {
	t.mu.Lock()
	if !t.shut {
		t.shut = true
		close(t.quit)
	}
	var cs []*Conn
	for _, r := range t.rooms {
		cs = slices.AppendSeq(cs, maps.Keys(r.conns))
	}
	t.rooms = map[runtime.ID]*room{}
	t.mu.Unlock()
	for _, c := range cs {
		c.release(string(runtime.ReasonClosing))
	}
	late := time.AfterFunc(farewell, func() {
		for _, c := range cs {
			c.cut()
		}
	})
	defer late.Stop()
	t.conns.Wait()
}
