//go:build unix

package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	soak   = flag.Duration("soak", 0, "after the events, suspend and kill nodes and servers for this time")
	rounds = flag.Int("rounds", 0, "likewise, for a number of rounds")
	events = flag.String("events", "suspend,pause,kill,drain,server,stop-server,servers", "the events of these rounds, separated by commas")
	blobs  = flag.Int("blobs", 8, "values of 256 KiB in the log of a cell whose owner is killed")
	calls  = flag.Int("calls", 2, "additions by each of 256 callers")
	seed   = flag.Uint64("seed", 0, "the seed of the events; 0 draws one")
)

// lease is short for a test of many rounds. A busy machine may lose a lease; then the cells are acquired again.
const lease = 3 * time.Second

// drive is a cluster, its clients and its events.
type drive struct {
	*nodes
	load *traffic
	r    *rand.Rand
}

// during has clients call while an event occurs, and checks their histories.
func (d *drive) during(event string, f func()) spell {
	d.t.Helper()
	d.load.use(d.list)
	stop := d.load.start()
	d.load.awaitAnswers(d.places()...)
	begun := time.Now()
	f()
	d.awaitBalance()
	d.load.use(d.list)
	d.load.awaitAnswers(d.places()...)
	stop()
	return d.load.check(fmt.Sprintf("%s, after %v", event, time.Since(begun).Round(time.Millisecond)))
}

// suspend stops a node until the others serve all objects, and then continues it, with requests that it has not read.
func (d *drive) suspend(i int) {
	n := d.list[i]
	n.signal(syscall.SIGSTOP)
	d.list[i] = nil // for awaitBalance
	d.awaitBalance()
	d.load.awaitAnswers(d.places()...)
	answered := d.load.sendLate(i)
	n.signal(syscall.SIGCONT)
	answered()
	d.list[i] = n
}

// pause stops a node for a time about that of a lease: others may or may not have its cells when it continues.
func (d *drive) pause(i int) {
	d.list[i].signal(syscall.SIGSTOP)
	select {
	case <-time.After(time.Duration(d.r.Int64N(int64(2 * lease)))):
	case <-d.t.Context().Done():
		d.t.Fatal(d.t.Context().Err())
	}
	answered := d.load.sendLate(i)
	d.list[i].signal(syscall.SIGCONT)
	answered()
}

// kill kills a node, and then starts another one with its directory.
func (d *drive) kill(i int) {
	n := d.leave(i)
	n.signal(syscall.SIGKILL)
	d.awaitBalance()
	d.load.awaitAnswers(d.places()...)
	d.join(i, n.data)
}

// drain ends a node in good order, and then starts another one with an empty directory.
func (d *drive) drain(i int) {
	n := d.leave(i)
	n.signal(syscall.SIGINT)
	if err := n.cmd.Wait(); err != nil {
		d.t.Errorf("the node has ended with %v:\n%s", err, &n.errors)
	}
	d.awaitBalance()
	d.load.awaitAnswers(d.places()...)
	d.join(i, d.t.TempDir())
}

// killServer kills the server that leads a stream, and starts it again.
func (d *drive) killServer(stream string) {
	d.awaitReplicas() // the servers that are left have all messages
	leader := d.leader(stream)
	d.servers.Kill(d.t, leader)
	d.load.awaitAnswers(d.places()...)
	d.servers.Restart(d.t, leader)
}

// suspendServer stops a server until the objects answer without it, and then continues it.
func (d *drive) suspendServer(name string) {
	d.awaitReplicas()
	server := d.servers.Processes[name].Process
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		d.t.Fatal(err)
	}
	begun := time.Now()
	d.load.awaitAnswers(d.places()...)
	d.t.Logf("the objects answer %v after the stop of server %s", time.Since(begun).Round(time.Millisecond), name)
	if err := server.Signal(syscall.SIGCONT); err != nil {
		d.t.Fatal(err)
	}
}

// killServers kills all servers together, and starts them again.
func (d *drive) killServers() {
	d.servers.Kill(d.t, "n1", "n2", "n3")
	d.servers.Restart(d.t, "n1", "n2", "n3")
}

