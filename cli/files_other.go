//go:build !unix

package cli

// maxFiles is the number of files that the process may open.
func maxFiles() uint64 { return 2 * maxConns }
