//go:build unix

package cli

import "syscall"

// maxFiles is the number of files that the process may open; maxConns if the limit cannot be read.
func maxFiles() uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return maxConns
	}
	return uint64(l.Cur)
}
