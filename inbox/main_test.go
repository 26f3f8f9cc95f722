package inbox_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// full makes TestInboxAtEveryPoint end agents at all places, and at more pairs of points.
var full = flag.Bool("full", false, "end agents at all places and at more pairs of points")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
