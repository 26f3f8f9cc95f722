//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dohost/dohost/cluster/nats/internal/natstest"
)

// trio is three nodes with a server each, and their clients.
type trio struct {
	*nodes
	load   *traffic
	routes string
	dirs   [3]string // of the stores, and of the servers
}

func newTrio(t *testing.T, seed uint64) *trio {
	c := &trio{nodes: &nodes{t: t, program: "tally", secret: secretFile(t, "a secret of this test")}, load: newTraffic(t, seed)}
	c.routes = freeRoutes(t)
	for i := range c.dirs {
		c.dirs[i] = t.TempDir()
	}
	return c
}

func secretFile(t *testing.T, secret string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// freeRoutes returns the flag with the addresses of three servers.
func freeRoutes(t *testing.T) string {
	t.Helper()
	p := natstest.FreePorts(t, 3)
	return fmt.Sprintf("n0=127.0.0.1:%d,n1=127.0.0.1:%d,n2=127.0.0.1:%d", p[0], p[1], p[2])
}

// begin starts the node of a place. It may wait for others.
func (c *trio) begin(i int, secret string) *node {
	c.t.Helper()
	return launch(c.t, c.program, "--data", filepath.Join(c.dirs[i], "data"), "--admin", "127.0.0.1:0", "--cluster-lease", lease.String(),
		"--cells", fmt.Sprint(cells), "--cluster-secret", secret, "--nats-server", fmt.Sprint("n", i), "--nats-routes", c.routes,
		"--nats-dir", filepath.Join(c.dirs[i], "nats"))
}

// serve starts the nodes of places in this order, and waits until all of them serve.
func (c *trio) serve(places ...int) {
	c.t.Helper()
	started := map[int]*node{}
	for _, i := range places {
		started[i] = c.begin(i, c.secret)
		if len(started) == 1 && len(places) == 3 { // the others start late
			awaitLog(c.t, started[i], "waiting for the NATS servers of other nodes")
		}
	}
	for i, n := range started {
		n.at = n.address()
		n.admin = <-n.admins
		c.list[i] = n
	}
	c.awaitBalance()
	c.load.use(c.list)
}

// end ends the node of a place with a signal.
func (c *trio) end(i int, s syscall.Signal) {
	c.t.Helper()
	n := c.leave(i)
	n.signal(s)
	err := n.cmd.Wait()
	if s == syscall.SIGTERM && err != nil {
		c.t.Errorf("a node has ended with %v after SIGTERM:\n%s", err, &n.errors)
	}
}

// during has clients call while an event occurs, and checks their histories.
func (c *trio) during(event string, f func()) {
	c.t.Helper()
	stop := c.load.start()
	c.load.awaitAnswers(c.places()...)
	begun := time.Now()
	f()
	c.awaitBalance()
	c.load.use(c.list)
	c.load.awaitAnswers(c.places()...)
	stop()
	c.load.check(fmt.Sprintf("%s, after %v", event, time.Since(begun).Round(time.Millisecond)))
}

// awaitLog waits until the log of a node has a text. The node neither ends nor serves before that.
func awaitLog(t *testing.T, n *node, text string) {
	t.Helper()
	for limit := time.Now().Add(clusterTime); !strings.Contains(n.errors.String(), text); {
		select {
		case address, serves := <-n.objects:
			t.Fatalf("want %q in the log; the node serves: %v, %s\n%s", text, serves, address, &n.errors)
		default:
		}
		pause(t, limit, fmt.Sprintf("%q in the log", text))
	}
}

// TestNodesWithServersOfTheirOwn starts three nodes in any order, each with a server. It kills, ends and restarts nodes under load.
func TestNodesWithServersOfTheirOwn(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c := newTrio(t, seed)

	alone := c.begin(r.IntN(3), c.secret)
	awaitLog(t, alone, "waiting for the NATS servers of other nodes")
	alone.signal(syscall.SIGINT)
	if err := alone.cmd.Wait(); err == nil || alone.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("a node that waits has ended with %v after SIGINT", err)
	}

	c.serve(r.Perm(3)...)
	killed := r.IntN(3)
	c.during(fmt.Sprint("kill -9 of node ", killed), func() { c.end(killed, syscall.SIGKILL) })
	c.during("its restart", func() { c.serve(killed) })
	ended := r.IntN(3)
	c.during(fmt.Sprint("SIGTERM of node ", ended), func() { c.end(ended, syscall.SIGTERM) })

	// The routes refuse a server with another secret.
	stranger := c.begin(ended, secretFile(t, "another secret of this test"))
	awaitLog(t, stranger, "handshake error")
	awaitLog(t, stranger, "waiting for the NATS servers of other nodes")
	if log := stranger.errors.String(); !strings.Contains(log, "not_connected="+others(ended)) {
		t.Errorf("a node with another secret has routes:\n%s", log)
	}
	stranger.signal(syscall.SIGKILL)
	_ = stranger.cmd.Wait() // its error is the signal

	for _, i := range c.places() {
		c.end(i, syscall.SIGKILL)
	}
	order := r.Perm(3)
	c.serve(order[:2]...)
	c.during("two nodes after the end of all", func() {})
	c.load.checkEffects()
}

// others returns the names of the servers of the other places.
func others(place int) string {
	var names []string
	for i := range 3 {
		if i != place {
			names = append(names, fmt.Sprint("n", i))
		}
	}
	return strings.Join(names, ",")
}
