//go:build !unix

package cli

// maxFiles is how many files the process may open.
func maxFiles() uint64 { return 2 * mostConns }
