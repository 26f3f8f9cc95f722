//go:build e2e

package e2e

import (
	"os/exec"
	"strings"
	"testing"
)

// casesOfModel is how many cases js/model.mjs has: 16, and 5,000 texts that grow.
const casesOfModel = "5016"

// TestPageModel has Node try what the page makes of frames and texts, without a browser.
func TestPageModel(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), tool(t, "node"), "js/model.mjs").CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != casesOfModel {
		t.Errorf("%v: %s cases, want %s", err, got, casesOfModel)
	}
}
