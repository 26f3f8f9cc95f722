package dohost_test

import (
	"os"
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"

	"github.com/dohost/dohost/internal/crowd"
)

func TestMain(m *testing.M) {
	if status, is := crowd.Child(); is {
		os.Exit(status)
	}
	debug.SetGCPercent(400) // simulations leave much garbage, and little else
	goleak.VerifyTestMain(m)
}
