//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// runningDemo is a running demo.
type runningDemo struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Reader
	log strings.Builder
}

func startDemo(t *testing.T, bin string, env []string, args ...string) *runningDemo {
	t.Helper()
	s := &runningDemo{t: t, cmd: exec.Command(bin, append([]string{"demo"}, args...)...)}
	s.cmd.Env = append(os.Environ(), env...)
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it has ended, or the test has
		_ = s.cmd.Wait()
	})
	if err := stdout.(*os.File).SetReadDeadline(time.Now().Add(2 * scriptTimeout)); err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewReader(stdout)
	return s
}

// until waits for a line.
func (s *runningDemo) until(pattern string) {
	s.t.Helper()
	for re := regexp.MustCompile(pattern); ; {
		text, err := s.out.ReadString('\n')
		s.log.WriteString(text)
		if re.MatchString(text) {
			return
		}
		if err != nil {
			s.t.Fatalf("no line %s (%v):\n%s", pattern, err, s.log.String())
		}
	}
}

// end waits for the end and returns the whole output.
func (s *runningDemo) end() (out string, err error) {
	if _, err := io.Copy(&s.log, s.out); err != nil {
		s.t.Fatalf("does not end: %v\n%s", err, s.log.String())
	}
	err = s.cmd.Wait()
	return s.log.String(), err
}

// longText returns a folder that takes the demo a while.
func longText(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for i := range 8 {
		text := strings.Repeat(fmt.Sprintf("one two three %c ", 'a'+i), 500)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// One run locks the folder; an interrupted run resumes with its original flags.
func TestDemoResumesWithItsFlagsAndLocksItsData(t *testing.T) {
	t.Parallel()
	bin, data := dohostProgram(t), filepath.Join(t.TempDir(), "data")
	first := startDemo(t, bin, nil, "--dir", longText(t), "--data", data, "--kills", "0", "--chaos-at", "release", "--chaos-mode", "crash")
	first.until(`steps \d`)
	before, err := os.ReadFile(filepath.Join(data, planFile))
	if err != nil {
		t.Fatal(err)
	}
	out, status := runDemo(t, bin, "--data", data)
	if status != 1 || !strings.Contains(out, "dohost: --data "+data+": another demo is running in this folder\n") || strings.Contains(out, "resumes the run") {
		t.Errorf("a second demo: status %d\n%s", status, out)
	}
	if after, err := os.ReadFile(filepath.Join(data, planFile)); err != nil || !bytes.Equal(before, after) {
		t.Errorf("it has changed the plan (%v):\n%s", err, after)
	}
	if err := first.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if out, err := first.end(); err == nil || !strings.Contains(out, "Interrupted. The data is kept in "+data) {
		t.Fatalf("interrupted: %v\n%s", err, out)
	}
	out, status = runDemo(t, bin, "--data", data)
	if status != 0 || !strings.Contains(out, "with the flags of its start") || !strings.Contains(out, "agree to the last one") ||
		!regexp.MustCompile(`kills \(SIGKILL\) +0\n`).MatchString(out) || !regexp.MustCompile(`evictions by place +(release \d+)?\n`).MatchString(out) {
		t.Errorf("resumed: status %d\n%s", status, out)
	}
	if _, err := os.Stat(data); err == nil {
		t.Errorf("%s is still there", data)
	}
}

func TestSupervisorReportsTroubleOncePerChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		s := &supervisor{cmd: &demoCmd{Data: "data"}, show: newDisplay(&out)}
		for _, r := range []struct {
			steps int
			why   string
		}{{1, "late"}, {1, "a"}, {1, "b"}, {1, "a"}, {1, ""}, {2, "a"}, {2, "a"}, {2, "a"}} {
			if r.why == "" {
				s.stuck(r.steps, nil)
			} else {
				s.stuck(r.steps, &trouble{Err: r.why})
			}
			time.Sleep(stuckAfter)
		}
		if want := "No step succeeds: a\nNo step succeeds: b\nNo step succeeds: a\n"; out.String() != want {
			t.Errorf("shown\n%swant\n%s", out.String(), want)
		}
	})
}

// If a plan cannot be written, the previous one stays.
func TestPlanIsSavedAtomically(t *testing.T) {
	c := &demoCmd{Data: t.TempDir()}
	if err := c.save(&demoPlan{Files: 1, Piece: 1, Killed: 1}); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(c.Data, planTemp), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := c.save(&demoPlan{Files: 1, Piece: 1, Killed: 2}); err == nil {
		t.Error("the plan was written in place")
	}
	if p, err := c.readPlan(); err != nil || p.Killed != 1 || !p.resumed {
		t.Errorf("left is %+v, %v", p, err)
	}
}
