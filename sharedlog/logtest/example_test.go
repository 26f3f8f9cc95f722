package logtest_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/dohost/dohost/sharedlog"
	"github.com/dohost/dohost/sharedlog/logtest"
)

// conforms is the body of a test: func TestConformance(t *testing.T).
func conforms(t *testing.T) {
	var logs sync.Map // by the names of tests
	logtest.Run(t, logtest.Implementation{Open: func(t *testing.T, again bool) sharedlog.Log {
		if !again {
			logs.Store(t.Name(), &logtest.Log{})
		}
		l, _ := logs.Load(t.Name())
		return l.(sharedlog.Log)
	}})
}

// The tests of an implementation of a log: here of the log in memory, in a program of a client of its own log. In the
// tests of a program conforms is TestConformance; passes runs it as go test does.
func Example() {
	fmt.Println(passes("TestConformance", conforms))
	// Output: true
}
