package dohost_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tour is docs/testing.md and, by their paths, the files of examples/orders.
func tour(t *testing.T) (page string, files map[string]string) {
	t.Helper()
	files = map[string]string{}
	err := filepath.WalkDir("examples/orders", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files[filepath.ToSlash(path)] = read(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return read(t, "docs/testing.md"), files
}

// The code and output in docs/testing.md are those of examples/orders, verbatim.
func TestTourQuotesTheOrdersExample(t *testing.T) {
	page, files := tour(t)
	shown := map[string]int{}
	for _, block := range regexp.MustCompile("(?s)```(\\w+)\n(.*?)```").FindAllStringSubmatch(page, -1) {
		kind, text := block[1], "\n"+block[2]
		from := ""
		for path, file := range files {
			if filepath.Ext(path) == map[string]string{"go": ".go", "text": ".txt"}[kind] && strings.Contains("\n"+file, text) {
				from = path
			}
		}
		if from == "" {
			t.Errorf("no file of examples/orders has this %s:%s", kind, text)
		}
		shown[kind]++
	}
	if shown["go"] < 10 || shown["text"] < 3 {
		t.Errorf("the page shows %v", shown)
	}
	commands := files["examples/orders/output_test.go"]
	for _, line := range regexp.MustCompile(`(?m)^    (go test .*)$`).FindAllStringSubmatch(page, -1) {
		replay := strings.Contains(files["examples/orders/testdata/replay.txt"], "replay: "+line[1]+"\n")
		if !replay && !strings.Contains(commands, `"`+line[1]+`"`) {
			t.Errorf("TestOutput in examples/orders does not run %s", line[1])
		}
	}
}

// The tests in docs/effects.md are those of the named files, verbatim.
func TestEffectsPageQuotesTests(t *testing.T) {
	page, found := read(t, "docs/effects.md"), 0
	files := read(t, "examples/orders/policy_test.go") + read(t, "chat/chattest/booking_test.go")
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(page, -1) {
		if !strings.Contains(block[1], "func Test") {
			continue
		}
		if found++; !strings.Contains(files, "\n"+block[1]) {
			t.Errorf("no file has this test:\n%s", block[1])
		}
	}
	if found != 2 {
		t.Errorf("the page has %d tests, want 2", found)
	}
}

// The code in docs/delegation.md is that of the example, verbatim.
func TestDelegationPageQuotesExample(t *testing.T) {
	page, example := read(t, "docs/delegation.md"), read(t, "chat/example_agenttool_test.go")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(page, -1)
	for _, block := range blocks {
		if !strings.Contains(example, block[1]) {
			t.Errorf("the example does not have this code:\n%s", block[1])
		}
	}
	if len(blocks) != 1 {
		t.Errorf("the page has %d blocks of code, want 1", len(blocks))
	}
}

// examples/orders is a module of its own: .ci/run runs its tests without the workspace, as a user has none. It uses only
// the public packages.
func TestOrdersExampleUsesPublicPackages(t *testing.T) {
	_, files := tour(t)
	for path, file := range files {
		if filepath.Ext(path) == ".go" && regexp.MustCompile(`pebble|/internal/`).MatchString(file) {
			t.Errorf("%s uses packages that are not public", path)
		}
	}
}
