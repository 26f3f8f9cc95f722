package natslog

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost/cluster"
	"github.com/dohost/dohost/cluster/nats/internal/natstest"
)

// nodeCells is the number of cells of the clusters in these tests.
const nodeCells = 16

// testNode is a node with a table. A test renews its record, or keep does.
type testNode struct {
	*Table
	member cluster.Member
}

// joinNode returns a node whose record was renewed once.
func joinNode(t *testing.T, s *natstest.Servers, name string, o Options) *testNode {
	t.Helper()
	n := &testNode{openTable(t, s, name, o), cluster.Member{ID: rand.Text(), Address: "http://node"}}
	n.renew(t)
	return n
}

func (n *testNode) renew(t *testing.T) {
	t.Helper()
	if err := n.Renew(t.Context(), n.member); err != nil {
		t.Fatal(err)
	}
}

func (n *testNode) log(t *testing.T, cell int) *Log {
	t.Helper()
	l, err := n.Log(t.Context(), cell, nodeCells)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// running has a function for each table whose record is renewed: it ends the renewals.
var running sync.Map

// startNode returns a node whose record is renewed until suspendNode, or until the end of the test.
func startNode(t *testing.T, s *natstest.Servers, name string, o Options) *testNode {
	t.Helper()
	n := joinNode(t, s, name, o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(n.TTL() / renewals)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				_ = n.Renew(ctx, n.member) // a test that needs the session fails without it
			}
		}
	}()
	running.Store(n.Table, func() {
		cancel()
		<-ended
	})
	t.Cleanup(func() { suspendNode(n.Table) })
	return n
}

// suspendNode ends the renewals of a node, as if its process was stopped.
func suspendNode(t *Table) {
	if end, found := running.LoadAndDelete(t); found {
		end.(func())()
	}
}
