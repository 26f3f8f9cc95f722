package natslog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dohost/dohost/cluster/nats/internal/natstest"
	"github.com/dohost/dohost/sharedlog"
)

// content is that of a base of several messages. The last message is short.
func content(seed byte) []byte {
	b := make([]byte, 3*maxPart+1001)
	for i := range b {
		b[i] = seed + byte(i) + byte(i>>8)*7 + byte(i>>16)*13
	}
	return b
}

func writeBase(t *testing.T, o *lease, number uint64, b []byte) {
	t.Helper()
	err := o.WriteBase(t.Context(), number, func(w io.Writer) error {
		for len(b) > 0 {
			n := min(len(b), 70_001)
			if _, err := w.Write(b[:n]); err != nil {
				return err
			}
			b = b[n:]
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func hasBase(t *testing.T, o *lease, number uint64, want []byte) {
	t.Helper()
	r, err := o.ReadBase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || o.Base() != number || !bytes.Equal(got, want) {
		t.Errorf("the base of record %d has %d bytes, want that of record %d with %d: %v", o.Base(), len(got), number, len(want), err)
	}
}

// contents returns how many bases have contents in the stream.
func contents(t *testing.T, l *Log) int {
	t.Helper()
	info, err := l.bases.Info(t.Context(), jetstream.WithSubjectFilter(l.baseSubject("*")))
	if err != nil {
		t.Fatal(err)
	}
	return len(info.State.Subjects)
}

// TestOwnerThatLostTheLogRemovesNoNewerBase also has bases of several messages.
func TestOwnerThatLostTheLogRemovesNoNewerBase(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	l := open(t, s, "main", single)
	old := acquire(t, l)
	appends(t, old, 1, 3)
	writeBase(t, old, 1, content(1))
	writeBase(t, old, 2, content(2))
	if n := contents(t, l); n != 1 {
		t.Errorf("%d bases have contents, want 1", n)
	}
	if err := old.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := acquire(t, l)
	hasBase(t, o, 2, content(2))
	writeBase(t, o, 3, content(3))
	old.removeBases(t.Context(), old.base.name)
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	hasBase(t, acquire(t, l), 3, content(3))
	if n := contents(t, l); n != 1 {
		t.Errorf("%d bases have contents, want 1", n)
	}
}

// TestBaseWithLostAnswer has a base whose message is in the stream, although its owner got no answer.
func TestBaseWithLostAnswer(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	l := open(t, s, "main", single)
	o := acquire(t, l)
	appends(t, o, 1, 2)
	b := base{number: 1, sequence: o.tail + 1, name: "1-1-test"}
	f := frame{kind: kindBase, generation: o.generation, number: 2, base: b.sequence, parts: 1, payload: b.encode()}
	if _, err := l.js.Publish(t.Context(), l.subject(), f.encode(), jetstream.WithExpectLastSequence(o.tail)); err != nil {
		t.Fatal(err)
	}
	o.pending, o.unknown = &b, true
	err := o.WriteBase(t.Context(), 2, func(io.Writer) error { return nil })
	if !errors.Is(err, sharedlog.ErrUnavailable) {
		t.Errorf("another base: %v", err)
	}
	appends(t, o, 3, 4)
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	o = acquire(t, l)
	hasBase(t, o, 1, nil)
	has(t, o, 4)
}

// TestBaseAfterAFailedAppend has a record whose outcome is not known, then a base, and at last a base of a released lease.
func TestBaseAfterAFailedAppend(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	l := open(t, s, "main", single)
	o := acquire(t, l)
	appends(t, o, 1, 1)
	empty := func(io.Writer) error { return nil }
	o.tried = true
	if err := o.WriteBase(t.Context(), 1, empty); !errors.Is(err, sharedlog.ErrUnavailable) {
		t.Errorf("a base before the record: %v", err)
	}
	o.tried = false
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.publishBase(ctx, base{number: 1, sequence: o.tail + 1, name: "test"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a base after the end of its context: %v", err)
	}
	appends(t, o, 2, 2) // after the base, since that may have been published
	if o.base.number != 1 {
		t.Errorf("the base is that of record %d, want 1", o.base.number)
	}
	err := o.WriteBase(t.Context(), 2, func(io.Writer) error { return o.Release(t.Context()) })
	if !errors.Is(err, sharedlog.ErrFenced) {
		t.Errorf("a base after the release: %v", err)
	}
}

// TestMessageMissingBetweenRecordsIsNamed deletes the message of a base. The stream is made again with a configuration that lets it.
func TestMessageMissingBetweenRecordsIsNamed(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	l := open(t, s, "main", single)
	config := recordStream("main", 1)
	config.DenyDelete = false
	if err := l.js.DeleteStream(t.Context(), config.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := l.js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	o := acquire(t, l)
	appends(t, o, 1, 2)
	writeBase(t, o, 1, nil) // sequence 4
	writeBase(t, o, 1, nil)
	appends(t, o, 3, 3)
	if err := errors.Join(l.stream.DeleteMsg(t.Context(), 4), o.Release(t.Context())); err != nil {
		t.Fatal(err)
	}
	var failure error
	for _, err := range acquire(t, l).Read(t.Context(), 1) {
		failure = err
	}
	if failure == nil || !strings.Contains(failure.Error(), "sequence 4 of stream dohost-main: missing message") {
		t.Errorf("a log without a message: %v", failure)
	}
}

// TestBaseThatFailsLeavesNoContent has bases that fail in the middle, at their end and when they are named, and one that may be published.
func TestBaseThatFailsLeavesNoContent(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	l := open(t, s, "main", single)
	o := acquire(t, l)
	appends(t, o, 1, 2)
	write := func(ctx context.Context, number uint64, end func() error) error {
		return o.WriteBase(ctx, number, func(w io.Writer) error {
			_, err := w.Write(content(1))
			if n := contents(t, l); n != 1 {
				t.Errorf("%d bases have contents while one is written", n)
			}
			return errors.Join(err, end())
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	for n, err := range []error{
		write(t.Context(), 1, func() error { return errors.New("by the test") }),
		write(ctx, 1, func() error { cancel(); return nil }),
		write(t.Context(), 3, func() error { return nil }), // there is no record 3
	} {
		if has := contents(t, l); err == nil || has != 0 {
			t.Errorf("failed base %d: %d bases have contents, error %v", n, has, err)
		}
	}
	o.tail += 5 // the servers refuse the message, and no message explains that
	if err := write(t.Context(), 1, func() error { return nil }); !errors.Is(err, sharedlog.ErrUnknown) || contents(t, l) != 1 {
		t.Errorf("%d bases have contents after one whose outcome is unknown: %v", contents(t, l), err)
	}
}

// TestPurgeDuringASearch purges messages, as a former owner may, at each step of the search for a record.
func TestPurgeDuringASearch(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	l := open(t, s, "main", single)
	o := acquire(t, l)
	appends(t, o, 1, 30) // record n has the sequence n+1
	search := &purging{Stream: l.stream}
	l.stream = search
	for _, test := range []struct{ record, before, want uint64 }{
		{20, 20, 21}, {28, 28, 29}, {29, 31, 31}, // the last one is purged itself
	} {
		search.before = test.before
		sequence, err := l.find(t.Context(), test.record, 1, o.tail)
		if err != nil || sequence != test.want {
			t.Errorf("record %d has the sequence %d, want %d: %v", test.record, sequence, test.want, err)
		}
	}
}

// purging is a stream that loses the messages before a sequence when a message is read.
type purging struct {
	jetstream.Stream
	before uint64
}

func (p *purging) GetMsg(ctx context.Context, sequence uint64, options ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	if err := p.Purge(ctx, jetstream.WithPurgeSequence(p.before)); err != nil {
		return nil, err
	}
	return p.Stream.GetMsg(ctx, sequence, options...)
}
