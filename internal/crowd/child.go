package crowd

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
)

// sendOrder is a line from the parent to a child: a text for one client to send.
type sendOrder struct {
	Client int
	Text   string
}

// Child runs the child process, if this process is one, and returns its exit status.
func Child() (status int, is bool) {
	text, is := os.LookupEnv(childEnv)
	if !is {
		return 0, false
	}
	var w clientGroup
	err := json.Unmarshal([]byte(text), &w.Config)
	if err == nil {
		err = w.run(os.Stdin, json.NewEncoder(os.Stdout))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// clientGroup has the clients of a child.
type clientGroup struct {
	Config
	clients  []*client
	received atomic.Int64 // frames received by all clients

	mu  sync.Mutex
	out *json.Encoder
}

// client is one connection. Its counts belong to its reader.
type client struct {
	group *clientGroup
	conn  net.Conn
	count int
}

// dialers is how many clients connect concurrently.
const dialers = 32

func (w *clientGroup) run(in io.Reader, out *json.Encoder) error {
	w.out = out
	w.clients = make([]*client, w.Clients)
	if err := w.connect(); err != nil {
		return w.report(message{Error: err.Error()})
	}
	var readers sync.WaitGroup
	for _, c := range w.clients {
		readers.Go(c.read)
	}
	err := w.report(message{Connected: true})
	for lines := json.NewDecoder(in); err == nil; {
		var s sendOrder
		if err = lines.Decode(&s); err == nil {
			_, err = w.clients[s.Client].conn.Write(masked(1, []byte(s.Text)))
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	last := message{Over: true, Min: w.clients[0].count}
	for _, c := range w.clients {
		_ = c.conn.Close() // ends the client's reader
	}
	readers.Wait()
	for _, c := range w.clients {
		last.Min, last.Max = min(last.Min, c.count), max(last.Max, c.count)
	}
	return w.report(last)
}

// report sends a line to the parent.
func (w *clientGroup) report(n message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Encode(n)
}

func (w *clientGroup) connect() error {
	var all sync.WaitGroup
	errs := make([]error, dialers)
	for d := range dialers {
		all.Go(func() {
			for i := d; i < w.Clients && errs[d] == nil; i += dialers {
				w.clients[i], errs[d] = w.dial()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// dial connects a client. It reads the answer byte by byte, because frames follow it.
func (w *clientGroup) dial() (*client, error) {
	conn, err := net.Dial("tcp", w.Address)
	if err != nil || w.Path == "" {
		return &client{group: w, conn: conn}, err
	}
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", w.Path, w.Address)
	var head []byte
	for one := make([]byte, 1); err == nil && !bytes.HasSuffix(head, []byte("\r\n\r\n")); {
		_, err = conn.Read(one)
		head = append(head, one...)
	}
	if err == nil && !bytes.HasPrefix(head, []byte("HTTP/1.1 101 ")) {
		err = fmt.Errorf("the server answers %q", head)
	}
	return &client{group: w, conn: conn}, err
}

// masked returns a client's frame of less than 126 bytes, under a key of zeros.
func masked(opcode byte, data []byte) []byte {
	return append([]byte{0x80 | opcode, 0x80 | byte(len(data)), 0, 0, 0, 0}, data...)
}

// Opcodes of frames.
const (
	opText  = 1
	opClose = 8
	opPing  = 9
)

// read counts frames until the connection ends.
func (c *client) read() {
	buf := make([]byte, 4<<10)
	have := 0
	for {
		n, err := c.conn.Read(buf[have:])
		if err != nil {
			return
		}
		used, err := c.frames(buf[:have+n])
		if err != nil {
			_ = c.group.report(message{Error: err.Error()}) // the parent is gone otherwise
			return
		}
		have = copy(buf, buf[used:have+n])
	}
}

// frames counts the whole frames at the beginning of b, and returns their length.
func (c *client) frames(b []byte) (used int, err error) {
	texts := 0
	for err == nil {
		opcode, data, ok := frame(b[used:])
		if !ok {
			break
		}
		used = len(b) - len(data.rest)
		switch {
		case opcode == opPing:
			_, err = c.conn.Write(masked(opPing+1, data.payload))
		case opcode == opClose:
			err = fmt.Errorf("the server closes with %x", data.payload)
		case opcode != opText || string(data.payload) != c.group.Text:
			err = fmt.Errorf("a frame of kind %d with %q", opcode, data.payload)
		default:
			texts++
		}
	}
	c.count += texts
	now := c.group.received.Add(int64(texts))
	if n := int64(len(c.group.clients)); now/n != (now-int64(texts))/n {
		err = errors.Join(err, c.group.report(message{Rounds: int(now / n)}))
	}
	return used, err
}

type contents struct{ payload, rest []byte }

// frame parses one frame of a server, if b has all of it.
func frame(b []byte) (opcode byte, c contents, ok bool) {
	if len(b) < 2 {
		return 0, c, false
	}
	n, head := int(b[1]), 2
	if n == 126 {
		if len(b) < 4 {
			return 0, c, false
		}
		n, head = int(binary.BigEndian.Uint16(b[2:])), 4
	}
	if n == 127 || len(b) < head+n {
		return 0, c, false
	}
	return b[0] & 15, contents{b[head : head+n], b[head+n:]}, true
}
