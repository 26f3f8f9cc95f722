package socket

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"testing"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/runtime"
)

// TestBroadcastKeepsOrderWithoutBlocking blocks a broadcast at the first of many sockets and then sends
// more. The later sends return, and each socket gets all frames in order, those for all sockets and those for one.
func TestBroadcastKeepsOrderWithoutBlocking(t *testing.T) {
	table, id := New(testLimits), runtime.ID{Class: "c", Name: "a"}
	all := make([]*Conn, 3*maxDirect)
	for i := range all {
		c, err := table.Accept(id, &Handlers{}, &Options{})
		if err != nil {
			t.Fatal(err)
		}
		all[i] = c
	}
	pack := func(text string) Packed { return Pack(Frame{Data: []byte(text)}) }
	broadcast := func(text string) {
		b, err := NewBroadcast(all, pack(text))
		if err != nil {
			t.Fatal(err)
		}
		b.Send()
	}
	all[0].mu.Lock() // blocks the distributing goroutine
	broadcast("first")
	last := all[len(all)-1]
	last.Push(pack("alone"))
	broadcast("second")
	last.Close(Closing{Code: 1000})
	broadcast("too late for one")
	all[0].mu.Unlock()
	f := &all[0].sockets.broadcaster
	for busy := true; busy; goruntime.Gosched() {
		f.mu.Lock()
		busy = f.distributing
		f.mu.Unlock()
	}
	if n := f.unsent.Load(); n != 0 {
		t.Errorf("%d bytes are counted as unsent", n)
	}
	for i, c := range all {
		want := "first second too late for one "
		if c == last {
			want = "first alone second "
		}
		got := ""
		for _, p := range c.frames {
			got += fmt.Sprintf("%s ", p.frame[2:])
		}
		if got != want || (c.closeFrame != nil) != (c == last) {
			t.Errorf("socket %d has %q, want %q; to be closed: %v", i, got, want, c.closeFrame)
		}
		c.Remove()
	}
	table.Close()
}

// TestBroadcastsThatWaitAreBounded has no goroutine that distributes broadcasts. One of any size is accepted.
func TestBroadcastsThatWaitAreBounded(t *testing.T) {
	table := New(testLimits)
	c, err := table.Accept(runtime.ID{Class: "c", Name: "a"}, &Handlers{}, &Options{})
	if err != nil {
		t.Fatal(err)
	}
	to, large := []*Conn{c}, make(Packed, maxBroadcasts)
	b, err := NewBroadcast(to, large)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewBroadcast(to, large[:1]); !errors.Is(err, runtime.ErrOverloaded) {
		t.Errorf("a second one: %v", err)
	}
	b.Drop()
	if b, err = NewBroadcast(to, large[:1]); err != nil {
		t.Fatal(err)
	}
	b.Send()
	if n := c.sockets.broadcaster.unsent.Load(); n != 0 || len(c.frames) != 1 {
		t.Errorf("%d bytes are counted, %d frames wait for the client", n, len(c.frames))
	}
	c.Remove()
	table.Close()
}

// TestIncarnationEndWithoutSocketsTakesNoLock holds the lock of an object's shard while an incarnation of the object
// ends, is inspected, and has its sockets counted.
func TestIncarnationEndWithoutSocketsTakesNoLock(t *testing.T) {
	table, id := New(testLimits), runtime.ID{Class: "c", Name: "a"}
	s := table.shard(id)
	s.mu.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		table.Ended(id, &runtime.Fenced{Reason: runtime.ReasonEvicted}, eviction.EndFence)
		if table.Of(id, "") != nil || table.Count(id) != 0 {
			t.Error("there are sockets")
		}
	}()
	<-done
	s.mu.Unlock()
	table.Close()
}

// TestFramePacking compares with the examples of RFC 6455, section 5.7, and their neighbours.
func TestFramePacking(t *testing.T) {
	for n, want := range map[int]string{
		0: "8100", 5: "8105", 125: "817d", 126: "817e007e", 256: "817e0100", 65535: "817effff", 65536: "817f0000000000010000",
	} {
		p := Pack(Frame{Text: true, Data: make([]byte, n)})
		if head := fmt.Sprintf("%x", p[:len(p)-n]); head != want {
			t.Errorf("%d bytes: header %s, want %s", n, head, want)
		}
	}
	if p := Pack(Frame{Data: []byte{7}}); fmt.Sprintf("%x", p) != "820107" {
		t.Errorf("binary: %x", p)
	}
}

// BenchmarkIncarnationEnd measures the cost of the end of an incarnation of an object without sockets: in a host without
// sockets, and in one with sockets in each shard.
func BenchmarkIncarnationEnd(b *testing.B) {
	for name, others := range map[string]int{"none": 0, "others": 1000} {
		b.Run(name, func(b *testing.B) {
			table := New(testLimits)
			var cs []*Conn
			for i := range others {
				c, err := table.Accept(runtime.ID{Class: "c", Name: fmt.Sprint(i)}, &Handlers{}, &Options{})
				if err != nil {
					b.Fatal(err)
				}
				cs = append(cs, c)
			}
			why := &runtime.Fenced{Reason: runtime.ReasonEvicted}
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					table.Ended(runtime.ID{Class: "d", Name: names[i%len(names)]}, why, eviction.EndFence)
				}
			})
			for _, c := range cs {
				c.Remove()
			}
			table.Close()
		})
	}
}

var names = func() (ns [256]string) {
	for i := range ns {
		ns[i] = fmt.Sprint(i)
	}
	return ns
}()
