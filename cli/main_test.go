package cli

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(taskCommand) != "" { // a command of TestWorkCommand
		os.Exit(runTaskCommand())
	}
	goleak.VerifyTestMain(m)
}
