//go:build unix

package cli

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// inGroup starts a command in a process group of its own.
func inGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

// terminate asks a process to end.
func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// terminateGroup asks the processes of the group of a process to end. The process must not have been waited for.
func terminateGroup(p *os.Process) error {
	err := syscall.Kill(-p.Pid, syscall.SIGTERM)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// killGroup kills the remaining processes of a group. It ignores 0, which is no group, and 1.
func killGroup(id int) {
	if id > 1 { // kill(-0) and kill(-1) would kill other processes
		_ = syscall.Kill(-id, syscall.SIGKILL) // none remains
	}
}

// groupFile has the process group of the command of a daemon's worker, 0 if it has none. A worker that was killed cannot kill that group: its
// daemon does. The file has no name, and the worker inherits it; a command does not.
type groupFile struct{ *os.File }

// groupEnv is the variable of a worker's environment that has the number of the file.
const groupEnv = "DOHOST_GROUP_FILE"

// newGroupFile returns a file for a worker of this process.
func newGroupFile() (*groupFile, error) {
	f, err := os.CreateTemp("", "dohost-group-*")
	if err != nil {
		return nil, err
	}
	return &groupFile{f}, os.Remove(f.Name())
}

// inherit makes a command inherit the file.
func (g *groupFile) inherit(cmd *exec.Cmd) {
	cmd.ExtraFiles = []*os.File{g.File}
	cmd.Env = append(cmd.Env, groupEnv+"=3") // the first of ExtraFiles
}

// inheritedGroupFile returns the file of this worker. Without a daemon there is none, and set does nothing.
func inheritedGroupFile() *groupFile {
	if os.Getenv(groupEnv) != "3" {
		return &groupFile{}
	}
	_ = os.Unsetenv(groupEnv) // a command has no such file
	syscall.CloseOnExec(3)
	return &groupFile{os.NewFile(3, "group")}
}

// set writes the group. An error would concern a temporary file of 8 bytes: the group then remains if the worker is killed.
func (g *groupFile) set(id int) {
	if g.File != nil {
		_, _ = g.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(id)), 0)
	}
}

// get reads the group.
func (g *groupFile) get() int {
	var b [8]byte
	_, _ = g.ReadAt(b[:], 0) // a worker without a command yet has written nothing
	return int(binary.LittleEndian.Uint64(b[:]))
}
