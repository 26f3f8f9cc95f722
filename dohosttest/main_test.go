package dohosttest

import (
	"runtime/debug"
	"testing"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // simulations leave much garbage, and little else
	m.Run()
}
