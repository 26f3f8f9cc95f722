package docs_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"regexp"
	"testing"

	"github.com/dohost/dohost/docs"
)

// The table of client versions in recovery.md has the versions that the browser tests install.
func TestRecoveryTableMatchesClientVersions(t *testing.T) {
	raw, err := os.ReadFile("../e2e/package.json")
	if err != nil {
		t.Fatal(err)
	}
	var installed struct{ Dependencies map[string]string }
	if err := json.Unmarshal(raw, &installed); err != nil {
		t.Fatal(err)
	}
	page, err := fs.ReadFile(docs.Files, "recovery.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (0\.\d+)\.\d+ \|.*$`).FindAllSubmatch(page, -1)
	if len(rows) != 2 {
		t.Fatalf("recovery.md has %d rows of client versions, want 2", len(rows))
	}
	for _, row := range rows {
		checkVersions(t, string(row[1]), string(row[0]), installed.Dependencies)
	}
}

func checkVersions(t *testing.T, generation, row string, installed map[string]string) {
	t.Helper()
	want := "|"
	for _, name := range []string{"agents", "ai-chat", "ai", "ai-react"} {
		version := regexp.MustCompile(`[^@]*$`).FindString(installed[name+"-"+generation])
		want += " " + version + " |"
	}
	if row != want {
		t.Errorf("recovery.md has %q, package.json %q", row, want)
	}
}
