package dohosttest_test

import "testing"

// The example of the package is a test that passes.
func TestEveryPointOfTheExample(t *testing.T) { payOnce(t) }
