package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/crowd"
)

// Parameters of a fan-out.
const (
	// crowdSize is the number of an object's sockets.
	crowdSize = 10_000
	// concurrentBroadcasts is the number of concurrent broadcasts.
	concurrentBroadcasts = 16
	// broadcastText is the text of a broadcast.
	broadcastText = "a line of text that everybody hears, with a time, a name and what was said: 100 characters or so."
)

// broadcaster is an object that sends the text of each call to all its sockets.
type broadcaster struct{ st *dohost.State }

const broadcasters dohost.Namespace[broadcaster] = "broadcaster"

func (h *broadcaster) accept(w http.ResponseWriter, r *http.Request) {
	if _, err := h.st.Accept(w, r, nil); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (h *broadcaster) broadcast(ctx context.Context, text string) (int, error) {
	to := h.st.Sockets("")
	return len(to), h.st.Broadcast(ctx, dohost.Frame{Text: true, Data: []byte(text)}, to)
}

var broadcasterClass = dohost.Bind(broadcasters, func(_ context.Context, st *dohost.State) (*broadcaster, error) {
	return &broadcaster{st}, nil
}, &dohost.Handlers[broadcaster]{
	OnHTTP: (*broadcaster).accept,
	OnSocket: &dohost.SocketHandlers[broadcaster]{
		Message: func(*broadcaster, context.Context, *dohost.Socket, dohost.Frame) error { return nil },
	},
})

// fanOut is a side that broadcasts the same text repeatedly.
type fanOut struct {
	crowd      *crowd.Crowd
	clients    int
	concurrent int // concurrent broadcasts
	sent       int
	broadcast  func(ctx context.Context) error // begins a broadcast
	stop       func() error
	closed     bool
}

func (f *fanOut) work(ctx context.Context, m *meter) error {
	w := m.worker()
	w.each = int64(f.clients)
	var began []time.Time
	for over := false; !over || len(began) > 0; over = over || w.over() || ctx.Err() != nil {
		if !over {
			began = append(began, time.Now())
			if err := f.broadcast(ctx); err != nil {
				return err
			}
			f.sent++
		}
		if len(began) == f.concurrent || over && len(began) > 0 {
			if err := f.crowd.WaitRounds(f.sent - len(began) + 1); err != nil {
				return err
			}
			w.did(began[0])
			w.ops += w.each - 1
			began = began[1:]
		}
	}
	return nil
}

// verify asks each client for the number of its frames.
func (f *fanOut) verify(_ context.Context, done int64) error {
	least, most, err := f.leave()
	if want := f.sent; err == nil && (least != want || most != want || int64(want*f.clients) != done) {
		err = fmt.Errorf("one client heard %d frames, another %d, of %d; %d counted", least, most, want, done)
	}
	return err
}

func (f *fanOut) leave() (least, most int, err error) {
	f.closed = true
	return f.crowd.Close()
}

func (f *fanOut) syncs() int64 { return 0 }

func (f *fanOut) close() (err error) {
	if !f.closed {
		_, _, err = f.leave()
	}
	return errors.Join(err, f.stop())
}

// broadcastSide is a host and its HTTP server, with one object that has all the sockets and is out of memory when a
// round begins. each is the memory of one socket then.
func (b *bench) broadcastSide(ctx context.Context, clients int) (f *fanOut, each float64, err error) {
	dir, err := b.newDir()
	if err != nil {
		return nil, 0, err
	}
	h, err := dohost.Open(dir, &dohost.Options{IdleAfter: time.Millisecond}, broadcasterClass)
	if err != nil {
		return nil, 0, err
	}
	stub := broadcasters.Get(h, "one")
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeObject(w, r, stub.ID())
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, 0, errors.Join(err, h.Close())
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	shut := func() error {
		err := errors.Join(h.Close(), server.Close())
		if over := <-served; !errors.Is(over, http.ErrServerClosed) {
			err = errors.Join(err, over)
		}
		return err
	}
	before := memoryInUse()
	c, err := crowd.Start(ctx, crowd.Config{Address: l.Addr().String(), Path: "/", Clients: clients, Text: broadcastText})
	if err != nil {
		return nil, 0, errors.Join(err, shut())
	}
	time.Sleep(b.rest)
	each = (memoryInUse() - before) / float64(clients)
	f = &fanOut{crowd: c, clients: clients, stop: shut, broadcast: func(ctx context.Context) error {
		n, err := dohost.Call(ctx, stub, (*broadcaster).broadcast, broadcastText)
		if err == nil && n != clients {
			err = fmt.Errorf("the object has %d sockets, want %d", n, clients)
		}
		return err
	}}
	if live, hibernating := h.SocketCount(); b.rest >= rest && (live > 0 || hibernating != clients) {
		return nil, 0, errors.Join(fmt.Errorf("%d sockets live, %d hibernate", live, hibernating), f.close())
	}
	return f, each, nil
}

// memoryInUse is the memory of the heap and of the stacks when nothing is left to collect.
func memoryInUse() float64 {
	heap, _ := heapAfterGC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return heap + float64(m.StackInuse)
}

// broadcastExperiment broadcasts from an object to thousands of sockets, with frames that wait and share writes, and
// with one frame after the other.
func broadcastExperiment(ctx context.Context, b *bench) error {
	clients := min(crowdSize, b.objects/10)
	r := Row{
		ID: "P16", Unit: "frames/s",
		What:   fmt.Sprintf("broadcast: one object to %d sockets, %d at a time", clients, concurrentBroadcasts),
		Target: Target{Text: "≥ 200,000 frames/s", MinValue: 200_000},
	}
	if err := b.fanOut(ctx, r, clients, concurrentBroadcasts); err != nil {
		return err
	}
	r = Row{
		ID: "P16a", Unit: "frames/s",
		What: fmt.Sprintf("broadcast: one object to %d sockets, one at a time", clients),
	}
	return b.fanOut(ctx, r, clients, 1)
}

func (b *bench) fanOut(ctx context.Context, r Row, clients, abreast int) error {
	ourSide, each, err := b.broadcastSide(ctx, clients)
	if err != nil {
		return err
	}
	plain, err := b.plainSide(ctx, clients)
	if err != nil {
		return errors.Join(err, ourSide.close())
	}
	ourSide.concurrent, plain.concurrent = abreast, abreast
	if abreast > 1 {
		b.add(Row{
			ID: "P16m", Unit: "B",
			What:   fmt.Sprintf("memory of an idle socket, of %d of an object that is not in memory", clients),
			Sides:  []Figure{{Side: ours, Value: each, Rounds: []float64{each}, Checked: int64(clients)}},
			Target: Target{Text: "≤ 20 KiB", MaxValue: 20 << 10},
			Notes:  []string{"heap and stacks of the process, without the memory of the operating system for a connection"},
		})
	}
	r.Notes = []string{
		fmt.Sprintf("limit: the same bytes, of %d, written to as many plain connections, one by one, by a goroutine "+
			"for each core of a process of its own", len(broadcastText)+2),
		"frames that wait for a socket leave in one write, which the limit does not do",
		"p50 and p99 are from a call of the object to when every client has its frame",
		"the clients of a side are a process of their own, on the same machine: they take as much of it as the server",
	}
	if r.Sides, err = b.compare(ctx, named{ours, ourSide}, named{limit, plain}); err != nil {
		return err
	}
	b.add(r)
	return nil
}