// killAfterWrites kills the owner of a cell with a long log.
func (d *drive) killAfterWrites() {
	d.load.fill(0, *blobs)
	if s, err := d.js.Stream(d.t.Context(), "dohost-main-0-of-8"); err == nil {
		d.t.Logf("the log of the cell has %.1f MB", float64(s.CachedInfo().State.Bytes)/1e6)
	}
	d.kill(d.ownerOf(0))
}

// owner draws a place with a node.
func (d *drive) owner() int {
	list := d.places()
	return list[d.r.IntN(len(list))]
}

// round is one drawn event.
func (d *drive) round(number int, events []string) {
	d.t.Helper()
	event, i := events[d.r.IntN(len(events))], d.owner()
	d.during(fmt.Sprintf("round %d, %s of node %d", number, event, i), func() {
		switch event {
		case "suspend":
			d.suspend(i)
		case "pause":
			d.pause(i)
		case "kill":
			d.kill(i)
		case "drain":
			d.drain(i)
		case "server":
			d.killServer([]string{"KV_dohost", fmt.Sprintf("dohost-main-%d-of-%d", d.r.IntN(cells), cells)}[d.r.IntN(2)])
		case "stop-server":
			d.suspendServer(fmt.Sprint("n", 1+number%3))
		case "servers":
			d.killServers()
		default:
			d.t.Fatalf("-events has %q", event)
		}
	})
}

// TestCellsOfThreeNodes has clients at all nodes while nodes and servers are killed, suspended and replaced. All answers must be those of
// counters that no failure has touched, and each call between objects must have one effect.
func TestCellsOfThreeNodes(t *testing.T) {
	t.Parallel()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-seed %d", *seed)
	d := &drive{newNodes(t, "tally"), newTraffic(t, *seed), rand.New(rand.NewPCG(*seed, 0))}
	d.join(0, t.TempDir())
	d.join(1, t.TempDir())
	d.awaitBalance()
	joined := d.during("a third node joins", func() {
		stop, begun := d.watchMoves(), time.Now()
		d.join(2, t.TempDir())
		shares := d.awaitBalanceFor(joinTimeLimit)
		took, m := time.Since(begun), stop()
		t.Logf("the nodes serve %v cells after %v, and %d moves", shares, took.Round(time.Millisecond), m.all)
		if m.all == 0 || m.most != 1 {
			t.Errorf("%d moves of cells, up to %d of them at the same time", m.all, m.most)
		}
	})
	within(t, "the longest time between two answers while a third node joins", joined.gap, joinGapLimit)
	d.during("SIGSTOP of an owner", func() { d.suspend(d.owner()) })
	killed := d.during("kill -9 of an owner", d.killAfterWrites)
	within(t, "the longest time between two answers after kill -9 of an owner", killed.gap, ownerKilledLimit)
	refused := killed.unavailable[0] + killed.unavailable[cells] // of the objects in the cell of that owner
	t.Logf("%d answers with the status 503 and Retry-After", refused)
	if refused == 0 {
		t.Error("no client of the killed owner's cell got the status 503")
	}
	d.load.checkBlobs(0, *blobs, *blobs)
	for _, n := range []int{1, objects} {
		rate := d.load.crowd(n, 256, *calls)
		d.load.check(fmt.Sprintf("256 callers of %d objects, %.0f additions/s", n, rate))
	}
	d.during("kill -9 of the server that leads the bucket", func() { d.killServer("KV_dohost") })
	d.during("kill -9 of all servers", d.killServers)
	d.during("a node drains", func() { d.drain(d.owner()) })
	for begun, i := time.Now(), 0; i < *rounds || time.Since(begun) < *soak; i++ {
		d.round(i, strings.Split(*events, ","))
		if t.Failed() {
			break
		}
	}
	d.load.checkEffects()

	wrong := d.start(cells+1, t.TempDir())
	if _, started := <-wrong.objects; started {
		t.Error("a node with another number of cells has started")
	}
	if err := wrong.cmd.Wait(); err == nil || !strings.Contains(wrong.errors.String(), "the number cannot be changed") {
		t.Errorf("a node with another number of cells: %v\n%s", err, &wrong.errors)
	}
}
