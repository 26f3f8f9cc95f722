//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
)

// alarmClass serves a counter that adds 1 when its alarm is due.
func alarmClass() dohost.Class {
	const counters dohost.Namespace[alarmCounter] = "counter"
	return dohost.Bind(counters, func(_ context.Context, st *dohost.State) (*alarmCounter, error) { return &alarmCounter{st}, nil },
		&dohost.Handlers[alarmCounter]{
			OnAlarm: func(r *alarmCounter, ctx context.Context, _ dohost.AlarmInfo) error {
				_, err := r.add(ctx, 1)
				return err
			},
		},
		dohost.Expose("add", (*alarmCounter).add))
}

type alarmCounter struct{ st *dohost.State }

// add adds n and returns the sum.
func (r *alarmCounter) add(ctx context.Context, n int) (int, error) {
	sum, _, err := dohost.Get[int](ctx, r.st.Storage(), "n")
	if err != nil {
		return 0, err
	}
	return sum + n, dohost.Put(ctx, r.st.Storage(), "n", sum+n)
}

const (
	killRounds  = 10
	killClients = 4
	killObjects = 3 // fewer than clients, so that they share objects
	// alarmDelay is the time until an alarm that is set before the kill: long enough for the kill to come first.
	alarmDelay = 200 * time.Millisecond
)

// killTest is a test that kills processes of a program at random times.
type killTest struct {
	t         *testing.T
	rng       *rand.Rand
	bin, root string
}

func newKillTest(t *testing.T) *killTest {
	t.Helper()
	seed := rand.Uint64() % 1_000_000
	t.Logf("seed %d", seed)
	return &killTest{t, rand.New(rand.NewPCG(seed, 0)), programAs(t, "alarms"), t.TempDir()}
}

// dir returns a folder of the test.
func (k *killTest) dir(name string) string { return filepath.Join(k.root, name) }

// TestServeLosesNothingToSIGKILL kills a server among its callers, under chaos. Each next server has every
// acknowledged increment, and at most the unacknowledged ones in addition; and it delivers the alarm that was
// set just before the kill, without a request.
func TestServeLosesNothingToSIGKILL(t *testing.T) {
	t.Parallel()
	k := newKillTest(t)
	rng, bin, data := k.rng, k.bin, k.dir("data")
	book := newAckRecord(t)
	late, due := 0, 0 // alarms that the killed processes have left, and the last of them
	for round := range killRounds {
		v := startProcess(t, bin, data, "--chaos-evict", "0.02", "--chaos-seed", fmt.Sprint(1+rng.IntN(1_000_000)),
			"--chaos-mode", []string{"fence", "restart", "crash"}[rng.IntN(3)])
		if due > 0 {
			v.waitAlarm(alarmName(round - 1))
		}
		book.reconcile(v)
		v.killUnderLoad(book, alarmName(round), 20+rng.IntN(150))
		due = wantConsistent(t, bin, data)
		late += due
	}
	v := startProcess(t, bin, data)
	if due > 0 {
		v.waitAlarm(alarmName(killRounds - 1))
	}
	book.reconcile(v)
	for round := range killRounds {
		if n, tries := v.total(alarmName(round)), book.set[alarmName(round)]; n < 1 || n > tries {
			t.Errorf("%s was delivered %d times, and was set %d times", alarmName(round), n, tries)
		}
	}
	if late == 0 {
		t.Error("every alarm was delivered before its kill")
	}
	t.Logf("%d of %d alarms were delivered after the kill", late, killRounds)
}

func alarmName(round int) string { return fmt.Sprintf("bell-%d", round) }

var noProblems = regexp.MustCompile(` (\d+) alarms, \d+ bytes, 0 problems\n`)

