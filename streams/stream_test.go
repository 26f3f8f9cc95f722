package streams

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// run runs f with a host of streams, in virtual time.
func run(t *testing.T, f func(t *testing.T, h *dohosttest.Host)) {
	t.Helper()
	dohosttest.Run(t, &dohosttest.Options{Classes: Classes(nil)}, f)
}

// ask calls a method of the stream a.
func ask[In, Out any](t *testing.T, h *dohosttest.Host, m func(*Stream, context.Context, In) (Out, error), in In) Out {
	t.Helper()
	out, err := dohost.Call(t.Context(), Streams.Get(h, "a"), m, in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func text(s string) *appendRequest {
	return &appendRequest{ContentType: "text/plain", Data: [][]byte{[]byte(s)}}
}

func exists(t *testing.T, h *dohosttest.Host) bool {
	t.Helper()
	there, err := h.Host().Exists(t.Context(), Streams.Get(h, "a").ID())
	if err != nil {
		t.Fatal(err)
	}
	return there
}

// TestOffsetsOfARecreatedStreamAreNew deletes a stream and creates it again, in the same incarnation and in others.
func TestOffsetsOfARecreatedStreamAreNew(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		last := ""
		for i := range 6 {
			made := ask(t, h, (*Stream).create, &createRequest{ContentType: "text/plain"})
			added := ask(t, h, (*Stream).append, text("x"))
			if made.Tail <= last || added.Tail <= made.Tail {
				t.Errorf("stream %d: the offsets %q and %q follow %q", i, made.Tail, added.Tail, last)
			}
			if last != "" {
				from, err := parseOffset(last)
				if p := ask(t, h, (*Stream).read, readRequest{From: from}); err != nil || !p.Gone {
					t.Errorf("the stream has the offset %q of a deleted one", last)
				}
			}
			last = added.Tail
			if !ask(t, h, (*Stream).delete, struct{}{}) || exists(t, h) {
				t.Error("the stream is not deleted")
			}
			switch i % 3 {
			case 0:
				h.EvictAll()
			case 1:
				if err := h.Restart(); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// TestStreamExpires has streams with a TTL and with an end. Reads and appends restart the TTL, and an expired stream leaves nothing.
func TestStreamExpires(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		head := func() bool { return ask(t, h, (*Stream).head, struct{}{}) != nil }
		ask(t, h, (*Stream).create, &createRequest{ContentType: "text/plain", Sliding: true, TTL: 100 * time.Second})
		for range 3 {
			h.Advance(99 * time.Second)
			ask(t, h, (*Stream).read, readRequest{Start: true})
			h.Advance(99 * time.Second)
			ask(t, h, (*Stream).append, text("x"))
		}
		h.Advance(99 * time.Second)
		if !head() {
			t.Error("the stream has expired early")
		}
		h.Advance(8 * time.Second) // a sixteenth of the TTL
		if exists(t, h) || head() {
			t.Error("the stream has not expired")
		}

		ask(t, h, (*Stream).create, &createRequest{ContentType: "text/plain", ExpiresAt: time.Now().Add(time.Minute)})
		h.Advance(59 * time.Second)
		ask(t, h, (*Stream).append, text("x"))
		h.Advance(2 * time.Second)
		if exists(t, h) {
			t.Error("the stream has no end")
		}
		ask(t, h, (*Stream).create, &createRequest{ContentType: "text/plain", Sliding: true})
		if head() {
			t.Error("a stream with a TTL of 0 exists")
		}
	})
}

// TestReadsOfATTLAreRarelyWrites counts the changed deadlines of a stream that is read each second.
func TestReadsOfATTLAreRarelyWrites(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		p := properties{Sliding: true, TTL: time.Hour}
		writes := 0
		for range 600 {
			if p.touch() {
				writes++
			}
			if left := time.Until(p.Deadline); left < time.Hour || left > time.Hour+time.Minute {
				t.Fatalf("the stream expires in %v", left)
			}
			h.Advance(time.Second)
		}
		if writes > 11 {
			t.Errorf("%d writes in 10 minutes", writes)
		}
	})
}

// TestProducersAreBounded fills the table of a stream. A producer that was idle for more than a week makes room, another one does not.
func TestProducersAreBounded(t *testing.T) {
	run(t, func(t *testing.T, h *dohosttest.Host) {
		ask(t, h, (*Stream).create, &createRequest{ContentType: "text/plain"})
		add := func(id string, seq int64) outcome {
			r := text("x")
			r.Producer = producerRequest{ID: id, Seq: seq}
			return ask(t, h, (*Stream).append, r).Outcome
		}
		for i := range maxProducers {
			if got := add(fmt.Sprint("p", i), 0); got != appended {
				t.Fatalf("producer %d: %d", i, got)
			}
		}
		want := func(what string, got, want outcome) {
			t.Helper()
			if got != want {
				t.Errorf("%s: outcome %d, want %d", what, got, want)
			}
		}
		want("one more", add("new", 0), tooManyProducers)
		h.Advance(7 * 24 * time.Hour)
		want("after a week", add("new", 0), tooManyProducers)
		want("a known one", add("p0", 1), appended)
		h.Advance(2 * 24 * time.Hour)
		want("after nine days", add("new", 0), appended)
		want("a known one", add("p0", 1), duplicate)
		p := ask(t, h, (*Stream).read, readRequest{Start: true})
		if len(p.Data) != maxProducers+2 {
			t.Errorf("%d appends, want %d", len(p.Data), maxProducers+2)
		}
	})
}

// TestAppendRefusalsHaveAnOrder has the order of the reasons for a refusal.
func TestAppendRefusalsHaveAnOrder(t *testing.T) {
	at := func(epoch, seq int64) producerRequest { return producerRequest{"p", epoch, seq} }
	for _, tt := range []struct {
		what   string
		closed bool
		by     producerRequest
		last   producerRequest // of p; zero: none
		r      appendRequest
		want   outcome
	}{
		{what: "data", r: appendRequest{ContentType: "TEXT/plain; charset=utf-8"}, want: appended},
		{what: "another type", r: appendRequest{ContentType: "text/html"}, want: otherContentType},
		{what: "closed before the type", closed: true, r: appendRequest{ContentType: "text/html"}, want: closedBefore},
		{what: "the first of a producer", r: appendRequest{Producer: at(0, 0)}, want: appended},
		{what: "the first of a later epoch", r: appendRequest{Producer: at(7, 0)}, want: appended},
		{what: "the second before the first", r: appendRequest{Producer: at(0, 1)}, want: seqGap},
		{what: "the next", last: at(1, 3), r: appendRequest{Producer: at(1, 4)}, want: appended},
		{what: "a gap", last: at(1, 3), r: appendRequest{Producer: at(1, 5)}, want: seqGap},
		{what: "again", last: at(1, 3), r: appendRequest{Producer: at(1, 3)}, want: duplicate},
		{what: "again, with a Stream-Seq", last: at(1, 3), r: appendRequest{Producer: at(1, 3), Seq: "b"}, want: duplicate},
		{what: "an earlier one again", last: at(1, 3), r: appendRequest{Producer: at(1, 0)}, want: duplicate},
		{what: "a stale epoch", last: at(1, 3), r: appendRequest{Producer: at(0, 4)}, want: staleEpoch},
		{what: "a new epoch", last: at(1, 3), r: appendRequest{Producer: at(2, 0)}, want: appended},
		{what: "a new epoch in the middle", last: at(1, 3), r: appendRequest{Producer: at(2, 4)}, want: epochNotAtZero},
		{what: "the same Stream-Seq", r: appendRequest{Seq: "b"}, want: seqTooLow},
		{what: "a lower Stream-Seq", r: appendRequest{Seq: "aaa"}, want: seqTooLow},
		{what: "a higher Stream-Seq", r: appendRequest{Seq: "b0"}, want: appended},
		{what: "the closing request again", closed: true, by: at(1, 3), last: at(1, 3), r: appendRequest{Producer: at(1, 3)}, want: duplicate},
		{what: "another request", closed: true, by: at(1, 3), last: at(1, 3), r: appendRequest{Producer: at(1, 4)}, want: closedBefore},
		{what: "a stale epoch of a closed stream", closed: true, by: at(1, 3), last: at(1, 3), r: appendRequest{Producer: at(0, 3)}, want: staleEpoch},
	} {
		p := &properties{ContentType: "text/plain", Closed: tt.closed, ClosedBy: tt.by, Seq: "b"}
		if tt.r.ContentType == "" {
			tt.r.ContentType = "text/plain"
		}
		tt.r.Data = [][]byte{{1}}
		if got := p.decide(&tt.r, tt.last, tt.last != (producerRequest{})); got.Outcome != tt.want {
			t.Errorf("%s: outcome %d, want %d", tt.what, got.Outcome, tt.want)
		}
	}
}
