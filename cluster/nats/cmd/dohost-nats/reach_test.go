//go:build unix

package main

import (
	"testing"
	"time"
)

// sharedMachine is the factor between an aim and the limit of a test: a machine with other work is slow.
const sharedMachine = 4

// The limits of times. Each comment has the aim.
const (
	ownerKilledLimit  = sharedMachine * 3500 * time.Millisecond // kill -9 of an owner: 3.5 s (p99) between two answers of an object
	leaderKilledLimit = electionLease                           // kill -9 of the server that leads a stream: 5 to 9 s, likewise; afterwards the owner loses the cell
	joinGapLimit      = ownerKilledLimit                        // a third node joins: 1 s, likewise; a node on a busy machine may lose its lease
	joinTimeLimit     = sharedMachine * 30 * time.Second        // a third node joins: 30 s until the cells are balanced
	socketGapLimit    = sharedMachine * 4 * time.Second         // the owner of 1,000 sockets is killed: 4 s between two frames of a client
	nextWordLimit     = sharedMachine * 4 * time.Second         // the node of a chat agent is killed: 4 s until the next word
)

// within checks a time against its limit.
func within(t *testing.T, name string, took, limit time.Duration) {
	t.Helper()
	if took > limit {
		t.Errorf("%s: %v, the limit is %v", name, took.Round(time.Millisecond), limit)
	}
}
