//go:build long && unix

package main

// The test of this file writes 170 MB to each of three servers:
//
//	go test -tags long -run LongLog ./cluster/nats/cmd/dohost-nats -v

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/dohost/dohost/cluster/nats/natslog"
)

const (
	firstBase    = 64 << 20                        // bytes of records before the first base
	longLog      = 100_000_000                     // bytes of records after it. The next base follows after firstBase and the bytes of the first one
	longLogLimit = sharedMachine * 4 * time.Second // the aim is 4 s from the kill to the first answer of another node
)

// sizes returns the bytes of the records of a cell and of its bases, and the newest sequence of the bases.
func (c *nodes) sizes(cell int) (records, bases, newest uint64) {
	c.t.Helper()
	name := natslog.CellName("main", cell, cells)
	for limit := time.Now().Add(clusterTime); ; pause(c.t, limit, "the sizes of the streams") {
		r, err := c.js.Stream(c.t.Context(), "dohost-"+name)
		if err != nil {
			continue
		}
		b, err := c.js.Stream(c.t.Context(), "dohost-bases-"+name)
		if err == nil {
			return r.CachedInfo().State.Bytes, b.CachedInfo().State.Bytes, b.CachedInfo().State.LastSeq
		}
	}
}

// TestTakeOverReadsALongLog kills the owner of a cell with 100 MB of records after its base. The next owner has an empty directory, so it
// reads the base, too.
func TestTakeOverReadsALongLog(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	d := &drive{nodes: newNodes(t, "tally"), load: newTraffic(t, seed)}
	d.join(0, t.TempDir())
	d.join(1, t.TempDir())
	d.awaitBalance()
	d.load.use(d.list)
	blobs := 0
	fill := func(enough func(records, bases uint64) bool) {
		for records, bases, _ := d.sizes(0); !enough(records, bases); records, bases, _ = d.sizes(0) {
			d.load.fill(blobs, blobs+16)
			blobs += 16
		}
	}
	fill(func(_, bases uint64) bool { return bases > 0 }) // the owner has begun to write it
	for limit := time.Now().Add(clusterTime); ; pause(t, limit, "the base") {
		if records, _, _ := d.sizes(0); records < firstBase { // the owner has purged the records before it
			break
		}
	}
	_, _, newest := d.sizes(0)
	fill(func(records, _ uint64) bool { return records >= longLog })
	records, base, last := d.sizes(0)
	if last != newest {
		t.Fatalf("another base was written: sequence %d, was %d", last, newest)
	}
	var took time.Duration
	d.during("kill -9 of the owner of a long log", func() {
		d.leave(d.ownerOf(0)).signal(syscall.SIGKILL)
		killed, other := time.Now(), d.places()[0]
		for limit := killed.Add(clusterTime); !d.load.call(t.Context(), longestWait, other, d.list[other].at, 0, "add"); {
			pause(t, limit, "an answer of another node")
		}
		took = time.Since(killed)
	})
	t.Logf("another node has answered %v after the kill, with a base of %.1f MB and %.1f MB of records after it", took.Round(time.Millisecond),
		float64(base)/1e6, float64(records)/1e6)
	within(t, "the take-over", took, longLogLimit)
	d.load.checkBlobs(0, blobs, blobs)
	d.load.checkEffects()
}
