package cli

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/pool"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(taskCommand) == "":
	case os.Getenv(holdEnv) != "":
		hold(os.Getenv(holdEnv))
		os.Exit(0)
	case len(os.Args) > 1: // dohost in a process of its own
		App{Classes: []dohost.Class{pool.Class(quickPool)}}.Main()
	default: // the command of a worker
		os.Exit(runTaskCommand())
	}
	goleak.VerifyTestMain(m)
}
