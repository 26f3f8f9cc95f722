package archtest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// constants finds the values of constants. It reads the declarations of the module's packages, and of those packages of
// the standard library that constants use; it ignores errors about all others.
type constants struct {
	root     string // the folder of the root module
	packages map[string]*types.Package
}

// constantImports are the packages of the standard library that constants of the module use.
var constantImports = []string{"math", "time"}

// value returns the exact value of a constant of a package of the module.
func (c *constants) value(importPath, name string) (string, error) {
	p, err := c.Import(importPath)
	if err != nil {
		return "", err
	}
	v, ok := p.Scope().Lookup(name).(*types.Const)
	if !ok || v.Val() == nil || v.Type() == types.Typ[types.Invalid] {
		return "", fmt.Errorf("%s.%s has no known value: see constantImports", importPath, name)
	}
	return v.Val().ExactString(), nil
}

// Import implements types.Importer.
func (c *constants) Import(importPath string) (*types.Package, error) {
	if p := c.packages[importPath]; p != nil {
		return p, nil
	}
	dir, ours := ourPackage(importPath)
	if !ours {
		p, err := types.NewPackage(importPath, path.Base(importPath)), error(nil)
		for _, known := range constantImports {
			if known == importPath {
				p, err = importer.ForCompiler(token.NewFileSet(), "source", nil).Import(importPath)
			}
		}
		p.MarkComplete()
		c.packages[importPath] = p
		return p, err
	}
	names, err := filepath.Glob(filepath.Join(c.root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, errors.New(importPath + ": no files")
	}
	config := types.Config{Importer: c, IgnoreFuncBodies: true, Error: func(error) {}}
	p, _ := config.Check(importPath, fset, files, nil) // the errors are those about packages that are not read
	c.packages[importPath] = p
	return p, nil
}

// A constant that has the value of another package's constant changes with it.
func TestConstantsFollowOtherPackages(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"eviction/e.go": "package eviction\n\nimport \"time\"\n\ntype Mode int\n\nconst (\n\tNone Mode = iota + 3\n\tSome\n)\n\nconst Wait = 2 * time.Second\n",
		"d.go":          "package dohost\n\nimport (\n\t\"net/http\"\n\n\t\"github.com/dohost/dohost/eviction\"\n)\n\nconst (\n\tSome = eviction.Some\n\tWait = eviction.Wait\n\tName = \"n\"\n\tCode = http.StatusOK\n)\n\nfunc F(http.Handler) {}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := constants{root: dir, packages: map[string]*types.Package{}}
	for name, want := range map[string]string{"Some": "4", "Wait": "2000000000", "Name": `"n"`} {
		if got, err := c.value(modulePath, name); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
	for _, name := range []string{"Code", "Gone"} {
		if got, err := c.value(modulePath, name); err == nil {
			t.Errorf("%s: %s, want an error", name, got)
		}
	}
}
