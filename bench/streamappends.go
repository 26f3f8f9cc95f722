package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// appendSide appends messages to a stream, a new one for each round. Each producer makes one request after the other.
type appendSide struct {
	streamServer
	producers, size int
	idempotent      bool
	counts          []int64 // the messages of each stream
}

// streamMessage returns a message of size bytes, which begins with its number.
func streamMessage(number int64, size int) []byte {
	return append(fmt.Appendf(make([]byte, 0, size), "%012d", number), bytes.Repeat([]byte{'.'}, size-12)...)
}

// producerFields are the lines of the header of an idempotent producer's request.
func producerFields(producer int, seq int64) string {
	return fmt.Sprintf("Producer-Id: producer-%d\r\nProducer-Epoch: 0\r\nProducer-Seq: %d\r\n", producer, seq)
}

func (s *appendSide) work(ctx context.Context, m *meter) error {
	const contentType = "application/octet-stream"
	stream := len(s.counts)
	if err := createStream(ctx, s, stream, contentType); err != nil {
		return err
	}
	var next atomic.Int64
	err := m.each(s.producers, func(i int, w *worker) error {
		l, err := dial(ctx, s.address())
		if err != nil {
			return err
		}
		for over := false; !over && err == nil; over = w.over() || ctx.Err() != nil {
			fields := "Content-Type: " + contentType + "\r\n"
			if s.idempotent {
				fields += producerFields(i, w.ops)
			}
			message := streamMessage(next.Add(1)-1, s.size)
			began := time.Now()
			if err = l.succeed(http.MethodPost, streamPath(stream), fields, message); err == nil {
				w.did(began)
			}
		}
		return errors.Join(err, l.conn.Close())
	})
	s.counts = append(s.counts, next.Load())
	return err
}

// verify reads the streams from the disk. Each has each of its messages once.
func (s *appendSide) verify(ctx context.Context, done int64) error {
	if err := s.restart(ctx); err != nil {
		return err
	}
	var sum int64
	for i, want := range s.counts {
		n, err := s.count(ctx, i, want)
		if err != nil {
			return fmt.Errorf("stream %d: %w", i, err)
		}
		sum += n
	}
	if sum != done {
		return fmt.Errorf("the streams have %d messages, and %d were appended", sum, done)
	}
	return nil
}

// count reads a stream, and returns its number of messages. It returns an error unless the stream has want messages, each once.
func (s *appendSide) count(ctx context.Context, stream int, want int64) (n int64, err error) {
	l, err := dial(ctx, s.address())
	if err != nil {
		return 0, err
	}
	defer l.conn.Close()
	seen := make([]bool, want)
	var rest []byte
	for offset, over := "-1", false; !over; {
		resp, text, err := l.request(http.MethodGet, streamPath(stream)+"?offset="+offset, "", nil)
		if err != nil {
			return n, err
		}
		if resp.StatusCode != http.StatusOK {
			return n, fmt.Errorf("a read after %d messages: %s: %s", n, resp.Status, text)
		}
		offset, over = resp.Header.Get("Stream-Next-Offset"), resp.Header.Get("Stream-Up-To-Date") == "true"
		for rest = append(rest, text...); len(rest) >= s.size; rest = rest[s.size:] {
			number, err := strconv.ParseInt(string(rest[:12]), 10, 64)
			if err != nil || number >= want || seen[number] {
				return n, fmt.Errorf("the message after %d of %d messages is %.20q", n, want, rest)
			}
			seen[number] = true
			n++
		}
	}
	if n != want || len(rest) > 0 {
		err = fmt.Errorf("there are %d messages and %d bytes, want %d messages", n, len(rest), want)
	}
	return n, err
}

// streamAppends measures appends to a stream, each with and without an idempotent producer.
func streamAppends(ctx context.Context, b *bench) error {
	id := 0
	for _, producers := range []int{1, 16} {
		for _, size := range []int{100, 10_000} {
			id++
			if err := b.streamAppends(ctx, fmt.Sprint("SA", id), producers, size); err != nil {
				return fmt.Errorf("SA%d: %w", id, err)
			}
		}
	}
	return nil
}

func (b *bench) streamAppends(ctx context.Context, id string, producers, size int) (err error) {
	var sides []named
	for _, idempotent := range []bool{false, true} {
		more, err := b.streamSides(ctx, true, func(at streamServer) (side, error) {
			return &appendSide{streamServer: at, producers: producers, size: size, idempotent: idempotent}, nil
		})
		if err != nil {
			return errors.Join(err, closeAll(sides))
		}
		for _, s := range more {
			if idempotent {
				s.name = strings.TrimPrefix(s.name+", idempotent", ours+", ")
			}
			sides = append(sides, s)
		}
	}
	l := &raw{objects: producers, callers: producers, appends: true, size: size}
	if err := l.open(b); err != nil {
		return errors.Join(err, closeAll(sides))
	}
	sides = append(sides, named{limit, l})
	r := Row{ID: id, Unit: "appends/s", What: fmt.Sprintf("appends of %d bytes to a stream over HTTP, %d producers, an append of each outstanding", size, producers)}
	if producers == 1 {
		r.What = fmt.Sprintf("appends of %d bytes to a stream over HTTP, 1 producer, one append after the other", size)
	}
	if r.Sides, err = b.compare(ctx, sides...); err != nil {
		return err
	}
	r.Notes = []string{"idempotent: with the headers of an idempotent producer, whose last request the server writes with the message",
		"limit: a synced commit of a row of the same size for each append, by as many goroutines, without HTTP", sharing(r.Sides), b.streamNote()}
	b.add(r)
	return nil
}

// streamNote describes the comparison of the servers.
func (b *bench) streamNote() string {
	const clients = "the clients share the machine with the server; those of dohost share its process too"
	if b.streams == nil {
		return clients + "; the reference server was not measured"
	}
	return clients + "; " + b.streams.fact()
}
