package dohost_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/dohost/dohost/internal/crowd"
)

func TestMain(m *testing.M) {
	if status, is := crowd.Child(); is {
		os.Exit(status)
	}
	goleak.VerifyTestMain(m)
}
