package ledgertest_test

import (
	"flag"
	"testing"
)

// passes runs a test, and reports whether it passes. The test writes no progress to the output of the example, with -v
// either.
func passes(name string, f func(*testing.T)) bool {
	verbose := flag.Lookup("test.v").Value
	defer verbose.Set(verbose.String())
	verbose.Set("false")
	all := func(_, _ string) (bool, error) { return true, nil }
	return testing.RunTests(all, []testing.InternalTest{{Name: name, F: f}})
}
