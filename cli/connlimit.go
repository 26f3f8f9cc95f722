package cli

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// connLimit bounds the connections of a listener. A connection beyond a bound is closed immediately.
type connLimit struct {
	total      int // open at one time
	perAddress int // of these, of one remote address or IPv6 network of 64 bits, except loopback; 0: no bound

	mu        sync.Mutex
	open      int
	addresses map[netip.Addr]int
}

func newConnLimit(total, perAddress int) *connLimit {
	return &connLimit{total: total, perAddress: perAddress, addresses: map[netip.Addr]int{}}
}

// acquire counts a connection, unless a bound is reached.
func (c *connLimit) acquire(addr netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	limited := c.perAddress > 0 && addr.IsValid() && !addr.IsLoopback()
	if c.open >= c.total || limited && c.addresses[addr] >= c.perAddress {
		return false
	}
	c.open++
	c.addresses[addr]++
	return true
}

func (c *connLimit) release(addr netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.addresses[addr]--; c.addresses[addr] == 0 {
		delete(c.addresses, addr)
	}
}

// limitedListener accepts the connections that its limit admits.
type limitedListener struct {
	net.Listener
	limit *connLimit
}

// Accept returns the next connection within the limit.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		addr := remoteNetwork(conn.RemoteAddr())
		if !l.limit.acquire(addr) {
			_ = conn.Close() // the client sees an end
			continue
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			return &limitedTCP{tcp, countedConn{limit: l.limit, addr: addr}}, nil
		}
		return &limitedConn{conn, countedConn{limit: l.limit, addr: addr}}, nil
	}
}

// remoteNetwork is an IPv4 address, or the IPv6 network of 64 bits of an address.
func remoteNetwork(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	if addr.Is6() && !addr.IsLoopback() {
		if network, err := addr.Prefix(64); err == nil {
			return network.Addr()
		}
	}
	return addr
}

// countedConn removes a connection from the counts, once.
type countedConn struct {
	limit    *connLimit
	addr     netip.Addr
	released atomic.Bool
}

func (c *countedConn) release() {
	if !c.released.Swap(true) {
		c.limit.release(c.addr)
	}
}

// limitedTCP is a counted TCP connection. It has the methods that package net needs to write several buffers in one
// system call.
type limitedTCP struct {
	*net.TCPConn
	countedConn
}

// Close closes the connection.
func (c *limitedTCP) Close() error {
	defer c.release()
	return c.TCPConn.Close()
}

// limitedConn is any other counted connection.
type limitedConn struct {
	net.Conn
	countedConn
}

// Close closes the connection.
func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// Bounds of connections that follow from the files that the process may open.
const (
	maxConns      = 100_000
	reservedFiles = 256 // for the store, the admin listener and the log
	adminConns    = 64  // of those
	cellFiles     = 32  // for the store and the log of each cell: a node may get all cells
)

// defaultConns is the number of connections if the process may open this many files, the store's files included. With cells each
// connection may need a second one, to another node.
func defaultConns(files uint64, cells int) int {
	reserved, each := uint64(reservedFiles), uint64(1)
	if cells > 0 {
		reserved, each = reserved+cellFiles*uint64(cells), 2
	}
	return int(min(max(files-min(files, reserved), files/4)/each, maxConns))
}
