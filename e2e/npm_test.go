//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// generations are the clients under test, as package.json names them.
var generations = map[string]string{"0.21": "0.21.0", "0.32": "0.32.0"}

// tool finds a program that the tests need.
func tool(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatalf("there is no %s: apt-get install nodejs npm chromium", strings.Join(names, " or "))
	return ""
}

// install installs the packages of package.json with npm, unless they are there.
func install(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("package.json")
	if err != nil {
		t.Fatal(err)
	}
	var want struct{ Dependencies map[string]string }
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	for name, g := range generations {
		if got := want.Dependencies["agents-"+name]; got != "npm:agents@"+g {
			t.Errorf("agents-%s is %q in package.json, want %s", name, got, g)
		}
	}
	missing := false
	for name, version := range want.Dependencies {
		version = version[strings.LastIndex(version, "@")+1:]
		missing = missing || installed(name) != version
	}
	if !missing {
		return
	}
	cmd := exec.CommandContext(t.Context(), tool(t, "npm"), "install", "--legacy-peer-deps", "--ignore-scripts",
		"--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm install: %v\n%s", err, out)
	}
}

// installed is the version of an installed package, or empty.
func installed(name string) string {
	var is struct{ Version string }
	if text, err := os.ReadFile(filepath.Join("node_modules", name, "package.json")); err == nil {
		_ = json.Unmarshal(text, &is) // an unreadable package is installed again
	}
	return is.Version
}

// bundle makes a page for a generation of clients, in a folder of its own.
func bundle(t *testing.T, page, generation string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join("node_modules", ".bin", "esbuild"), "js/"+page+".jsx", "--bundle",
		"--format=esm", "--jsx=automatic", "--log-level=error", "--alias:agents=agents-"+generation,
		"--alias:@cloudflare/ai-chat=ai-chat-"+generation, "--alias:ai=ai-"+generation, "--alias:@ai-sdk/react=ai-react-"+generation,
		`--define:process.env.NODE_ENV="production"`, "--outfile="+filepath.Join(folder, "page.js"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("esbuild: %v\n%s", err, out)
	}
	html, err := os.ReadFile("js/page.html")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "index.html"), html, 0o644); err != nil {
		t.Fatal(err)
	}
	return folder
}
