package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
)

// connections is the number of connections, each with one request after the other.
const connections = 64

// httpServer is a server of HTTP: dohost or the peer.
type httpServer interface {
	// address is its listening address.
	address() string
	// evict ends the incarnation of the i-th object.
	evict(ctx context.Context, i int) error
	// verifyCounts returns an error unless the objects have exactly the counted operations on the disk.
	verifyCounts(ctx context.Context, objects int, done int64) error
	syncs() int64
	close() error
}

// httpHost is a host and its HTTP server on loopback.
type httpHost struct {
	*host
	listen string
	stop   func() error
}

func (b *bench) openHTTPHost() (*httpHost, error) {
	h, err := b.open(dohost.Options{}, nil)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	stop := serveOn(l, web.Handler(h.Host, &web.Options{Classes: web.Roots(h.Classes()), NewObjects: -1}))
	return &httpHost{host: h, listen: l.Addr().String(), stop: stop}, nil
}

// serveOn serves HTTP until stop is called.
func serveOn(l net.Listener, h http.Handler) (stop func() error) {
	server := &http.Server{Handler: h}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	return func() error {
		err := server.Close()
		if over := <-served; !errors.Is(over, http.ErrServerClosed) {
			err = errors.Join(err, over)
		}
		return err
	}
}

func (f *httpHost) close() error { return errors.Join(f.stop(), f.host.close()) }

func (f *httpHost) address() string { return f.listen }

func (f *httpHost) evict(_ context.Context, i int) error {
	f.Evict(subjects.Get(f.host, name(i)).ID(), dohost.EndFence)
	return nil
}

func (f *httpHost) verifyCounts(ctx context.Context, objects int, done int64) error {
	return (&counting{host: f.host, objects: objects}).verify(ctx, done)
}

// httpConn is a connection with one request after the other. net/http's client would use as much of the machine as the
// server that shares it.
type httpConn struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

func dial(ctx context.Context, address string) (*httpConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &httpConn{conn: conn, in: bufio.NewReader(conn)}, nil
}

// do makes a request to the i-th object, and reads all of the answer.
func (l *httpConn) do(method string, i int, rest, body string) (answer string, err error) {
	resp, text, err := l.request(method, fmt.Sprintf("/objects/subject/%s/%s", name(i), rest), "", []byte(body))
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s %s of %s: %s: %s", method, rest, name(i), resp.Status, text)
	}
	return string(text), nil
}

// request makes a request, and reads all of the answer. fields are lines of the header.
func (l *httpConn) request(method, path, fields string, body []byte) (*http.Response, []byte, error) {
	resp, err := l.begin(method, path, fields, body)
	if err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(resp.Body)
	return resp, text, errors.Join(err, resp.Body.Close())
}

// begin is request without the body of the answer.
func (l *httpConn) begin(method, path, fields string, body []byte) (*http.Response, error) {
	l.out = fmt.Appendf(l.out[:0], "%s %s HTTP/1.1\r\nHost: bench\r\n%sContent-Length: %d\r\n\r\n", method, path, fields, len(body))
	l.out = append(l.out, body...)
	if _, err := l.conn.Write(l.out); err != nil {
		return nil, err
	}
	return http.ReadResponse(l.in, nil)
}

