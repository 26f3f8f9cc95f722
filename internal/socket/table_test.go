package socket

import (
	"testing"

	"github.com/dohost/dohost/runtime"
)

// TestAnEmptyRoomIsForgotten has sockets come and go, with tags and with an automatic
// response.
func TestAnEmptyRoomIsForgotten(t *testing.T) {
	table, id := New(), runtime.ID{Class: "c", Name: "a"}
	accept := func(tags ...string) *Conn {
		c, err := table.Accept(id, &Handlers{}, &Options{Tags: tags})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	one, two := accept("x", "y"), accept("y")
	if r := table.rooms[id]; len(r.conns) != 2 || len(r.tagged["x"]) != 1 || len(r.tagged["y"]) != 2 {
		t.Errorf("%d sockets, tags %v", len(r.conns), r.tagged)
	}
	one.Forget()
	if r := table.rooms[id]; len(r.conns) != 1 || len(r.tagged) != 1 || len(r.tagged["y"]) != 1 {
		t.Errorf("%d sockets, tags %v", len(r.conns), r.tagged)
	}
	table.SetAutoResponse(id, "ping", "pong")
	two.Forget()
	if r := table.rooms[id]; r == nil || len(r.tagged) != 0 {
		t.Errorf("%v: the response is forgotten, or a tag is not", r)
	}
	table.SetAutoResponse(id, "", "")
	if len(table.rooms) != 0 {
		t.Errorf("%d rooms", len(table.rooms))
	}
	table.Close()
}
