package archtest

import (
	"fmt"
	"go/ast"
	"go/doc"
	"maps"
	"slices"
	"strings"
)

const engineHasNoExample = "programs use it through the root package"

// noExample are packages without a runnable example, and the reasons.
var noExample = map[string]string{
	"alarm":                engineHasNoExample,
	"eviction":             engineHasNoExample,
	"objectstore":          engineHasNoExample,
	"runtime":              engineHasNoExample,
	"chat/chattest":        "one test of a tool takes seconds, so go test only compiles the example; TestBookingTool runs such a test",
	"cluster/nats/natslog": "its example needs three servers, so go test only compiles it",
	"docs":                 "it has only the pages, as files",
	"web/page":             "it has only the page, as a file",
	"bench/...":            "no program imports it",
	"cmd/...":              "no program imports it",
	"e2e/...":              "no program imports it",
	"tools/...":            "no program imports it",
	"examples/...":         "it is an example",
}

// runnableExamples requires an example of each package that programs import: func Example, with an output that go test
// compares, in an external test package, as a program would have it.
func runnableExamples(t *tree) (found []string) {
	packages := t.packages()
	for _, dir := range t.sortedPackages() {
		if slices.Contains(strings.Split(dir, "/"), "internal") || !isImportable(packages[dir]) {
			continue
		}
		excepted := slices.ContainsFunc(slices.Collect(maps.Keys(noExample)), func(p string) bool { return matches(p, dir) })
		runs := hasRunnableExample(packages[dir])
		switch {
		case !excepted && !runs:
			found = append(found, fmt.Sprintf("%s: no func Example with an output in an external test package", dir))
		case noExample[dir] != "" && runs:
			found = append(found, fmt.Sprintf("%s: excepted from the packages with a runnable example, but it has one", dir))
		}
	}
	return found
}

// isImportable reports whether a folder has a package that is not a program.
func isImportable(files []*file) bool {
	return slices.ContainsFunc(files, func(f *file) bool { return !f.test && f.syntax.Name.Name != "main" })
}

func hasRunnableExample(files []*file) bool {
	var tests []*ast.File
	for _, f := range files {
		if f.test && strings.HasSuffix(f.syntax.Name.Name, "_test") {
			tests = append(tests, f.syntax)
		}
	}
	return slices.ContainsFunc(doc.Examples(tests...), func(e *doc.Example) bool {
		return e.Name == "" && (e.Output != "" || e.EmptyOutput)
	})
}
