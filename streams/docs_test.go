package streams_test

import (
	"os"
	"strings"
	"testing"
)

// TestDocsContainTheExample compares the code of docs/streams.md with the tested code.
func TestDocsContainTheExample(t *testing.T) {
	code, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(code), "\n// byUser ")
	example, _, ok := strings.Cut(example, "\n\n")
	page, err := os.ReadFile("../docs/streams.md")
	if err != nil {
		t.Fatal(err)
	}
	if !ok || !strings.Contains(string(page), "// byUser "+example+"\n```") {
		t.Error("docs/streams.md does not contain byUser of example_test.go")
	}
}
