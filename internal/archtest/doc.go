// Package archtest holds the project's own rules as a test: who may import
// whom, which modules we depend on, how long a file may grow, where goroutines
// start. It reads the source of the whole repository and runs nothing of it.
//
// A rule that is wrong is changed here, in a commit that says why. Each rule has
// planted violations in planted_test.go, so that it has been seen to fail.
package archtest
