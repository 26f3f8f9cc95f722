package streams

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// TestImportKeepsNoOffsetsOfLostAppends appends to a stream after its export, deletes it, imports it, and appends other data.
func TestImportKeepsNoOffsetsOfLostAppends(t *testing.T) {
	for _, first := range []string{"", "kept"} {
		run(t, func(t *testing.T, h *dohosttest.Host) {
			s := Server(h.Host(), nil)
			id := Streams.Get(h, "a").ID()
			c := copyOf{first: first, kept: serve(s, "PUT", "a", first, plain).Header().Get("Stream-Next-Offset")}
			var export bytes.Buffer
			if err := h.Host().Export(t.Context(), id, &export); err != nil {
				t.Fatal(err)
			}
			c.lose(s)
			serve(s, "DELETE", "a", "")
			h.EvictAll()
			h.Advance(time.Minute)
			if err := h.Host().Import(t.Context(), id, &export); err != nil {
				t.Fatal(err)
			}
			c.check(t, s)
		})
	}
}

// TestRestoreKeepsNoOffsetsOfLostAppends appends to a stream after a backup, restores the backup, and appends other data.
func TestRestoreKeepsNoOffsetsOfLostAppends(t *testing.T) {
	open := func(dir string) (*dohost.Host, http.Handler) {
		h, err := dohost.Open(dir, nil, Classes(nil)...)
		if err != nil {
			t.Fatal(err)
		}
		return h, Server(h, nil)
	}
	backup := t.TempDir() + "/backup"
	h, s := open(t.TempDir())
	c := copyOf{first: "kept", kept: serve(s, "PUT", "a", "kept", plain).Header().Get("Stream-Next-Offset")}
	if err := h.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	c.lose(s)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h, s = open(backup)
	defer h.Close()
	c.check(t, s)
}

// copyOf is a copy of the stream a that lacks an append.
type copyOf struct{ first, kept, lost, etag string }

// lose appends to the source of the copy.
func (c *copyOf) lose(s http.Handler) {
	c.lost = serve(s, "POST", "a", "lost", plain).Header().Get("Stream-Next-Offset")
	c.etag = serve(s, "GET", "a?offset=-1", "").Header().Get("ETag")
}

// check appends to the copy, and reads at the offset before the lost append and at the one after it.
func (c *copyOf) check(t *testing.T, s http.Handler) {
	t.Helper()
	if w := serve(s, "GET", "a?offset="+c.lost, ""); w.Code != 410 {
		t.Errorf("before another append, the copy has the lost offset: %s", summary(w))
	}
	added := serve(s, "POST", "a", "new!", plain).Header().Get("Stream-Next-Offset")
	serve(s, "POST", "a", "more", plain)
	if w := serve(s, "GET", "a?offset="+c.lost, ""); w.Code != 410 {
		t.Errorf("the copy has the lost offset: %s", summary(w))
	}
	if w := serve(s, "GET", "a?offset=-1", "", "If-None-Match: "+c.etag); w.Code != 200 || w.Body.String() != c.first+"new!more" {
		t.Errorf("with the entity tag of the lost data: %s", summary(w))
	}
	if w := serve(s, "GET", "a?offset="+c.kept, ""); w.Body.String() != "new!more" {
		t.Errorf("after the kept data: %s", summary(w))
	}
	if w := serve(s, "GET", "a?offset="+added, ""); w.Body.String() != "more" || added <= c.kept {
		t.Errorf("after %q, which follows %q: %s", added, c.kept, summary(w))
	}
}

// TestOffsetsOutliveIncarnations appends in many incarnations, which begin a history each. All offsets stay valid, in their order.
func TestOffsetsOutliveIncarnations(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		s := Server(h.Host(), nil)
		offsets := []string{serve(s, "PUT", "a", "", plain).Header().Get("Stream-Next-Offset")}
		const data = "abcdefghij"
		for i := range data {
			if i%3 == 0 {
				h.EvictAll()
			} else if i%5 == 0 {
				if err := h.Restart(); err != nil {
					t.Fatal(err)
				}
				s = Server(h.Host(), nil)
			}
			offsets = append(offsets, serve(s, "POST", "a", data[i:i+1], plain).Header().Get("Stream-Next-Offset"))
		}
		for i, offset := range offsets {
			if w := serve(s, "GET", "a?offset="+offset, ""); w.Body.String() != data[i:] || w.Header().Get("Stream-Next-Offset") != offsets[len(data)] {
				t.Errorf("after %d: %s", i, summary(w))
			}
			if i > 0 && offset <= offsets[i-1] {
				t.Errorf("the offset %q follows %q", offset, offsets[i-1])
			}
		}
	})
}
