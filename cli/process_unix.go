//go:build unix

package cli

import (
	"os"
	"os/exec"
	"syscall"
)

// inGroup starts a command in a process group of its own.
func inGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// terminate asks a process to end.
func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// killGroup kills the processes of a group that remain.
func killGroup(id int) { _ = syscall.Kill(-id, syscall.SIGKILL) } // none remains
