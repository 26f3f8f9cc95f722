//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const standbyRounds = 4

// TestStandbyIsPromotedAfterSIGKILL kills a standby again and again while a server works and ships its records. Each kill leaves a standby
// that can be promoted as it is: it has the state of one moment. Then the server is killed at rest, and the standby is promoted: it has
// everything, and a history of its own.
func TestStandbyIsPromotedAfterSIGKILL(t *testing.T) {
	t.Parallel()
	k := newKillTest(t)
	data, folder, standby := k.dir("data"), k.dir("shipped"), k.dir("standby")
	v := startProcess(t, k.bin, data, "--ship", folder)
	v.waitShipped() // the folder has a base
	done := v.alternate()
	lacked, promoted := 0, 0
	for round := range standbyRounds {
		s := k.follow(folder, standby)
		if round%2 == 1 {
			s.waitState()
		}
		<-time.After(time.Duration(20+k.rng.IntN(1500)) * time.Millisecond)
		s.kill()
		totals, ok := k.promotedCopy(standby, k.dir(fmt.Sprint("copy", round)))
		if !ok {
			continue
		}
		promoted++
		lacked += wantPrefix(t, fmt.Sprintf("round %d, promoted", round), totals, v.totals())
	}
	if promoted == 0 || lacked == 0 {
		t.Errorf("%d killed standbys had a state, they lacked %d increments: want some of both", promoted, lacked)
	}
	t.Logf("%d of %d killed standbys had a state, they lacked %d increments", promoted, standbyRounds, lacked)
	killProcess(t, v)
	<-done
	v = startProcess(t, k.bin, data, "--ship", folder)
	v.waitShipped()
	totals := v.totals()
	killProcess(t, v)
	s := k.follow(folder, standby)
	s.waitState()
	if err := errors.Join(s.cmd.Process.Signal(syscall.SIGTERM), s.cmd.Wait()); err != nil {
		t.Errorf("a standby that got SIGTERM: %v\n%s", err, &s.out)
	}
	k.follow(folder, standby).promote()
	wantConsistent(t, k.bin, standby)
	p := startProcess(t, k.bin, standby)
	if got := p.totals(); fmt.Sprint(got) != fmt.Sprint(totals) || got["left"] == 0 {
		t.Errorf("the promoted store has %v, want %v", got, totals)
	}
	killProcess(t, p)
	k.wantRefused("the archive is not of this store's history", "serve", "--data", standby, "--ship", folder, "--listen", "127.0.0.1:0", "--admin", "off")
	k.wantRefused("a store that is no standby", "standby", "--from", folder, "--data", standby, "--admin", "off")
}

// standbyCommand is a running dohost standby.
type standbyCommand struct {
	k     *killTest
	cmd   *exec.Cmd
	admin string
	out   bytes.Buffer
}

// follow starts a standby.
func (k *killTest) follow(folder, data string) *standbyCommand {
	k.t.Helper()
	s := &standbyCommand{k: k, admin: "unix:" + k.dir("s")}
	s.cmd = exec.Command(k.bin, "standby", "--from", folder, "--data", data, "--admin", s.admin)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	if err := s.cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it has ended, or the test has
		_ = s.cmd.Wait()
	})
	return s
}

func (s *standbyCommand) kill() {
	t := s.k.t
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err == nil || s.cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("the standby ended before it was killed: %v\n%s", err, &s.out)
	}
}

// waitState waits until the standby answers that it has a record.
func (s *standbyCommand) waitState() {
	t := s.k.t
	t.Helper()
	for deadline := time.After(scriptTimeout); ; {
		out, err := exec.Command(s.k.bin, "standby", "--status", "--admin", s.admin).CombinedOutput()
		if err == nil && strings.Contains(string(out), " has record ") {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("the standby has no state: %v\n%s", err, out)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// promote promotes a standby that has just been started, and waits for its end.
func (s *standbyCommand) promote(flags ...string) {
	t := s.k.t
	t.Helper()
	for deadline := time.After(scriptTimeout); ; {
		out, err := exec.Command(s.k.bin, append([]string{"promote", "--admin", s.admin}, flags...)...).CombinedOutput()
		if err == nil {
			break
		}
		select {
		case <-deadline:
			t.Fatalf("promote: %v\n%s", err, out)
		case <-time.After(50 * time.Millisecond):
		}
	}
	if err := s.cmd.Wait(); err != nil || !strings.Contains(s.out.String(), "promoted as of record ") {
		t.Fatalf("the promoted standby: %v\n%s", err, &s.out)
	}
}

// promotedCopy promotes a copy of a killed standby without reading its folder, and returns the counters. It returns false if the standby
// had no state yet.
func (k *killTest) promotedCopy(standby, dir string) (totals map[string]int, ok bool) {
	k.t.Helper()
	if _, err := os.Stat(filepath.Join(standby, "DOHOST")); err != nil {
		return nil, false
	}
	if err := os.CopyFS(dir, os.DirFS(standby)); err != nil {
		k.t.Fatal(err)
	}
	k.follow(k.dir("empty"), dir).promote("--as-is")
	wantConsistent(k.t, k.bin, dir)
	v := startProcess(k.t, k.bin, dir)
	defer killProcess(k.t, v)
	return v.totals(), true
}

// wantRefused runs a command that must fail with a text.
func (k *killTest) wantRefused(text string, args ...string) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), scriptTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, k.bin, args...).CombinedOutput(); err == nil || !strings.Contains(string(out), text) {
		k.t.Errorf("dohost %s: %v, %s; want %q", strings.Join(args, " "), err, out, text)
	}
}
