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

// killGroup does nothing.
func killGroup(int) {}
