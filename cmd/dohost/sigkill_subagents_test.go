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
	"github.com/dohost/dohost/web"
)

// objects lists the existing objects, or those in memory, and wakes none.
func (p *patient) objects(query string) (names []string) {
	p.t.Helper()
	var list web.ObjectList
	p.v.insist("GET", p.v.admin+"/v1/objects?class=probe&"+query, "", &list)
	for _, o := range list.Objects {
		names = append(names, strings.TrimPrefix(o.ID, "probe/"))
	}
	return names
}

// comesTo waits until exactly these objects exist.
func (p *patient) comesTo(want ...string) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); ; {
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
	p := admit(t)
	p.reach("a/sub/probe/c")
	p.call("start", walk{"childs", 10, 50}, nil)
	p.call("schedule", walk{"schedule", 10, 50}, nil)
	p.reach("a/sub/probe/c/sub/probe/g")
	p.call("start", walk{"grandchilds", 10, 50}, nil)
	p.call("run", walk{"plain", 10, 50}, nil)
	p.happens("step schedule 1", 1)
	p.happens("step childs 1", 1)
	p.stashed("grandchilds", 1)
	p.stashed("plain", 2)
	p.kill()
	p.release()
	told := maps.Clone(p.told)
	p.begin()
	for _, name := range []string{"childs", "schedule", "grandchilds", "plain"} {
		p.happens("end "+name, 1)
	}
	p.wantOnce(told)
	if p.lines("step schedule 0")["step schedule 0"] != 2 {
		t.Error("the schedule was not cut off, or not begun anew")
	}
	if live := p.objects("live=true"); !slices.Equal(live, []string{child, grandchild}) {
		t.Errorf("in memory: %q", live)
	}
	for _, path := range []string{"a/sub/probe/c", "a/sub/probe/c/sub/probe/g"} {
		p.reach(path)
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

// admitFamily returns an agent with children and grandchildren that all have a fiber. One of the grandchildren
// holds its turn, so that the destruction stops there in this process.
func admitFamily(t *testing.T) *patient {
	t.Helper()
	p := admit(t)
	for _, path := range []string{
		"a", "a/sub/probe/c1", "a/sub/probe/c1/sub/probe/g", "a/sub/probe/c2", "a/sub/probe/c2/sub/probe/g",
		"a/sub/probe/c3", "a/sub/probe/c3/sub/probe/g", "a/sub/probe/c2/sub/probe/h",
	} {
		p.reach(path)
		p.call("start", walk{strings.ReplaceAll(path, "/", "-"), 1_000_000, 1000}, nil)
	}
	p.ask("hold", struct{}{})
	p.happens("hold", 1)
	p.comesTo("a", c1, c2, c3, c1g, c2g, c2h, c3g)
	p.reach("a")
	return p
}

// wantNothing expects the store to be empty, after the process is killed.
func (p *patient) wantNothing() {
	p.t.Helper()
	p.comesTo()
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
	p := admitFamily(t)
	p.ask("destroy", struct{}{})
	p.comesTo("a", c2, c3, c2h, c3g)
	p.kill()
	p.begin()
	p.wantNothing()
}

// TestSubAgentDeletionResumesAfterSIGKILL does the same with a deleted child. Its destruction continues by
// itself; its parent lists it until the deletion is repeated.
func TestSubAgentDeletionResumesAfterSIGKILL(t *testing.T) {
	t.Parallel()
	p := admitFamily(t)
	p.ask("drop", "c2")
	p.comesTo("a", c1, c2, c3, c1g, c2h, c3g)
	p.kill()
	p.begin()
	p.comesTo("a", c1, c3, c1g, c3g)
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
	p.comesTo("a", c1, c3, c1g, c3g)
	p.ask("destroy", struct{}{})
	p.wantNothing()
}
