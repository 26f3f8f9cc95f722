//go:build power && linux

package main

// The tests of this file need root, for loop devices:
//
//	go test -tags power -run PowerFailure ./cluster/nats/cmd/dohost-nats -v -rounds 20

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dohost/dohost/cluster/nats/internal/natstest"
)

// disk is a file system in an image, on a loop device. The kernel writes to the image only data that a program has synced, or that was
// unsynced for long, so a copy of the image has the content of a disk after a power failure. All programs of the test have their files on it.
type disk struct {
	t     *testing.T
	image string
	dir   string // the mount point
}

// newDisk mounts a disk until the end of the test, and makes it the place of the temporary directories. It needs root.
func newDisk(t *testing.T) *disk {
	t.Helper()
	at, err := os.MkdirTemp("", "power") // not of the test: those will be on the disk
	if err != nil {
		t.Fatal(err)
	}
	d := &disk{t: t, image: filepath.Join(at, "image"), dir: filepath.Join(at, "disk")}
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d.run("truncate", "--size=4G", d.image)
	d.run("mkfs.ext4", "-q", d.image)
	d.mount()
	t.Cleanup(func() {
		d.run("umount", d.dir)
		if err := os.RemoveAll(at); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("TMPDIR", d.dir)
	return d
}

func (d *disk) mount() { d.run("mount", "--options=loop", d.image, d.dir) }

func (d *disk) run(program string, args ...string) {
	d.t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		d.t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
}

// fail has the disk as after a power failure at this time. kill must end all programs that use the disk.
func (d *disk) fail(kill func()) {
	d.t.Helper()
	failed := d.image + "-failed"
	d.run("cp", "--sparse=always", d.image, failed)
	kill()
	d.run("umount", d.dir)
	if err := os.Rename(failed, d.image); err != nil {
		d.t.Fatal(err)
	}
	d.mount()
}

// powerFailure ends all nodes and servers at the same time with a loss of all unsynced data, and starts them again.
func (d *drive) powerFailure(disk *disk) {
	names := []string{"n1", "n2", "n3"}
	nodes := d.list
	for _, n := range nodes {
		n.signal(syscall.SIGSTOP)
	}
	for _, name := range names {
		if err := d.servers.Processes[name].Process.Signal(syscall.SIGSTOP); err != nil {
			d.t.Fatal(err)
		}
	}
	disk.fail(func() {
		for i, n := range nodes {
			d.leave(i)
			n.signal(syscall.SIGKILL)
			_ = n.cmd.Wait() // its error is the signal
		}
		d.servers.Kill(d.t, names...)
	})
	d.servers.Restart(d.t, names...)
	for i, n := range nodes {
		d.join(i, n.data)
	}
}

// TestClusterSurvivesPowerFailures has clients at three nodes while all nodes and servers lose power together. All acknowledged additions must
// be there afterwards.
func TestClusterSurvivesPowerFailures(t *testing.T) {
	if *rounds == 0 {
		t.Fatal("want -rounds")
	}
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-seed %d", *seed)
	disk := newDisk(t)
	d := &drive{newNodes(t, "tally"), newTraffic(t, *seed), rand.New(rand.NewPCG(*seed, 0))}
	for i := range d.list {
		d.join(i, t.TempDir())
	}
	d.awaitBalance()
	syscall.Sync() // the configurations of the servers
	for range *rounds {
		d.during("power failure", func() { d.powerFailure(disk) })
	}
	d.load.checkEffects()
}

// TestPowerFailureOfUnsafeServersIsNotSilent has servers without synchronous durability lose power, while the nodes continue. Each
// cell has lost records: the log names them, and an owner may answer with the complete total only until it notices.
func TestPowerFailureOfUnsafeServersIsNotSilent(t *testing.T) {
	dirs, err := os.MkdirTemp("", "nodes") // another machine: not on the disk
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dirs) })
	disk := newDisk(t)
	c := &nodes{t: t, program: "tally", servers: natstest.Start(t, 3, "10m"), secret: secretFile(t, "a secret of this test")}
	load := newTraffic(t, 1)
	for i := range c.list {
		data := filepath.Join(dirs, fmt.Sprint(i))
		n := start(t, c.servers, c.program, "--data", data, "--admin", "127.0.0.1:0", "--cluster-lease", lease.String(), "--cells", fmt.Sprint(cells),
			"--cluster-secret", c.secret, "--unsafe-sync")
		n.at, n.data = n.address(), data
		n.admin = <-n.admins
		c.list[i] = n
	}
	c.awaitBalance()
	load.use(c.list)
	load.crowd(objects, 2*objects, 1)
	syscall.Sync()
	load.crowd(objects, 2*objects, 4) // the servers lose these
	names := []string{"n1", "n2", "n3"}
	disk.fail(func() { c.servers.Kill(t, names...) })
	c.servers.Restart(t, names...)

	named := func(cell int) bool {
		for _, n := range c.list {
			for line := range strings.Lines(n.errors.String()) {
				if strings.Contains(line, fmt.Sprintf("cell=%d ", cell)) && strings.Contains(line, "it is missing; the directory has it") {
					return true
				}
			}
		}
		return false
	}
	for cell := range cells {
		for limit := time.Now().Add(clusterTime); !named(cell); pause(t, limit, fmt.Sprintf("the lost record of cell %d in a log", cell)) {
			for o := cell; o < objects; o += cells {
				total := 0
				if _, err := call(t.Context(), http.DefaultClient, c.list[0].at+"/objects/tally/"+load.names[o]+"/total", struct{}{}, &total); err == nil && total != 2+2*4 {
					t.Fatalf("object %s of cell %d answers %d, want %d", load.names[o], cell, total, 2+2*4)
				}
			}
		}
	}
}
