package cli

import (
	"io"
	"net"
	"net/netip"
	"testing"
)

func TestConnLimit(t *testing.T) {
	parse := netip.MustParseAddr
	for a, b := range map[string]string{"10.0.0.1": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1", "2001:db8::1:2": "2001:db8::", "::1": "::1"} {
		if got := remoteNetwork(&net.TCPAddr{IP: net.ParseIP(a), Port: 1}); got != parse(b) {
			t.Errorf("%s is of %v, want %s", a, got, b)
		}
	}
	c := newConnLimit(4, 2)
	for i, tt := range []struct {
		addr string
		ok   bool
	}{{"10.0.0.1", true}, {"10.0.0.1", true}, {"10.0.0.1", false}, {"127.0.0.1", true}, {"127.0.0.1", true}, {"127.0.0.1", false}, {"10.0.0.2", false}} {
		if got := c.acquire(parse(tt.addr)); got != tt.ok {
			t.Errorf("%d: %s is admitted: %t", i, tt.addr, got)
		}
	}
	c.release(parse("10.0.0.1"))
	if !c.acquire(parse("10.0.0.2")) || c.acquire(parse("10.0.0.1")) {
		t.Error("want room for one")
	}
	for _, a := range []string{"10.0.0.1", "10.0.0.2", "127.0.0.1", "127.0.0.1"} {
		c.release(parse(a))
	}
	if c.open != 0 || len(c.addresses) != 0 {
		t.Errorf("%d open, %v", c.open, c.addresses)
	}
}

func TestConnLimitDefaultLeavesFilesForTheStore(t *testing.T) {
	for files, want := range map[uint64]int{100: 25, 256: 64, 1024: 768, 20_000: 19_744, 1 << 20: maxConns, 1<<64 - 1: maxConns} {
		if got := defaultConns(files); got != want {
			t.Errorf("%d files: %d connections, want %d", files, got, want)
		}
	}
}

// TestConnLimitClosesExcessConnections closes a connection before the listener admits another.
func TestConnLimitClosesExcessConnections(t *testing.T) {
	under, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &limitedListener{under, newConnLimit(1, 0)}
	defer l.Close()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", under.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial()
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	if n, err := dial().Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the second one: %d, %v", n, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	_ = first.Close() // counts once
	third := dial()
	if _, err := io.WriteString(third, "x"); err != nil {
		t.Fatal(err)
	}
	c := <-accepted
	if n, err := c.Read(make([]byte, 1)); n != 1 || l.limit.open != 1 {
		t.Errorf("the third one: %d, %v, %d open", n, err, l.limit.open)
	}
	_ = c.Close()
}
