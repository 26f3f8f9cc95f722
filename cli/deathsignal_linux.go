package cli

import (
	"os/exec"
	"syscall"
)

// endWithProcess makes the kernel kill a command when the thread that starts it ends, and so when this process ends. The caller locks its
// goroutine to the thread until it has waited for the command.
func endWithProcess(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
