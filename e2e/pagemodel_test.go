//go:build e2e

package e2e

import (
	"os/exec"
	"strings"
	"testing"
)

// casesOfModel are the numbers of cases of each file in js: model.mjs has 25, and 5,000 texts that grow.
var casesOfModel = map[string]string{"model.mjs": "5025", "pool.mjs": "14"}

// TestPageModel tests the page's processing of frames and texts, and its tables of pools, in Node, without a browser.
func TestPageModel(t *testing.T) {
	for file, cases := range casesOfModel {
		out, err := exec.CommandContext(t.Context(), tool(t, "node"), "js/"+file).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != cases {
			t.Errorf("%s: %v: %s cases, want %s", file, err, got, cases)
		}
	}
}