// wantConsistent runs dohost check, and returns the number of alarms in the store.
func wantConsistent(t *testing.T, bin, data string) (alarms int) {
	t.Helper()
	out, err := exec.Command(bin, "check", data).CombinedOutput()
	m := noProblems.FindSubmatch(out)
	if err != nil || m == nil {
		t.Fatalf("check: %v\n%s", err, out)
	}
	if alarms, err = strconv.Atoi(string(m[1])); err != nil {
		t.Fatal(err)
	}
	return alarms
}

// serverProcess is a server that will be killed.
type serverProcess struct {
	t              *testing.T
	cmd            *exec.Cmd
	client         *http.Client
	objects, admin string

	alarms chan string // the log line of each run of an alarm; closed at the end of the log
	log    strings.Builder
}

func startProcess(t *testing.T, bin, data string, args ...string) *serverProcess {
	t.Helper()
	return startProcessWith(t, nil, bin, data, args...)
}

func startProcessWith(t *testing.T, env []string, bin, data string, args ...string) *serverProcess {
	t.Helper()
	v := &serverProcess{
		t: t, alarms: make(chan string, 1000),
		cmd:    exec.Command(bin, append([]string{"serve", "--data", data, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "text:debug"}, args...)...),
		client: &http.Client{Timeout: scriptTimeout, Transport: &http.Transport{}},
	}
	v.cmd.Env = append(os.Environ(), env...)
	t.Cleanup(v.client.CloseIdleConnections)
	stdout, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := v.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = v.cmd.Process.Kill() // it has ended, or the test has
		_ = v.cmd.Wait()
	})
	go v.read(stderr)
	if err := stdout.(*os.File).SetReadDeadline(time.Now().Add(scriptTimeout)); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewScanner(stdout)
	for _, at := range []*string{&v.objects, &v.admin} {
		if !out.Scan() {
			_ = v.cmd.Process.Kill() // so that the wait ends
			t.Fatalf("does not start: %v\n%s", out.Err(), v.logged())
		}
		*at = listens.FindStringSubmatch(out.Text())[2]
	}
	return v
}

// read reads the log to its end.
func (v *serverProcess) read(log io.Reader) {
	defer close(v.alarms)
	for lines := bufio.NewScanner(log); lines.Scan(); {
		v.log.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), `msg="alarm ended"`) {
			v.alarms <- lines.Text()
		}
	}
}

// logged returns the log, after the process has ended.
func (v *serverProcess) logged() string {
	for range v.alarms {
	}
	return v.log.String()
}

// do sends a request and reads the answer into to, unless the status is not 200.
func (v *serverProcess) do(method, url, body string, to any) (refusal *dohost.ErrorBody, err error) {
	req, err := http.NewRequestWithContext(v.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := v.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		refusal = &dohost.ErrorBody{}
		return refusal, json.NewDecoder(res.Body).Decode(refusal)
	}
	return nil, json.NewDecoder(res.Body).Decode(to)
}

// retry repeats a request that chaos cuts off.
func (v *serverProcess) retry(method, url, body string, to any) (tries int) {
	v.t.Helper()
	for deadline := time.Now().Add(scriptTimeout); ; {
		tries++
		refusal, err := v.do(method, url, body, to)
		switch {
		case err != nil:
			_ = v.cmd.Process.Signal(syscall.SIGQUIT) // the log then ends with its stacks
			v.t.Fatalf("%s %s: %v\n%s", method, url, err, v.logged())
		case refusal == nil:
			return tries
		case !refusal.Retryable && refusal.Code != "fenced" || time.Now().After(deadline):
			v.t.Fatalf("%s %s: %v", method, url, refusal)
		}
	}
}

func (v *serverProcess) add(name string) string {
	return v.objects + "/objects/counter/" + name + "/add"
}

func (v *serverProcess) total(name string) (n int) {
	v.t.Helper()
	v.retry("POST", v.add(name), "0", &n)
	return n
}

