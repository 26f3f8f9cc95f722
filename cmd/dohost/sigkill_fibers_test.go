//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/internal/invariants"
)

// testProgram returns a program that behaves like the command, with the classes of the tests.
func testProgram(t *testing.T) string { return programAs(t, "lab") }

// dohostProgram returns the command itself.
func dohostProgram(t *testing.T) string { return programAs(t, "dohost") }

// programAs returns this executable under a name that selects another program.
func programAs(t *testing.T, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), name)
	// A hard link, since the demo starts its own executable again: a symbolic link would be resolved.
	if err := os.Link(self, program); err != nil {
		t.Fatal(err)
	}
	return program
}

// fiberTest is an agent that is tested over several processes.
type fiberTest struct {
	t        *testing.T
	bin      string
	data     string
	file     string // the record of its fibers' effects
	v        *serverProcess
	ws       *websocket.Conn
	reported map[string]int // the last checkpoint that a client has received, by fiber
}

func newFiberTest(t *testing.T) *fiberTest {
	t.Helper()
	dir := t.TempDir()
	p := &fiberTest{t: t, bin: testProgram(t), data: filepath.Join(dir, "data"), file: filepath.Join(dir, "file"), reported: map[string]int{}}
	p.startProcess()
	return p
}

// startProcess starts a process, without a request.
func (p *fiberTest) startProcess() {
	p.t.Helper()
	p.v = startProcessWith(p.t, []string{"PROBE_FILE=" + p.file}, p.bin, p.data)
}

// connect connects to the agent and so wakes it.
func (p *fiberTest) connect() {
	p.t.Helper()
	p.connectTo("a")
}

// connectTo connects to the agent at a path below the class, and wakes those on the way.
func (p *fiberTest) connectTo(path string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), scriptTimeout)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, strings.Replace(p.v.objects, "http", "ws", 1)+"/agents/probe/"+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = ws.CloseNow() })
	p.ws = ws
}

// next reads a frame; ok is false at the end of the connection.
func (p *fiberTest) next() (frame []byte, ok bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), scriptTimeout)
	defer cancel()
	_, data, err := p.ws.Read(ctx)
	if ctx.Err() != nil {
		p.t.Fatal("no frame comes")
	}
	var at stepsCheckpoint
	if err == nil && json.Unmarshal(data, &at) == nil {
		p.reported[at.Request.Name] = max(p.reported[at.Request.Name], at.Done)
	}
	return data, err == nil
}

// ask sends a call over the wire.
func (p *fiberTest) ask(method string, arg any) {
	p.t.Helper()
	frame, err := json.Marshal(map[string]any{"type": "rpc", "id": "1", "method": method, "args": []any{arg}})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.ws.Write(p.t.Context(), websocket.MessageText, frame); err != nil {
		p.t.Fatal(err)
	}
}

// call calls a method over the wire.
func (p *fiberTest) call(method string, arg, to any) {
	p.t.Helper()
	p.ask(method, arg)
	for {
		data, ok := p.next()
		var a struct {
			Type    string
			Success bool
			Error   string
			Result  json.RawMessage
		}
		if !ok {
			p.t.Fatalf("no answer to %s", method)
		}
		if json.Unmarshal(data, &a) != nil || a.Type != "rpc" {
			continue
		}
		if !a.Success {
			p.t.Fatalf("%s: %s", method, a.Error)
		}
		if to != nil && json.Unmarshal(a.Result, to) != nil {
			p.t.Fatalf("%s: %s", method, a.Result)
		}
		return
	}
}

// waitCheckpoint reads frames until a fiber has reported a checkpoint after at least steps steps.
func (p *fiberTest) waitCheckpoint(name string, steps int) {
	p.t.Helper()
	for p.reported[name] < steps {
		if _, ok := p.next(); !ok {
			p.t.Fatalf("%s never came to step %d", name, steps)
		}
	}
}

// kill ends the process, and reads its remaining frames.
func (p *fiberTest) kill() {
	p.t.Helper()
	if err := p.v.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	if p.ws != nil {
		for _, ok := p.next(); ok; {
			_, ok = p.next()
		}
		p.ws = nil
	}
	log := p.v.logged()
	exit, ok := errors.AsType[*exec.ExitError](p.v.cmd.Wait())
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		p.t.Fatalf("ended by itself: %v\n%s", exit, log)
	}
	wantConsistent(p.t, p.bin, p.data)
}

// release lets the work that waits in released continue, in this process and the next ones.
func (p *fiberTest) release() {
	p.t.Helper()
	if err := os.WriteFile(p.file+".go", nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// lines counts the lines of the file that begin with a prefix.
func (p *fiberTest) lines(prefix string) map[string]int {
	p.t.Helper()
	text, err := os.ReadFile(p.file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Fatal(err)
	}
	n := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, prefix) {
			n[strings.TrimSpace(line)]++
		}
	}
	return n
}

