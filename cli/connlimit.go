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

// admit counts a connection, unless a bound is reached.
func (c *connLimit) admit(addr netip.Addr) bool {
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

func (c *connLimit) leave(addr netip.Addr) {
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
		if !l.limit.admit(addr) {
			_ = conn.Close() // the client sees an end
			continue
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			return &limitedTCP{tcp, counted{limit: l.limit, addr: addr}}, nil
		}
		return &limitedConn{conn, counted{limit: l.limit, addr: addr}}, nil
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

// counted removes a connection from the counts, once.
type counted struct {
	limit *connLimit
	addr  netip.Addr
	left  atomic.Bool
}

func (c *counted) leave() {
	if !c.left.Swap(true) {
		c.limit.leave(c.addr)
	}
}

// limitedTCP is a counted TCP connection. It has the methods that package net needs to write several buffers in one
// system call.
type limitedTCP struct {
	*net.TCPConn
	counted
}

// Close closes the connection.
func (c *limitedTCP) Close() error {
	defer c.leave()
	return c.TCPConn.Close()
}

// limitedConn is any other counted connection.
type limitedConn struct {
	net.Conn
	counted
}

// Close closes the connection.
func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// Bounds of connections that follow from the files that the process may open.
const (
	mostConns     = 100_000
	reservedFiles = 256 // for the store, the admin listener and the log
	adminConns    = 64  // of those
)

// defaultConns is the number of connections if the process may open this many files, the store's files included.
func defaultConns(files uint64) int {
	if files > mostConns+reservedFiles {
		return mostConns
	}
	return int(max(files-min(files, reservedFiles), files/4))
}
