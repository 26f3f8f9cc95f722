// Package archtest holds the project's own rules as a test: the allowed imports of each
// package, the modules we depend on, the length of files, the places that start goroutines.
// It reads the source of the whole repository and runs nothing of it.
//
// To change a rule, change it here, in a commit that gives the reason. Each rule has
// planted violations in planted_test.go, so that it has been seen to fail.
package archtest
