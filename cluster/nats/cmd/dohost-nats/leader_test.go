//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost/cluster/nats/natslog"
)

// electionLease outlasts an election of the servers.
const electionLease = 20 * time.Second

// ownership is the key of the owner of a cell. Each lease has its own value, and writes a new revision.
type ownership struct {
	lease    string
	revision uint64
}

// ownerships reads the owners of all cells from the bucket.
func (c *nodes) ownerships() (list [cells]ownership) {
	c.t.Helper()
	for cell := range cells {
		for limit := time.Now().Add(clusterTime); ; pause(c.t, limit, fmt.Sprint("the owner of cell ", cell)) {
			bucket, err := c.js.KeyValue(c.t.Context(), "dohost")
			if err != nil {
				continue
			}
			if e, err := bucket.Get(c.t.Context(), natslog.CellName("main", cell, cells)); err == nil {
				list[cell] = ownership{string(e.Value()), e.Revision()}
				break
			}
		}
	}
	return list
}

// metaLeader returns the name of the server that leads the metadata of the servers.
func (c *nodes) metaLeader() string {
	c.t.Helper()
	nc := c.servers.Connect(c.t, "system")
	for limit := time.Now().Add(clusterTime); ; pause(c.t, limit, "the leader of the metadata") {
		var report struct {
			Data struct {
				Meta struct {
					Leader string `json:"leader"`
				} `json:"meta_cluster"`
			} `json:"data"`
		}
		m, err := nc.Request("$SYS.REQ.SERVER.PING.JSZ", nil, time.Second) // one server answers for all
		if err == nil && json.Unmarshal(m.Data, &report) == nil && report.Data.Meta.Leader != "" {
			return report.Data.Meta.Leader
		}
	}
}

// streamLeader returns a cell, and the server that leads its stream: not the leader of the bucket or of the metadata, if possible.
func (c *nodes) streamLeader() (cell int, server string) {
	c.t.Helper()
	const ofBucket, ofMetadata, none = 1, 2, 4
	bucket, metadata, best := c.leader("KV_dohost"), c.metaLeader(), none
	for i := range cells {
		leader, leads := c.leader("dohost-"+natslog.CellName("main", i, cells)), 0
		if leader == bucket {
			leads += ofBucket
		}
		if leader == metadata {
			leads += ofMetadata
		}
		if leads < best {
			cell, server, best = i, leader, leads
		}
	}
	c.t.Logf("%s leads the stream of cell %d, %s the bucket, %s the metadata", server, cell, bucket, metadata)
	return cell, server
}

// The writes of crowdWrite: 128 MiB of arguments for 32 MiB of blobs. While a cell writes no record, an object accepts 8 MiB of blobs, and
// queues 64 MiB of arguments.
const (
	crowdWrites  = 128
	crowdPadding = 1 << 20
)

// written has the numbers of writes of crowdWrite.
type written struct {
	stored  int
	unknown int // with an unknown outcome
	refused int // with the status 503, before the first one was stored
}

// crowdWrite has many callers write to an object at its node, once each.
func (l *traffic) crowdWrite(place, object int) (w written) {
	var mu sync.Mutex
	var running sync.WaitGroup
	padding := strings.Repeat("x", crowdPadding)
	for seed := range crowdWrites {
		running.Go(func() {
			ran, err := l.write(place, object, blobWrite{seed, padding})
			unavailable, fault := isUnavailable(err)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				w.stored++
			case ran:
				w.unknown++
			case unavailable && w.stored == 0:
				w.refused++
			}
			if fault != nil {
				l.t.Error(fault)
			}
		})
	}
	running.Wait()
	return w
}

// TestStreamLeaderThatIsKilledLeavesTheOwners kills the server that leads the stream of a cell, under load. With a lease that outlasts the
// election all owners keep their cells. Until the election calls of the cell wait, and those beyond the queue of an object get the status 503.
func TestStreamLeaderThatIsKilledLeavesTheOwners(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := newNodes(t, "tally")
	c.lease = electionLease
	d := &drive{nodes: c, load: newTraffic(t, seed)}
	for i := range d.list {
		d.join(i, t.TempDir())
	}
	d.awaitBalance()
	cell, w := 0, written{}
	killed := d.during("kill -9 of the server that leads a stream", func() {
		d.awaitReplicas()
		var leader string
		cell, leader = d.streamLeader()
		owner, before := d.ownerOf(cell), d.ownerships()
		d.servers.Kill(t, leader)
		w = d.load.crowdWrite(owner, cell)
		d.load.awaitAnswers(d.places()...)
		for i, after := range d.ownerships() {
			if after != before[i] {
				t.Errorf("the owner of cell %d was %v, and is %v", i, before[i], after)
			}
		}
		d.servers.Restart(t, leader)
	})
	within(t, "the longest time between two answers", killed.gap, leaderKilledLimit)
	t.Logf("large writes: %+v", w)
	if w.refused == 0 {
		t.Error("the object has refused no call with the status 503 before the election")
	}
	if w.stored == 0 {
		t.Error("the object has stored nothing after the election")
	}
	d.load.checkBlobs(cell, w.stored, w.stored+w.unknown)
	d.load.checkEffects()
}
