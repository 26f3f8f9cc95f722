//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cluster"
)

const (
	clusterCells = 8
	// clusterTime limits each wait for servers and nodes, on a busy machine.
	clusterTime = time.Minute
	// nextWordLimit limits the time from the end of an agent's node to the next word of its answer. The aim is 4 s; the factor is for a
	// machine with other work.
	nextWordLimit = 4 * 4 * time.Second
)

// TestPageContinuesOnAnotherNode kills the node of an agent in the middle of an answer. The page is served by another node, and its text neither shrinks
// nor repeats: framecheck.js reads each painted frame.
func TestPageContinuesOnAnotherNode(t *testing.T) {
	browser := tool(t, "chromium", "chromium-browser", "google-chrome")
	bins := t.TempDir()
	for program, pkg := range map[string]string{"nats-server": "github.com/nats-io/nats-server/v2", "dohost-nats": "./cmd/dohost-nats"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bins, program), pkg)
		cmd.Dir = filepath.Join("..", "cluster", "nats")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go build %s: %v\n%s", pkg, err, out)
		}
	}
	c := &pageCluster{t: t, bins: bins, secret: filepath.Join(bins, "secret")}
	if err := os.WriteFile(c.secret, []byte("a secret of this test"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.startServer()
	c.nodes = [2]*clusterNode{c.startNode(), c.startNode()}
	chrome := startChrome(t, browser)
	for i, s := range []screen{desktop, phone} {
		t.Run(s.name, func(t *testing.T) {
			c.awaitBalance(t)
			owner, other := c.nodes[i], c.nodes[1-i]
			agent := owner.agent(t, visitors[10*i:]) // half of the names each
			v := &visit{chrome: chrome, screen: s, agent: agent, url: other.objects + "/#assistant/" + agent}
			v.open(t)
			v.do(t, speaks)
			if err := owner.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			killed := time.Now()
			v.do(t, `await until("the answer is cut off", () => the('article[data-state="cut"]'), 30000);
				const before = words(); await until("the answer continues", () => words() > before, 30000);`)
			took := time.Since(killed)
			t.Logf("the next word %v after the kill", took.Round(time.Millisecond))
			if took > nextWordLimit {
				t.Errorf("the next word came %v after the kill, the limit is %v", took, nextWordLimit)
			}
			v.picture(t, "killed node")
			v.do(t, ends)
			v.isStored(t, 1)
			_ = owner.cmd.Wait() // its error is the signal
			c.nodes[i] = c.startNode()
		})
	}
}

// pageCluster is a server of NATS, and two nodes.
type pageCluster struct {
	t            *testing.T
	bins, secret string
	server       string // its address
	nodes        [2]*clusterNode
}

// clusterNode is a process of dohost-nats.
type clusterNode struct {
	cmd            *exec.Cmd
	objects, admin string // URLs
}

// run starts a program that ends with the test. Its output is in the test's log if the test fails.
func (c *pageCluster) run(program string, args ...string) (cmd *exec.Cmd, stdout io.Reader) {
	c.t.Helper()
	cmd = exec.Command(filepath.Join(c.bins, program), args...)
	log, err := os.Create(filepath.Join(c.t.TempDir(), "log"))
	if err != nil {
		c.t.Fatal(err)
	}
	cmd.Stderr = log
	if stdout, err = cmd.StdoutPipe(); err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, or the test has
		_ = cmd.Wait()
		log.Close()
		if text, err := os.ReadFile(log.Name()); c.t.Failed() {
			c.t.Logf("%s, process %d: %v\n%s", program, cmd.Process.Pid, err, text)
		}
	})
	return cmd, stdout
}

// startServer starts the server, and waits until it listens.
func (c *pageCluster) startServer() {
	c.t.Helper()
	dir := c.t.TempDir()
	config := filepath.Join(dir, "server.conf")
	text := fmt.Sprintf(`
		listen: "127.0.0.1:-1"
		ports_file_dir: %q
		jetstream { store_dir: %q, sync_interval: always }
		accounts {
			SYS { users: [{ user: system, password: x }] }
			APP { jetstream: enabled, users: [{ user: app, password: x }] }
		}
		system_account: SYS`, dir, filepath.Join(dir, "data"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	cmd, _ := c.run("nats-server", "--config", config)
	ports := filepath.Join(dir, fmt.Sprintf("nats-server_%d.ports", cmd.Process.Pid))
	c.await("the server", func() bool {
		var listens struct{ Nats []string }
		text, err := os.ReadFile(ports)
		if err != nil || json.Unmarshal(text, &listens) != nil || len(listens.Nats) == 0 {
			return false
		}
		c.server = strings.TrimPrefix(listens.Nats[0], "nats://")
		conn, err := net.Dial("tcp", c.server)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	})
}

// startNode starts a node with a new directory, and waits until it serves.
func (c *pageCluster) startNode() *clusterNode {
	c.t.Helper()
	cmd, stdout := c.run("dohost-nats", "serve", "--data", filepath.Join(c.t.TempDir(), "data"), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--cells", fmt.Sprint(clusterCells), "--cluster-secret", c.secret, "--cluster-replicas", "1", "--unsafe-replicas",
		"--cluster", "nats://app:x@"+c.server, "--cluster-system", "nats://system:x@"+c.server)
	n := &clusterNode{cmd: cmd}
	lines := bufio.NewScanner(stdout)
	for (n.objects == "" || n.admin == "") && lines.Scan() {
		switch m := regexp.MustCompile(`^(objects|admin) +(http://\S+)$`).FindStringSubmatch(lines.Text()); {
		case m == nil:
		case m[1] == "objects":
			n.objects = m[2]
		default:
			n.admin = m[2]
		}
	}
	if n.objects == "" || n.admin == "" {
		c.t.Fatalf("a node has not started: %v", lines.Err())
	}
	go func() {
		for lines.Scan() {
		}
	}()
	return n
}

// await waits for a condition.
func (c *pageCluster) await(name string, holds func() bool) {
	c.t.Helper()
	for limit := time.Now().Add(clusterTime); !holds(); {
		if time.Now().After(limit) {
			c.t.Fatalf("%s: not so in %v", name, clusterTime)
		}
		select {
		case <-c.t.Context().Done():
			c.t.Fatal(c.t.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// awaitBalance waits until each node serves half of the cells, and both know it.
func (c *pageCluster) awaitBalance(t *testing.T) {
	c.await("each node serves half of the cells", func() bool {
		for i, n := range c.nodes {
			other, here := c.nodes[1-i], 0
			for _, cell := range n.cells(t) {
				if cell.Here {
					here++
				} else if cell.Address != other.objects {
					return false
				}
			}
			if here != clusterCells/2 {
				return false
			}
		}
		return true
	})
}

// cells returns the cells as the node knows them.
func (n *clusterNode) cells(t *testing.T) []cluster.CellStatus {
	t.Helper()
	res, err := http.Get(n.admin + "/cells")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var s cluster.Status
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s.Cells
}

// agent returns the first of some names that is the name of an agent of the node.
func (n *clusterNode) agent(t *testing.T, names []string) string {
	t.Helper()
	cells := n.cells(t)
	for _, name := range names {
		if cells[cluster.CellOf(dohost.ID{Class: "assistant", Name: name}, clusterCells)].Here {
			return name
		}
	}
	t.Fatal("the node owns no agent")
	return ""
}
