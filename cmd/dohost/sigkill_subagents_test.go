//go:build unix

package main

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/internal/adminapi"
)

// objects lists the existing objects, or those in memory, and wakes none.
func (p *fiberTest) objects(query string) (names []string) {
	p.t.Helper()
	var list adminapi.ObjectList
	p.v.retry("GET", p.v.admin+"/v1/objects?class=probe&"+query, "", &list)
	for _, o := range list.Objects {
		names = append(names, strings.TrimPrefix(o.ID, "probe/"))
	}
	return names
}

// waitObjects waits until exactly these objects exist.
func (p *fiberTest) waitObjects(want ...string) {
	p.t.Helper()
	for deadline := time.Now().Add(scriptTimeout); ; {
		got := p.objects("")
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			_ = p.v.cmd.Process.Kill() // for the end of its log
			p.t.Fatalf("there are %q, want %q\n%s", got, want, p.v.logged())
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-p.t.Context().Done():
		}
	}
}

// TestSubAgentsResumeAfterSIGKILL kills a child and its child while they run fibers and a schedule. In the next
// process each resumes by its own alarm: it gets no request, and the root does not even wake.
func TestSubAgentsResumeAfterSIGKILL(t *testing.T) {
	t.Parallel()
	const child, grandchild = "sub/probe/a/c", "sub/probe/a/probe/c/g"
	p := newFiberTest(t)
	p.connectTo("a/sub/probe/c")
	p.call("start", stepsRequest{"childs", 10, 50}, nil)
	p.call("schedule", stepsRequest{"schedule", 10, 50}, nil)
	p.connectTo("a/sub/probe/c/sub/probe/g")
	p.call("start", stepsRequest{"grandchilds", 10, 50}, nil)
	p.call("run", stepsRequest{"plain", 10, 50}, nil)
	p.waitLine("step schedule 1", 1)
	p.waitLine("step childs 1", 1)
	p.waitCheckpoint("grandchilds", 1)
	p.waitCheckpoint("plain", 2)
	p.kill()
	p.release()
	reported := maps.Clone(p.reported)
	p.startProcess()
	for _, name := range []string{"childs", "schedule", "grandchilds", "plain"} {
		p.waitLine("end "+name, 1)
	}
	p.wantOnce(reported)
	if p.lines("step schedule 0")["step schedule 0"] != 2 {
		t.Error("the schedule was not cut off, or not begun anew")
	}
	if live := p.objects("live=true"); !slices.Equal(live, []string{child, grandchild}) {
		t.Errorf("in memory: %q", live)
	}
	for _, path := range []string{"a/sub/probe/c", "a/sub/probe/c/sub/probe/g"} {
		p.connectTo(path)
		var fibers []agent.FiberInfo
		p.call("fibers", struct{}{}, &fibers)
		if len(fibers) != 1 || fibers[0].Status != agent.FiberCompleted || fibers[0].Attempt != 1 {
			t.Errorf("%s: %+v", path, fibers)
		}
	}
}

// The children of a with their own children, in the order of their destruction.
const (
	c1, c1g      = "sub/probe/a/c1", "sub/probe/a/probe/c1/g"
	c2, c2g, c2h = "sub/probe/a/c2", "sub/probe/a/probe/c2/g", "sub/probe/a/probe/c2/h"
	c3, c3g      = "sub/probe/a/c3", "sub/probe/a/probe/c3/g"
)

// newSubAgentTest returns an agent with children and grandchildren that all have a fiber. One of the grandchildren
// holds its turn, so that the destruction stops there in this process.
func newSubAgentTest(t *testing.T) *fiberTest {
	t.Helper()
	p := newFiberTest(t)
	for _, path := range []string{
		"a", "a/sub/probe/c1", "a/sub/probe/c1/sub/probe/g", "a/sub/probe/c2", "a/sub/probe/c2/sub/probe/g",
		"a/sub/probe/c3", "a/sub/probe/c3/sub/probe/g", "a/sub/probe/c2/sub/probe/h",
	} {
		p.connectTo(path)
		p.call("start", stepsRequest{strings.ReplaceAll(path, "/", "-"), 1_000_000, 1000}, nil)
	}
	p.ask("hold", struct{}{})
	p.waitLine("hold", 1)
	p.waitObjects("a", c1, c2, c3, c1g, c2g, c2h, c3g)
	p.connectTo("a")
	return p
}

// wantNothing expects the store to be empty, after the process is killed.
func (p *fiberTest) wantNothing() {
	p.t.Helper()
	p.waitObjects()
	p.kill()
	out, err := exec.Command(p.bin, "check", p.data).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\n0 objects, 0 rows, 0 alarms, ") {
		p.t.Errorf("check: %v\n%s", err, out)
	}
}

// TestDestroyResumesAfterSIGKILL kills an agent during its destruction, when the first of its children
// and half of the second's are gone. The next process gets no request, and destroys the rest.
func TestDestroyResumesAfterSIGKILL(t *testing.T) {
	t.Parallel()
	p := newSubAgentTest(t)
	p.ask("destroy", struct{}{})
	p.waitObjects("a", c2, c3, c2h, c3g)
	p.kill()
	p.startProcess()
	p.wantNothing()
}

// TestSubAgentDeletionResumesAfterSIGKILL does the same with a deleted child. Its destruction continues by
// itself; its parent lists it until the deletion is repeated.
func TestSubAgentDeletionResumesAfterSIGKILL(t *testing.T) {
	t.Parallel()
	p := newSubAgentTest(t)
	p.ask("drop", "c2")
	p.waitObjects("a", c1, c2, c3, c1g, c2h, c3g)
	p.kill()
	p.startProcess()
	p.waitObjects("a", c1, c3, c1g, c3g)
	p.connect()
	var existed bool
	var subs []agent.SubInfo
	if p.call("subs", struct{}{}, &subs); len(subs) != 3 {
		t.Errorf("%+v", subs)
	}
	if p.call("drop", "c2", &existed); !existed {
		t.Error("was not listed any more")
	}
	p.call("subs", struct{}{}, &subs)
	if len(subs) != 2 || subs[0].Name != "c1" || subs[1].Name != "c3" {
		t.Errorf("%+v", subs)
	}
	p.waitObjects("a", c1, c3, c1g, c3g)
	p.ask("destroy", struct{}{})
	p.wantNothing()
}
