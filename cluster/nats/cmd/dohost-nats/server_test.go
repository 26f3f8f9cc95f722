//go:build unix

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dohost/dohost/cluster/nats/internal/natstest"
)

// endTime bounds the end of a process, on a busy machine. A node drains for a longer time if its servers do not answer.
const endTime = 20 * time.Second

// longLease outlasts clusterTime.
const longLease = 10 * time.Minute

// await waits until the process ends, and kills it if it does not.
func (n *node) await(t *testing.T) error {
	t.Helper()
	n.cmd.WaitDelay = endTime // a child of a supervisor may not end with it
	begun := time.Now()
	late := time.AfterFunc(endTime, func() { _ = n.cmd.Process.Kill() }) // it may end by then
	defer late.Stop()
	err := n.cmd.Wait()
	t.Logf("the process has ended with %v after %v", err, time.Since(begun).Round(time.Millisecond))
	return err
}

// TestServerStopsAfterItsNode ends a node with the only server of a cluster, and starts it again, with a long lease. The server has stopped
// after the node has released its cells and has deleted its record: the second process serves the cells without a wait.
func TestServerStopsAfterItsNode(t *testing.T) {
	t.Parallel()
	dir, secret := t.TempDir(), secretFile(t, "a secret of this test")
	route := fmt.Sprintf("n0=127.0.0.1:%d", natstest.FreePorts(t, 1)[0])
	for run := 1; run <= 2; run++ {
		begun := time.Now()
		n := launch(t, builtin, "--data", filepath.Join(dir, "data"), "--admin", "off", "--log", "text:debug", "--cells", "2", "--cluster-lease", longLease.String(),
			"--cluster-secret", secret, "--cluster-replicas", "1", "--unsafe-replicas", "--nats-server", "n0", "--nats-routes", route,
			"--nats-dir", filepath.Join(dir, "nats"))
		at := n.address()
		for _, name := range []string{"a", "b", "c", "d"} { // in both cells
			for limit := begun.Add(clusterTime); ; pause(t, limit, "an answer") {
				if _, _, err := add(t, at, name, 0); err == nil {
					break
				}
			}
			if total, _, err := add(t, at, name, 1); err != nil || total != run {
				t.Errorf("run %d: the counter is %d, %v", run, total, err)
			}
		}
		t.Logf("run %d: the node serves its cells after %v", run, time.Since(begun).Round(time.Millisecond))
		n.signal(syscall.SIGTERM)
		if err := n.await(t); err != nil {
			t.Fatalf("the node has ended with %v after SIGTERM:\n%s", err, &n.errors)
		}
		log := n.errors.String()
		if strings.Contains(log, "level=ERROR") || strings.Contains(log, "have not taken all cells") {
			t.Errorf("run %d has errors:\n%s", run, log)
		}
		if closed, stops := strings.LastIndex(log, "closed a cell"), strings.Index(log, "Initiating Shutdown"); closed < 0 || stops < closed {
			t.Errorf("run %d: the server has not stopped after the node:\n%s", run, log)
		}
	}
}

// TestNodeThatWaitsForServersEnds starts one node of three. It waits, names the servers that are absent, and ends when it gets a signal.
func TestNodeThatWaitsForServersEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signal syscall.Signal
		args   []string
	}{
		"SIGINT":                        {syscall.SIGINT, []string{"--cells", "2"}},
		"SIGTERM":                       {syscall.SIGTERM, []string{"--cells", "2"}},
		"SIGTERM without several cells": {syscall.SIGTERM, nil},
		"SIGTERM of a supervisor":       {syscall.SIGTERM, []string{"--cells", "2", "--supervise"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			n := launch(t, builtin, append([]string{"--data", t.TempDir(), "--admin", "off", "--cluster-secret", secretFile(t, "a secret of this test"),
				"--nats-server", "n1", "--nats-routes", freeRoutes(t), "--nats-dir", t.TempDir()}, c.args...)...)
			awaitLog(t, n, "waiting for the NATS servers of other nodes")
			t.Logf("the node logs that it waits after %v", time.Since(begun).Round(time.Millisecond))
			if log := n.errors.String(); !strings.Contains(log, "not_connected=n0,n2") {
				t.Errorf("the absent servers are not named:\n%s", log)
			}
			n.signal(c.signal)
			begun = time.Now()
			if err := n.await(t); err == nil || time.Since(begun) >= endTime {
				t.Errorf("the node has ended with %v, %v after %v:\n%s", err, time.Since(begun), c.signal, &n.errors)
			}
		})
	}
}
