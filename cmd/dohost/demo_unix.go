//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// inOwnGroup keeps a terminal's Ctrl-C from the child: its parent decides.
func inOwnGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
