package randtest_test

import (
	"testing"

	"github.com/dohost/dohost/internal/randtest"
)

func TestShrunkSourcesCompile(t *testing.T) {
	randtest.CheckSourcesCompile(t, "agent", "ask", "chat", "prog")
}