// waitLine waits until the file has a line a number of times, without a request to the agent.
func (p *fiberTest) waitLine(line string, times int) {
	p.t.Helper()
	for deadline := time.Now().Add(scriptTimeout); p.lines(line)[line] < times; {
		if time.Now().After(deadline) {
			_ = p.v.cmd.Process.Kill() // for the end of its log
			p.t.Fatalf("%q does not happen %d times: %v\n%s", line, times, p.lines(""), p.v.logged())
		}
		select { // the file of another process can only be polled
		case <-time.After(5 * time.Millisecond):
		case <-p.t.Context().Done():
		}
	}
}

// wantOnce expects each line once, except for steps without a checkpoint: a kill may repeat these once.
func (p *fiberTest) wantOnce(reported map[string]int) {
	p.t.Helper()
	for line, n := range p.lines("") {
		var name string
		var step int
		k, _ := fmt.Sscanf(line, "step %s %d", &name, &step)
		switch {
		case k < 2 && n != 1: // an end, or a hook
			p.t.Errorf("%q happened %d times", line, n)
		case k == 2 && n > 2, k == 2 && n == 2 && step < reported[name]:
			p.t.Errorf("%q happened %d times, its checkpoint was %d", line, n, reported[name])
		}
	}
}

// TestFibersResumeAfterSIGKILL kills an agent while fibers of every kind run. The next process gets no request,
// or one immediately; in both cases each fiber resumes from its last checkpoint, once.
func TestFibersResumeAfterSIGKILL(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		t.Run(fmt.Sprintf("asked %v", asked), func(t *testing.T) {
			t.Parallel()
			p := newFiberTest(t)
			p.connect()
			for _, name := range []string{"plain", "other"} {
				p.call("run", stepsRequest{name, 5, 30}, nil)
			}
			p.call("start", stepsRequest{"started", 5, 30}, nil)
			p.waitCheckpoint("plain", 3)
			p.waitCheckpoint("other", 1)
			p.waitCheckpoint("started", 1)
			p.kill()
			p.release()
			reported := maps.Clone(p.reported)
			p.startProcess()
			if asked {
				p.connect()
			}
			for _, name := range []string{"plain", "other", "started"} {
				p.waitLine("end "+name, 1)
			}
			p.wantOnce(reported)
			if hooks := p.lines("hook "); len(hooks) != 2 {
				t.Errorf("hooks: %v", hooks)
			}
			if !asked {
				p.connect()
			}
			var fibers []agent.FiberInfo
			p.call("fibers", struct{}{}, &fibers)
			if len(fibers) != 1 || fibers[0].Status != agent.FiberCompleted || fibers[0].Attempt != 1 {
				t.Errorf("%+v", fibers)
			}
		})
	}
}

var checkpointRounds = flag.Int("checkpoint-rounds", 0,
	"how often TestCheckpointIsNeverOlderThanBroadcast kills; 0 means 20, and 10 with invariants")

// waitHooks waits until a fiber has had hooks hook calls, and returns the checkpoints of all its calls.
func (p *fiberTest) waitHooks(name string, hooks int) (from []int) {
	p.t.Helper()
	for deadline := time.Now().Add(scriptTimeout); ; {
		text, err := os.ReadFile(p.file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			p.t.Fatal(err)
		}
		from = from[:0]
		for line := range strings.Lines(string(text)) {
			at, ok := strings.CutPrefix(strings.TrimSpace(line), "hook "+name+" ")
			if !ok {
				continue
			}
			done, err := strconv.Atoi(at)
			if err != nil {
				p.t.Fatal(line, err)
			}
			from = append(from, done)
		}
		if len(from) >= hooks {
			return from
		}
		if time.Now().After(deadline) {
			_ = p.v.cmd.Process.Kill() // for the end of its log
			p.t.Fatalf("%s resumed from %v, and not again\n%s", name, from, p.v.logged())
		}
		select {
		case <-time.After(time.Millisecond):
		case <-p.t.Context().Done():
		}
	}
}

