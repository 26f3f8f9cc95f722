package sockettest

import "net"

// Pipes is a net.Listener in memory, for a server in a bubble of testing/synctest.
type Pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

// NewPipes returns a listener without connections.
func NewPipes() *Pipes { return &Pipes{make(chan net.Conn), make(chan struct{})} }

// Dial returns the client's end of a new connection, once the server has accepted it.
func (p *Pipes) Dial() net.Conn {
	client, conn := net.Pipe()
	p.Pass(conn)
	return client
}

// Pass passes a connection to the server, and returns once the server has accepted it.
func (p *Pipes) Pass(conn net.Conn) { p.conns <- conn }

// Accept implements net.Listener.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It must be called once.
func (p *Pipes) Close() error {
	close(p.done)
	return nil
}

// Addr implements net.Listener.
func (p *Pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }
