package socket

import (
	"testing"

	"github.com/dohost/dohost/runtime"
)

// TestTableForgetsObjectsWithoutSockets opens and closes sockets, with tags and with an automatic response.
func TestTableForgetsObjectsWithoutSockets(t *testing.T) {
	table, id := New(testLimits), runtime.ID{Class: "c", Name: "a"}
	accept := func(tags ...string) *Conn {
		c, err := table.Accept(id, &Handlers{}, &Options{Tags: tags})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	one, two := accept("x", "y"), accept("y")
	here := table.shard(id)
	if r := here.objects[id]; r.n != 2 || len(r.tagged["x"]) != 1 || len(r.tagged["y"]) != 2 {
		t.Errorf("%d sockets, tags %v", r.n, r.tagged)
	}
	one.Remove()
	if r := here.objects[id]; r.n != 1 || len(r.tagged) != 1 || len(r.tagged["y"]) != 1 {
		t.Errorf("%d sockets, tags %v", r.n, r.tagged)
	}
	table.SetAutoResponse(id, "ping", "pong")
	two.Remove()
	if r := here.objects[id]; r == nil || len(r.tagged) != 0 {
		t.Errorf("%v: the response is forgotten, or a tag is not", r)
	}
	table.SetAutoResponse(id, "", "")
	if n := here.n.Load(); len(here.objects) != 0 || n != 0 {
		t.Errorf("%d rooms, counted as %d", len(here.objects), n)
	}
	table.Close()
}
