package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestResultsMarkdownMatchesJSON ensures that results.md is not edited by hand.
func TestResultsMarkdownMatchesJSON(t *testing.T) {
	r, err := load("results.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("results.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := r.markdown()
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != want {
		t.Error("results.md is not what results.json says: make both by go run ./bench -out bench")
	}
}

// figures matches the figures of speed and memory in the documents.
var figures = regexp.MustCompile(`\d[\d,.]*\d? (?:ns|µs|ms|B|calls/s|alarms/s|%)|\b\d\.\d\d\b`)

// TestDocsFiguresAreInTheResults finds each of them in results.md.
func TestDocsFiguresAreInTheResults(t *testing.T) {
	results, err := os.ReadFile("results.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for path, section := range map[string]string{
		"../docs/performance.md": "# Performance",
		"../docs/operations.md":  "## Size it",
		"../README.md":           "## How fast it is",
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, after, ok := strings.Cut(string(text), section+"\n")
		if !ok {
			t.Errorf("%s has no %q", path, section)
		}
		if strings.HasPrefix(section, "## ") {
			after, _, _ = strings.Cut(after, "\n## ")
		}
		for _, figure := range figures.FindAllString(after, -1) {
			found++
			if !strings.Contains(string(results), figure) {
				t.Errorf("%s says %q, which is not in results.md", path, figure)
			}
		}
	}
	if found < 40 {
		t.Errorf("%d figures found in the documents", found)
	}
}
