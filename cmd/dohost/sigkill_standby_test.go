//go:build unix

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const standbyRounds = 3

// TestStandbyIsPromotedAfterSIGKILL kills a standby again and again while a server works and ships its records. Then the server is killed
// at rest, and the standby is promoted: it has everything.
func TestStandbyIsPromotedAfterSIGKILL(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64() % 1_000_000
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	bin, root := programAs(t, "ringing"), t.TempDir()
	data, folder, standby := filepath.Join(root, "data"), filepath.Join(root, "shipped"), filepath.Join(root, "standby")
	admin := "unix:" + filepath.Join(root, "s")
	v := startProcess(t, bin, data, "--ship", folder)
	follow := func() (*exec.Cmd, *bytes.Buffer) {
		var out bytes.Buffer
		c := exec.Command(bin, "standby", "--from", folder, "--data", standby, "--admin", admin)
		c.Stdout, c.Stderr = &out, &out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c, &out
	}
	done := v.alternate()
	for range standbyRounds {
		c, out := follow()
		<-time.After(time.Duration(20+rng.IntN(1500)) * time.Millisecond)
		if err := c.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err == nil || c.ProcessState.ExitCode() != -1 {
			t.Fatalf("the standby ended before it was killed: %v\n%s", err, out)
		}
	}
	killProcess(t, v)
	<-done
	v = startProcess(t, bin, data, "--ship", folder)
	v.waitShipped()
	totals := v.totals()
	killProcess(t, v)
	c, out := follow()
	promoteWhenReady(t, bin, admin)
	if err := c.Wait(); err != nil || !strings.Contains(out.String(), "promoted as of record ") {
		t.Fatalf("the promoted standby: %v\n%s", err, out)
	}
	wantConsistent(t, bin, standby)
	p := startProcess(t, bin, standby)
	if got := p.totals(); fmt.Sprint(got) != fmt.Sprint(totals) || got["left"] == 0 {
		t.Errorf("the promoted store has %v, want %v", got, totals)
	}
	killProcess(t, p)
}

// promoteWhenReady promotes a standby that has just been started.
func promoteWhenReady(t *testing.T, bin, admin string) {
	t.Helper()
	deadline := time.After(scriptTimeout)
	for {
		out, err := exec.Command(bin, "promote", "--admin", admin).CombinedOutput()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("promote: %v\n%s", err, out)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
