package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// hostResult matches the declaration of a function or method with a host among its results.
var hostResult = regexp.MustCompile(`(?m)^(?:func .*\)|\t\w+\(.*\)) (?:\*(?:dohost\.)?Host|\([^()]*\*(?:dohost\.)?Host\b[^()]*\))$`)

// An object's code gets no *dohost.Host from the public API: a host can close itself, replace objects, and end incarnations of
// others. Only code outside of objects calls these functions.
func TestAPIGivesNoHost(t *testing.T) {
	files, err := filepath.Glob("testdata/api/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var found []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range hostResult.FindAllString(string(text), -1) {
			found = append(found, filepath.Base(file)+": "+line)
		}
	}
	want := []string{
		"dohost-dohosttest.txt: func (h *Host) Host() *dohost.Host",
		"dohost.txt: func Open(dir string, o *Options, classes ...Class) (*Host, error)",
	}
	if !slices.Equal(found, want) {
		t.Errorf("functions that return a host:\n%q\nwant\n%q", found, want)
	}
}