// postJSON posts JSON, and decodes the answer.
func (l *httpConn) postJSON(path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	resp, text, err := l.request(http.MethodPost, path, "Content-Type: application/json\r\n", body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("POST %s: %s: %s", path, resp.Status, text)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// postSide adds to objects over HTTP: at least once on each connection.
type postSide struct {
	httpServer
	objects int
	next    atomic.Int64
}

func (p *postSide) work(ctx context.Context, m *meter) error {
	return m.each(connections, func(_ int, w *worker) error {
		l, err := dial(ctx, p.address())
		if err != nil {
			return err
		}
		for over := false; !over && err == nil; over = w.over() || ctx.Err() != nil {
			began := time.Now()
			if _, err = l.do(http.MethodPost, int(p.next.Add(1))%p.objects, "add", "1"); err == nil {
				w.did(began)
			}
		}
		return errors.Join(err, l.conn.Close())
	})
}

func (p *postSide) verify(ctx context.Context, done int64) error {
	return p.verifyCounts(ctx, p.objects, done)
}

// coldReadSide reads the rows of objects that were ended just before, over HTTP.
type coldReadSide struct {
	httpServer
	objects int
	seed    uint64
	rounds  uint64
	woken   int64 // calls that were the first of their incarnation
}

func (v *coldReadSide) work(ctx context.Context, m *meter) error {
	v.rounds++
	draw := rand.New(rand.NewPCG(v.seed, v.rounds))
	w := m.worker()
	l, err := dial(ctx, v.address())
	if err != nil {
		return err
	}
	defer l.conn.Close()
	for over := false; !over; over = w.over() || ctx.Err() != nil {
		i := draw.IntN(v.objects)
		if err := v.evict(ctx, i); err != nil {
			return err
		}
		began := time.Now()
		rows, err := l.do(http.MethodGet, i, "http/", "")
		if err != nil {
			return err
		}
		w.did(began)
		if rows == fmt.Sprint(wakeRows) {
			v.woken++
		}
	}
	return nil
}

func (v *coldReadSide) verify(_ context.Context, done int64) error {
	if v.woken != done {
		return fmt.Errorf("of %d requests %d found a new incarnation with all of its rows", done, v.woken)
	}
	return nil
}

// overHTTP compares servers: with makes the side of one.
func (b *bench) overHTTP(ctx context.Context, r Row, objects, rows int, with func(httpServer) side) error {
	f, err := b.openHTTPHost()
	if err != nil {
		return err
	}
	if rows > 0 {
		if err := fill(ctx, b, f.host, objects, (*subject).appendMany, rows); err != nil {
			return errors.Join(err, f.close())
		}
	}
	sides := []named{{ours, with(f)}}
	if b.peer != nil {
		p, err := b.openPeer(ctx, objects, rows)
		if err != nil {
			return errors.Join(err, f.close())
		}
		sides = append(sides, named{workerd, outside{with(p), p}})
	}
	if r.Sides, err = b.compare(ctx, sides...); err != nil {
		return err
	}
	b.add(r)
	return nil
}

func hotOverHTTP(ctx context.Context, b *bench) error {
	return b.postings(ctx, Row{
		ID: "P4", What: "durable increments over HTTP, 1 object, 64 connections",
		Target: Target{Text: "≥ 8 × workerd", Reference: workerd, MinRatio: 8},
	}, 1)
}

func manyOverHTTP(ctx context.Context, b *bench) error {
	return b.postings(ctx, Row{
		ID: "P4m", What: "durable increments over HTTP, 1,000 objects, 64 connections",
		Target: Target{Text: "≥ 15 × workerd", Reference: workerd, MinRatio: 15},
	}, 1000)
}

func (b *bench) postings(ctx context.Context, r Row, objects int) error {
	r.Unit = "requests/s"
	r.Notes = []string{"the clients share the machine with the server; those of dohost share its process too"}
	return b.overHTTP(ctx, r, objects, 0, func(at httpServer) side {
		return &postSide{httpServer: at, objects: objects}
	})
}

func wakeOverHTTP(ctx context.Context, b *bench) error {
	const objects = 1000
	return b.overHTTP(ctx, Row{
		ID: "P6h", What: "cold wake over HTTP: a request that reads 20 rows of an object on disk", Unit: "requests/s",
		Target: Target{Text: "p50 ≤ 0.3 ms", P50: 300 * time.Microsecond},
		Notes: []string{
			"1 connection; the object was ended before, workerd's by ctx.abort(); the end counts in the rate, but not in p50 and p99",
			"1,000 objects, in a random order; those of dohost have their rows in the engine's memtable, and still their table entry, which is removed " +
				"about a second after an end: P6 is of rows in tables and objects without an entry",
		},
	}, objects, wakeRows, func(at httpServer) side {
		return &coldReadSide{httpServer: at, objects: objects, seed: b.seed}
	})
}
