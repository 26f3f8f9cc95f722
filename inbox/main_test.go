package inbox_test

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // simulations leave much garbage, and little else
	goleak.VerifyTestMain(m)
}
