package natslog

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dohost/dohost/cluster/nats/internal/natstest"
)

// loseStream deletes the stream of a log that has no owner, as servers do that lose it.
func loseStream(t *testing.T, l *Log, name string) {
	t.Helper()
	if err := l.js.DeleteStream(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}

// refusesToBegin expects that no host acquires the log, and returns the error.
func refusesToBegin(t *testing.T, s *natstest.Servers, cell string) string {
	t.Helper()
	o, err := open(t, s, cell, single).Acquire(t.Context())
	if !errors.Is(err, errDamaged) {
		t.Fatalf("the log is acquired although its stream was lost: %v, %v", o, err)
	}
	return err.Error()
}

// TestLogWhoseStreamIsLostIsNotEmpty loses the stream of a log that had an owner. Open makes another stream, and an operator decides whether the
// log begins again.
func TestLogWhoseStreamIsLostIsNotEmpty(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	l := open(t, s, "main", single)
	if err := acquire(t, l).Release(t.Context()); err != nil { // an owner without a record
		t.Fatal(err)
	}
	loseStream(t, l, "dohost-main")
	if text := refusesToBegin(t, s, "main"); !strings.Contains(text, "stream dohost-main is empty") || !strings.Contains(text, "delete the key, stream dohost-bases-main") {
		t.Error(text)
	}
	bucket, err := l.js.KeyValue(t.Context(), "dohost")
	if err != nil {
		t.Fatal(err)
	}
	made, err := bucket.Get(t.Context(), "main.begun")
	if err != nil || !strings.Contains(refusesToBegin(t, s, "main"), string(made.Value())) {
		t.Errorf("the key: %v", err)
	}
	if err := bucket.Delete(t.Context(), "main.begun"); err != nil { // by an operator
		t.Fatal(err)
	}
	o := acquire(t, open(t, s, "main", single))
	appends(t, o, 1, 2)
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o = acquire(t, open(t, s, "main", single)); o.Generation() != 2 {
		t.Errorf("generation %d", o.Generation())
	}
	has(t, o, 2)
}

// TestLogWhoseStreamAndKeysAreLostIsNotEmpty loses the stream, and the bucket with all keys.
func TestLogWhoseStreamAndKeysAreLostIsNotEmpty(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	l := open(t, s, "main", single)
	o := acquire(t, l)
	appends(t, o, 1, 2)
	writeBase(t, o, 2, []byte("state"))
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	loseStream(t, l, "dohost-main")
	loseStream(t, l, "KV_dohost")
	if text := refusesToBegin(t, s, "main"); !strings.Contains(text, "there is a base of it") {
		t.Error(text)
	}
	loseStream(t, l, "dohost-bases-main")
	has(t, acquire(t, open(t, s, "main", single)), 0)
}

// TestKeyOfFirstOwnerIsWrittenForALogThatHasRecords has a log without the key, as an older version has made it.
func TestKeyOfFirstOwnerIsWrittenForALogThatHasRecords(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	l := open(t, s, "main", single)
	o := acquire(t, l)
	appends(t, o, 1, 2)
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.owners.Purge(t.Context(), jetstream.WithPurgeSubject(keySubject(l.begunKey()))); err != nil {
		t.Fatal(err)
	}
	o = acquire(t, l)
	has(t, o, 2)
	if m, err := l.key(t.Context(), l.begunKey()); err != nil || m.Sequence == 0 {
		t.Errorf("the key has sequence %d: %v", m.Sequence, err)
	}
}
