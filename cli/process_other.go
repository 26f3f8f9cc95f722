//go:build !unix

package cli

import (
	"os"
	"os/exec"
)

// inGroup does nothing: there are no process groups.
func inGroup(*exec.Cmd) {}

// terminate ends a process: it cannot be asked to.
func terminate(p *os.Process) error { return p.Kill() }

// terminateGroup ends a process.
func terminateGroup(p *os.Process) error { return p.Kill() }

// killGroup does nothing.
func killGroup(int) {}

// groupFile would have the process group of a worker's command.
type groupFile struct{}

func newGroupFile() (*groupFile, error) { return &groupFile{}, nil }
func inheritedGroupFile() *groupFile    { return &groupFile{} }
func (*groupFile) inherit(*exec.Cmd)    {}
func (*groupFile) set(int)              {}
func (*groupFile) get() int             { return 0 }
func (*groupFile) Close() error         { return nil }
