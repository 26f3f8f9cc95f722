package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The kinds of errors are a promise of compatibility, so a new one is a decision: the table of decision 16, its text and the glossary
// name as many as package dohost exports.
func TestErrorKinds(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	find := func(text, pattern string) (names []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		slices.Sort(names)
		return names
	}
	decision := read("docs/decisions/0016-ten-kinds-of-errors.md")
	files, err := filepath.Glob("../../*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var exported []string
	for _, file := range files {
		if name := filepath.Base(file); !strings.HasSuffix(name, "_test.go") {
			exported = append(exported, find(read(name), `(?m)^(?:var |\t)(Err\w+)\b.*=`)...)
		}
	}
	slices.Sort(exported)
	decided := find(decision, "(?m)^\\| `(Err\\w+)` \\|")
	if len(exported) != 10 || !slices.Equal(exported, decided) {
		t.Errorf("package dohost has %d kinds of errors, %q; decision 16 has %q", len(exported), exported, decided)
	}
	if !strings.Contains(decision, "**Ten kinds.**") || !strings.Contains(read("docs/glossary.md"), "one of the ten errors of package `dohost`") {
		t.Error("decision 16 or the glossary has another number of kinds than ten")
	}
}
