package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dohost/dohost/docs"
)

var (
	goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```")
	gap     = regexp.MustCompile(`(?m)^\s*\.\.\.\n`)
	space   = regexp.MustCompile(`\s+`)
)

// TestCodeBlocksOccurInTestedFiles compares the Go code of two pages with the sources, apart from white space. A line "..." in a block stands
// for code that is left out.
func TestCodeBlocksOccurInTestedFiles(t *testing.T) {
	var sources strings.Builder
	for _, dir := range []string{"agent", "inbox", "chat", "examples"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" {
				return err
			}
			text, err := os.ReadFile(path)
			sources.WriteString(space.ReplaceAllString(string(text), " "))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, page := range []string{"inbox.md", "delegation.md"} {
		text, err := fs.ReadFile(docs.Files, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range goBlock.FindAllStringSubmatch(string(text), -1) {
			for _, piece := range gap.Split(block[1], -1) {
				n++
				if !strings.Contains(sources.String(), strings.TrimSpace(space.ReplaceAllString(piece, " "))) {
					t.Errorf("%s has code that no file of agent, inbox, chat and examples has:\n%s", page, piece)
				}
			}
		}
	}
	if n < 5 {
		t.Errorf("%d pieces of code in two pages", n)
	}
}

// TestHelpdeskAgentsAreShort counts the lines of the agents that inbox.md describes as shorter than 60 lines.
func TestHelpdeskAgentsAreShort(t *testing.T) {
	for _, file := range []string{"clerk.go", "triage.go"} {
		text, err := os.ReadFile(filepath.Join("..", "examples", "helpdesk", file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); n >= 60 {
			t.Errorf("%s has %d lines", file, n)
		}
	}
}
