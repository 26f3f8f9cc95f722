//go:build !unix

package cli

// maxFiles is the assumed number of files that the process may open: the system has no limit to read.
func maxFiles() uint64 { return 2 * maxConns }
