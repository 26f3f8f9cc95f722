package dohost_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The README's object is the one in examples/counter, to the letter.
func TestReadmeQuotesTheCounterExample(t *testing.T) {
	readme := read(t, "README.md")
	source := read(t, "examples/counter/counter.go")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readme, -1)
	if len(blocks) < 2 {
		t.Fatalf("the README has %d blocks of Go, want at least 2", len(blocks))
	}
	pieces := 0
	for piece := range strings.SplitSeq(strings.TrimSpace(blocks[0][1]), "\n\n") {
		pieces++
		if !strings.Contains(source, piece) {
			t.Errorf("examples/counter does not have:\n%s", piece)
		}
	}
	if pieces < 4 {
		t.Errorf("the README shows %d pieces of the counter, want 4", pieces)
	}
	if entry := `dohost.Expose("add", (*Counter).Add)`; !strings.Contains(blocks[1][1], entry) || !strings.Contains(source, entry) {
		t.Errorf("the README and examples/counter do not both bind with %s", entry)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
