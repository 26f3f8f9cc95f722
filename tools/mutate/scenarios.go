package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/tools/go/packages"
)

// testPackage is a package with tests that depend on a package with mutations.
type testPackage struct {
	path      string
	dir       string
	scenarios []string // the tests that end a run at many points
	args      []string // of the binary

	// mu is held while the binary is built and runs without a mutation. The rest changes only then.
	mu     sync.Mutex
	binary string  // "" until it is built
	tests  []*test // as the binary lists them
}

// test is a test, an example or a fuzz test with its seeds.
type test struct {
	name     string
	scenario bool
	reached  map[int]bool // mutations, in the baseline; nil until that has run
	took     time.Duration
}

// testPackages returns the packages of the module, and of more patterns, whose tests depend on
// one of the packages with these paths.
func testPackages(root string, on []string, more ...string) ([]*testPackage, error) {
	mode := packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps
	config := &packages.Config{Mode: mode, Dir: root, Env: environment(), Tests: true}
	loaded, err := packages.Load(config, append([]string{"./..."}, more...)...)
	if err != nil {
		return nil, err
	}
	depends, draws := map[*packages.Package]bool{}, map[*packages.Package]bool{}
	packages.Visit(loaded, nil, func(p *packages.Package) {
		depends[p], draws[p] = slices.Contains(on, p.PkgPath), p.PkgPath == "pgregory.net/rapid"
		for _, imported := range p.Imports {
			depends[p], draws[p] = depends[p] || depends[imported], draws[p] || draws[imported]
		}
	})
	var tests []*testPackage
	for _, p := range loaded {
		path, isTest := strings.CutSuffix(p.ID, ".test")
		if !isTest || !depends[p] {
			continue
		}
		i := slices.IndexFunc(loaded, func(of *packages.Package) bool { return of.ID == path })
		t := &testPackage{path: path, dir: loaded[i].Dir}
		if draws[p] {
			t.args = []string{"-rapid.nofailfile"} // which the next run would read
		}
		if t.scenarios, err = scenarios(t.dir); err != nil {
			return nil, err
		}
		tests = append(tests, t)
	}
	return tests, nil
}

// scenarios returns the tests of a folder that call EveryPoint or Simulate, themselves or through
// other functions.
func scenarios(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	mentions := map[string][]string{} // by function
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok {
				ast.Inspect(fn, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						mentions[fn.Name.Name] = append(mentions[fn.Name.Name], id.Name)
					}
					return true
				})
			}
		}
	}
	runs := map[string]bool{"EveryPoint": true, "Simulate": true}
	for more := true; more; {
		more = false
		for fn, names := range mentions {
			if !runs[fn] && slices.ContainsFunc(names, func(name string) bool { return runs[name] }) {
				runs[fn], more = true, true
			}
		}
	}
	maps.DeleteFunc(runs, func(fn string, _ bool) bool { return !strings.HasPrefix(fn, "Test") })
	return slices.Sorted(maps.Keys(runs)), nil
}
