//go:build !linux

package cli

import "os/exec"

// endWithProcess does nothing: a command remains when this process is killed.
func endWithProcess(*exec.Cmd) {}