// waitAlarm waits until this process has delivered an alarm, without a request to its object.
func (v *serverProcess) waitAlarm(name string) {
	v.t.Helper()
	for deadline := time.After(scriptTimeout); ; {
		select {
		case run, open := <-v.alarms:
			if !open {
				v.t.Fatalf("has ended:\n%s", v.log.String())
			}
			// Chaos may have cut the run off after or before its commit.
			if strings.Contains(run, " object=counter/"+name+" ") && (!strings.Contains(run, " err=") || v.total(name) > 0) {
				return
			}
		case <-deadline:
			_ = v.cmd.Process.Kill() // for the end of its log
			v.t.Fatalf("the alarm of %s does not come:\n%s", name, v.logged())
		}
	}
}

// killUnderLoad lets clients add until acks increments have been acknowledged, sets an alarm, and kills the
// server under this load.
func (v *serverProcess) killUnderLoad(book *ackRecord, name string, acks int) {
	v.t.Helper()
	enough, stopped := book.enough(acks), make(chan struct{})
	var clients sync.WaitGroup
	for i := range killClients {
		clients.Go(func() {
			for n := i; book.add(v, fmt.Sprint(n%killObjects)); n++ {
			}
		})
	}
	go func() {
		defer close(stopped)
		clients.Wait()
	}()
	select {
	case <-enough:
	case <-stopped:
		v.t.Fatalf("no client is left:\n%s", v.logged())
	}
	at, err := json.Marshal(time.Now().Add(alarmDelay))
	if err != nil {
		v.t.Fatal(err)
	}
	var set adminapi.Alarm
	book.set[name] = v.retry("PUT", v.admin+"/v1/objects/counter/"+name+"/alarm", `{"at":`+string(at)+`}`, &set)
	if err := v.cmd.Process.Kill(); err != nil {
		v.t.Fatal(err)
	}
	<-stopped
	log := v.logged()
	exit, ok := errors.AsType[*exec.ExitError](v.cmd.Wait())
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		v.t.Fatalf("ended by itself: %v\n%s", exit, log)
	}
}

// ackRecord records the answers that the clients of counters got.
type ackRecord struct {
	t   *testing.T
	set map[string]int // how often each alarm was set

	mu      sync.Mutex     // guards the rest
	acked   map[string]int // increments that were acknowledged
	unknown map[string]int // increments without an answer
	answers map[string]bool
	left    int // acknowledgements until done is closed
	done    chan struct{}
}

func newAckRecord(t *testing.T) *ackRecord {
	return &ackRecord{t: t, set: map[string]int{}, acked: map[string]int{}, unknown: map[string]int{}, answers: map[string]bool{}}
}

// enough returns a channel that is closed when acks more increments have been acknowledged.
func (l *ackRecord) enough(acks int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.done = acks, make(chan struct{})
	return l.done
}

// add adds 1 and reports whether the server answers.
func (l *ackRecord) add(v *serverProcess, name string) bool {
	var n int
	refusal, err := v.do("POST", v.add(name), "1", &n)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.unknown[name]++
		return false
	case refusal == nil:
		l.acked[name]++
		if answer := fmt.Sprintf("%s is %d", name, n); l.answers[answer] {
			l.t.Errorf("two increments were told that %s", answer)
		} else {
			l.answers[answer] = true
		}
		if l.left--; l.left == 0 {
			close(l.done)
		}
	case refusal.Ran != "no":
		l.unknown[name]++
	}
	return true
}

// reconcile compares the test's counts with the server's, and adopts the server's.
func (l *ackRecord) reconcile(v *serverProcess) {
	l.t.Helper()
	for i := range killObjects {
		name := fmt.Sprint(i)
		n := v.total(name)
		if n < l.acked[name] || n > l.acked[name]+l.unknown[name] {
			l.t.Errorf("counter %s is %d, want %d, or up to %d more", name, n, l.acked[name], l.unknown[name])
		}
		l.acked[name], l.unknown[name] = n, 0
	}
}
