package cli

import (
	"os/exec"
	"syscall"
)

// endWithProcess makes the kernel kill a command when this process ends. More exactly, when the thread that starts it ends: the caller locks its
// goroutine to its thread until it has waited for the command.
func endWithProcess(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