// TestCheckpointIsNeverOlderThanBroadcast kills a process repeatedly, at random moments, while its fiber
// saves checkpoints as fast as it can.
func TestCheckpointIsNeverOlderThanBroadcast(t *testing.T) {
	t.Parallel()
	rounds := *checkpointRounds
	if rounds == 0 {
		rounds = 20
		if invariants.Enabled {
			rounds = 10
		}
	}
	seed := rand.Uint64() % 1_000_000
	rng := rand.New(rand.NewPCG(seed, 0))
	p := newFiberTest(t)
	least, hooks := 0, 0
	for round := range rounds {
		p.connect()
		if round == 0 {
			p.call("run", stepsRequest{"long", 1_000_000_000, 0}, nil)
		}
		for range 1 + rng.IntN(40) {
			if _, ok := p.next(); !ok {
				t.Fatalf("round %d: the connection has ended\n%s", round, p.v.logged())
			}
		}
		p.kill()
		least = max(least, p.reported["long"])
		p.startProcess()
		from := p.waitHooks("long", hooks+1)
		if last := from[len(from)-1]; last < least {
			t.Errorf("round %d: it resumed from %d; it had reported or resumed from %d", round, last, least)
		}
		least, hooks = max(least, from[len(from)-1]), len(from)
	}
	t.Logf("%d rounds, seed %d: %d steps", rounds, seed, least)
}

// TestFiberWithFailingHookDiesAcrossProcesses has a hook that always fails and one that is killed during its call: the
// fiber of the first is dead in the end, that of the second resumes, and the agent serves requests all the time.
func TestFiberWithFailingHookDiesAcrossProcesses(t *testing.T) {
	t.Parallel()
	p := newFiberTest(t)
	p.connect()
	p.call("run", stepsRequest{"poison", 2, 0}, nil)
	p.call("run", stepsRequest{"slow", 2, 0}, nil)
	p.waitCheckpoint("poison", 1)
	p.waitCheckpoint("slow", 1)
	p.kill()
	for n := 1; n <= 2; n++ {
		p.startProcess()
		p.waitLine("hook slow 1", n) // in the middle of it
		p.kill()
	}
	p.release()
	p.startProcess()
	p.waitLine("end slow", 1)
	p.waitLine("hook poison 1", 5)
	p.connect()
	var dead []agent.FiberInfo
	for deadline := time.Now().Add(scriptTimeout); len(dead) == 0 && time.Now().Before(deadline); {
		p.call("dead", struct{}{}, &dead)
	}
	if len(dead) != 1 || dead[0].Name != "poison" || dead[0].Error != "it is poison" || p.lines("hook poison 1")["hook poison 1"] != 5 {
		t.Errorf("dead %+v, %v", dead, p.lines("hook "))
	}
	if n := p.lines("end slow")["end slow"]; n != 1 {
		t.Errorf("slow has ended %d times", n)
	}
}

// TestRecoveryHookHangingIsAbandonedAfterTenSeconds has a recovery hook that does not return in the constructor. After
// 10 s, the duration of this test, the agent serves requests, and the hook is called again.
func TestRecoveryHookHangingIsAbandonedAfterTenSeconds(t *testing.T) {
	t.Parallel()
	p := newFiberTest(t)
	p.connect()
	p.call("run", stepsRequest{"stuck", 2, 0}, nil)
	p.waitCheckpoint("stuck", 1)
	p.kill()
	p.release()
	p.startProcess()
	p.connect()
	const left = "left stuck: context deadline exceeded"
	if p.lines(left)[left] != 1 {
		t.Errorf("connected, and the hook was not given up before: %v", p.lines(""))
	}
	p.call("fibers", struct{}{}, nil)
	p.waitLine("hook stuck 1", 2)
	p.waitLine("end stuck", 1)
	if n := p.lines("hook ")["hook stuck 1"]; n != 2 {
		t.Errorf("the hook was called %d times", n)
	}
}

// TestFiberWithoutProgressFailsAfterFourKills kills four processes, each after the fibers of "stalled" and
// "walking" have run in it. The fifth process fails the one that never saves a checkpoint, and resumes the other.
func TestFiberWithoutProgressFailsAfterFourKills(t *testing.T) {
	t.Parallel()
	p := newFiberTest(t)
	p.connect()
	p.call("start", stepsRequest{"stalled", 0, 0}, nil)
	p.call("start", stepsRequest{"walking", 1000, 3_600_000}, nil)
	for n := range 4 {
		p.waitLine(fmt.Sprintf("stalled %d", n), 1)
		p.waitLine(fmt.Sprintf("step walking %d", n), 1)
		p.call("fibers", struct{}{}, nil) // answered after the checkpoint is durable
		p.kill()
		p.startProcess()
		p.connect()
	}
	p.waitLine("step walking 4", 1)
	var fibers []agent.FiberInfo
	p.call("fibers", struct{}{}, &fibers)
	statuses := map[string]string{}
	for _, f := range fibers {
		statuses[f.Key] = string(f.Status) + " " + f.Error
	}
	want := map[string]string{"stalled": "failed max retries exceeded", "walking": "running "}
	if !maps.Equal(statuses, want) {
		t.Errorf("fibers %v, want %v", statuses, want)
	}
}
