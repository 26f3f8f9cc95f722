//go:build e2e

package e2e

import (
	"os/exec"
	"strings"
	"testing"
)

// casesOfModel is the number of cases in js/model.mjs: 23, and 5,000 texts that grow.
const casesOfModel = "5023"

// TestPageModel tests the page's processing of frames and texts in Node, without a browser.
func TestPageModel(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), tool(t, "node"), "js/model.mjs").CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != casesOfModel {
		t.Errorf("%v: %s cases, want %s", err, got, casesOfModel)
	}
}
