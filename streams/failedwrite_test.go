package streams

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// tooLarge is more than a row or a key can have: its write fails.
var tooLarge = strings.Repeat("x", 3<<20)

// TestAppendThatFailsWritesNothing fails each write of an append in turn. The producer then repeats its request, which is no duplicate.
func TestAppendThatFailsWritesNothing(t *testing.T) {
	good := func() *appendRequest {
		r := text("first")
		r.Data, r.Producer, r.Seq = append(r.Data, []byte("second")), producerRequest{ID: "p"}, "1"
		return r
	}
	for what, fail := range map[string]func(*appendRequest){
		"producer":   func(r *appendRequest) { r.Producer.ID = tooLarge },
		"chunk 1":    func(r *appendRequest) { r.Data[0] = []byte(tooLarge) },
		"chunk 2":    func(r *appendRequest) { r.Data[1] = []byte(tooLarge) },
		"properties": func(r *appendRequest) { r.Seq = tooLarge },
	} {
		t.Run(what, func(t *testing.T) {
			run(t, func(t *testing.T, h *dohosttest.Host) {
				ask(t, h, (*Stream).create, &createRequest{ContentType: "text/plain"})
				bad := good()
				fail(bad)
				if r, err := dohost.Call(t.Context(), Streams.Get(h, "a"), (*Stream).append, bad); err == nil {
					t.Fatalf("the write does not fail: %+v", r)
				}
				if p := ask(t, h, (*Stream).read, readRequest{Start: true}); !p.Empty || !p.UpToDate {
					t.Errorf("the failed append has left %q", p.Data)
				}
				again := ask(t, h, (*Stream).append, good())
				p := ask(t, h, (*Stream).read, readRequest{Start: true})
				if again.Outcome != appended || string(p.Data) != "firstsecond" || p.Next != again.Tail {
					t.Errorf("again: outcome %d, then %q up to %q of %q", again.Outcome, p.Data, p.Next, again.Tail)
				}
			})
		})
	}
}

// TestCreationThatFailsWritesNothing fails each write of a creation in turn.
func TestCreationThatFailsWritesNothing(t *testing.T) {
	for what, r := range map[string]*createRequest{
		"chunk":      {ContentType: "text/plain", Data: [][]byte{[]byte("ghost"), bytes.Repeat([]byte("x"), 3<<20)}, Sliding: true, TTL: 1e12},
		"properties": {ContentType: "text/" + tooLarge, Data: [][]byte{[]byte("ghost")}, Sliding: true, TTL: 1e12},
	} {
		t.Run(what, func(t *testing.T) {
			run(t, func(t *testing.T, h *dohosttest.Host) {
				if _, err := dohost.Call(t.Context(), Streams.Get(h, "a"), (*Stream).create, r); err == nil {
					t.Fatal("the write does not fail")
				}
				if exists(t, h) {
					t.Error("the failed creation has left rows, or an alarm")
				}
				made := ask(t, h, (*Stream).create, &createRequest{ContentType: "text/plain"})
				if p := ask(t, h, (*Stream).read, readRequest{Start: true}); !p.Empty || p.Next != made.Tail {
					t.Errorf("the new stream has %q", p.Data)
				}
			})
		})
	}
}

// TestPageEndsAtTheTail has a chunk after the tail, which no event of the class writes.
func TestPageEndsAtTheTail(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		ask(t, h, (*Stream).create, &createRequest{ContentType: "text/plain"})
		ask(t, h, (*Stream).append, text("data"))
		err := Streams.Get(h, "a").Do(t.Context(), func(ctx context.Context, s *Stream) error {
			return chunks.Put(ctx, s.state.Storage(), chunk{2, []byte("ghost")})
		})
		if p := ask(t, h, (*Stream).read, readRequest{Start: true}); err != nil || string(p.Data) != "data" || !p.UpToDate {
			t.Errorf("%q, %v", p.Data, err)
		}
	})
}

// TestPageHasALimitOfRows reads a stream of tiny appends page by page.
func TestPageHasALimitOfRows(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		ask(t, h, (*Stream).create, &createRequest{ContentType: "text/plain"})
		r := text("x")
		for range maxRows {
			r.Data = append(r.Data, []byte("x"))
		}
		ask(t, h, (*Stream).append, r)
		first := ask(t, h, (*Stream).read, readRequest{Start: true})
		second := ask(t, h, (*Stream).read, first.next())
		if len(first.Data) != maxRows || first.UpToDate || len(second.Data) != 1 || !second.UpToDate {
			t.Errorf("pages of %d and %d bytes, want %d and 1", len(first.Data), len(second.Data), maxRows)
		}
	})
}

// TestDiskFullStopsAppendsAndNoReads has a stream whose reads restart a TTL.
func TestDiskFullStopsAppendsAndNoReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		fs.SetFree(1 << 40)
		h, err := dohost.Open("data", kernel.OnFS(&dohost.Options{}, fs), Classes(nil)...)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		s := Server(h, nil)
		serve(s, "PUT", "a", "x", plain, "Stream-TTL: 60")
		fs.SetFree(0)
		time.Sleep(10 * time.Second)
		if w := serve(s, "POST", "a", "y", plain, ofP, "Producer-Epoch: 0", "Producer-Seq: 0"); w.Code != 507 {
			t.Errorf("append: %s", summary(w))
		}
		if w := serve(s, "GET", "a", ""); summary(w) != "200 text/plain up-to-date: x" {
			t.Errorf("read: %s", summary(w))
		}
		fs.SetFree(1 << 40)
		time.Sleep(10 * time.Second)
		if w := serve(s, "POST", "a", "y", plain, ofP, "Producer-Epoch: 0", "Producer-Seq: 0"); summary(w) != "200 epoch 0 seq 0" {
			t.Errorf("again: %s", summary(w))
		}
	})
}
