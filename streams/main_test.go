package streams

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// full makes TestStreamAtEveryPoint end streams at all places, and at more pairs of points.
var full = flag.Bool("full", false, "end streams at all places and at more pairs of points")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
