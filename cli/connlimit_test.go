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
	for _, tt := range []struct {
		files       uint64
		cells, want int
	}{
		{100, 0, 25}, {256, 0, 64}, {1024, 0, 768}, {20_000, 0, 19_744}, {1 << 20, 0, maxConns}, {1<<64 - 1, 0, maxConns},
		{100, 8, 12}, {1024, 8, 256}, {20_000, 8, 9744}, {20_000, 1024, 2500}, {150_000, 8, 74_744}, {1<<64 - 1, 8, maxConns},
	} {
		if got := defaultConns(tt.files, tt.cells); got != tt.want {
			t.Errorf("%d files, %d cells: %d connections, want %d", tt.files, tt.cells, got, tt.want)
		}
	}
}

// TestListenersOfCellsLeaveFiles is for the call of defaultConns.
func TestListenersOfCellsLeaveFiles(t *testing.T) {
	for _, cells := range []int{0, 8} {
		s := &server{}
		if err := s.listen(t.Context(), &serveCmd{Listen: "127.0.0.1:0", Admin: "off"}, cells); err != nil {
			t.Fatal(err)
		}
		if got, want := s.publicAt.(*limitedListener).limit.total, defaultConns(maxFiles(), cells); got != want {
			t.Errorf("%d cells: %d connections, want %d", cells, got, want)
		}
		if err := s.closeListeners(); err != nil {
			t.Error(err)
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
