package cli

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/pool"
)

// poolOptions is the variable that names the options of the pools of a process of dohost.
const poolOptions = "DOHOST_TEST_POOL"

var poolsOfTests = map[string]*pool.Options{"": quickPool, "steady": steadyPool}

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(taskCommand) == "":
	case os.Getenv(holdEnv) != "":
		hold(os.Getenv(holdEnv))
		os.Exit(0)
	case len(os.Args) > 1: // dohost in a process of its own
		App{Classes: []dohost.Class{pool.Class(poolsOfTests[os.Getenv(poolOptions)])}}.Main()
	default: // the command of a worker
		os.Exit(runTaskCommand())
	}
	goleak.VerifyTestMain(m)
}
