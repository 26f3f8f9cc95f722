//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dohost/dohost/cluster"
	"github.com/dohost/dohost/cluster/nats/internal/natstest"
)

const (
	cells       = 8
	clusterTime = 3 * time.Minute // for each change of the nodes, on a busy machine
)

// status returns the state of the cluster as a node knows it.
func (n *node) status() (s cluster.Status) {
	n.t.Helper()
	res, err := http.Get(n.admin + "/cells")
	if err != nil {
		n.t.Fatalf("%v\n%s", err, &n.errors)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
		n.t.Fatal(err)
	}
	return s
}

// pause waits between two attempts.
func pause(t *testing.T, limit time.Time, name string) {
	t.Helper()
	if time.Now().After(limit) {
		t.Fatalf("%s takes too long", name)
	}
	select {
	case <-time.After(20 * time.Millisecond):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// nodes are processes of a program, on three servers. A place of the list may be empty.
type nodes struct {
	t       *testing.T
	program string
	servers *natstest.Servers
	js      jetstream.JetStream
	secret  string
	lease   time.Duration
	list    [3]*node
}

func newNodes(t *testing.T, program string) *nodes {
	c := &nodes{t: t, program: program, servers: natstest.Start(t, 3, "always"), secret: filepath.Join(t.TempDir(), "secret"), lease: lease}
	if err := os.WriteFile(c.secret, []byte("a secret of this test"), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.js, err = jetstream.New(c.servers.Connect(t, "app")); err != nil {
		t.Fatal(err)
	}
	return c
}

// start starts a process on a directory.
func (c *nodes) start(cells int, data string) *node {
	c.t.Helper()
	return start(c.t, c.servers, c.program, "--data", data, "--admin", "127.0.0.1:0", "--cluster-lease", c.lease.String(),
		"--cells", fmt.Sprint(cells), "--cluster-secret", c.secret)
}

// join starts the node of a place, on the directory of the former one.
func (c *nodes) join(i int, data string) {
	c.t.Helper()
	n := c.start(cells, data)
	n.at, n.data = n.address(), data
	n.admin = <-n.admins
	c.list[i] = n
}

// leave empties a place.
func (c *nodes) leave(i int) *node {
	n := c.list[i]
	c.list[i] = nil
	return n
}

// owners returns the number of cells that each place has, if the nodes of all places agree that the cells are served by them.
func (c *nodes) owners() (shares [3]int, ok bool) {
	for _, n := range c.list {
		if n == nil {
			continue
		}
		here := 0
		for _, cell := range n.status().Cells {
			i := slices.IndexFunc(c.list[:], func(n *node) bool { return n != nil && n.at == cell.Address })
			if i < 0 || cell.Owner != cell.Holder {
				return shares, false
			}
			if c.list[i] == n {
				here++
				shares[i]++
				if !cell.Here {
					return shares, false
				}
			}
		}
	}
	return shares, true
}

// awaitBalance waits until the nodes of all places serve the cells, and each has its share.
func (c *nodes) awaitBalance() {
	c.t.Helper()
	c.awaitBalanceFor(clusterTime)
}

// awaitBalanceFor is awaitBalance with a bound. It returns the shares, which differ by at most one.
func (c *nodes) awaitBalanceFor(bound time.Duration) [3]int {
	c.t.Helper()
	for limit := time.Now().Add(bound); ; pause(c.t, limit, "the balance of the cells") {
		shares, ok := c.owners()
		least, most, sum := cells, 0, 0
		for i, n := range c.list {
			if n != nil {
				least, most, sum = min(least, shares[i]), max(most, shares[i]), sum+shares[i]
			}
		}
		if ok && sum == cells && most-least <= 1 {
			return shares
		}
	}
}

// places are the places with nodes.
func (c *nodes) places() (list []int) {
	for i, n := range c.list {
		if n != nil {
			list = append(list, i)
		}
	}
	return list
}

// ownerOf returns the place of the node that serves a cell.
func (c *nodes) ownerOf(cell int) int {
	c.t.Helper()
	for limit := time.Now().Add(clusterTime); ; pause(c.t, limit, "an owner") {
		for _, i := range c.places() {
			if c.list[i].status().Cells[cell].Here {
				return i
			}
		}
	}
}

// signal sends a signal to a node.
func (n *node) signal(s syscall.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Fatal(err)
	}
}

// leader returns the name of the server that leads a stream.
func (c *nodes) leader(stream string) string {
	c.t.Helper()
	for limit := time.Now().Add(clusterTime); ; pause(c.t, limit, "the leader of "+stream) {
		s, err := c.js.Stream(c.t.Context(), stream)
		if err == nil && s.CachedInfo().Cluster.Leader != "" {
			return s.CachedInfo().Cluster.Leader
		}
	}
}

// awaitReplicas waits until all servers have all messages of all streams.
func (c *nodes) awaitReplicas() {
	c.t.Helper()
	for limit := time.Now().Add(clusterTime); !c.current(); pause(c.t, limit, "the state of the servers") {
	}
}

func (c *nodes) current() bool {
	streams := c.js.ListStreams(c.t.Context())
	n := 0
	for info := range streams.Info() {
		n++
		if info.Cluster == nil || info.Cluster.Leader == "" || len(info.Cluster.Replicas) != 2 ||
			slices.ContainsFunc(info.Cluster.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Offline }) {
			return false
		}
	}
	return streams.Err() == nil && n > 0
}
