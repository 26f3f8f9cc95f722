package archtest

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// testdata/api has a file for each public package with its exported declarations, so that a review sees each change of
// the API as a change of that file.

var newAPI = flag.Bool("api", false, "write the exported declarations of the public packages to testdata/api")

// publicPackages are the packages for programs that embed dohost, and for their tests.
var publicPackages = []string{
	".", "agent", "chat", "chat/anthropic", "chat/chattest", "chat/extract", "chat/openai", "cli", "cluster", "cluster/nats/natslog", "dohosttest", "inbox",
	"ledger", "ledger/ledgertest", "pool", "sharedlog", "sharedlog/dirlog", "sharedlog/logtest", "streams", "streams/consumer", "web",
}

func TestAPIMatchesGoldenFiles(t *testing.T) {
	values := constants{root: "../..", packages: map[string]*types.Package{}}
	for _, dir := range publicPackages {
		t.Run(dir, func(t *testing.T) {
			got, err := exported(&values, dir)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata/api", strings.ReplaceAll(path.Join("dohost", dir), "/", "-")+".txt")
			if *newAPI {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the exported declarations differ from %s; if that is intended: go test ./internal/archtest -run API -api\n%s",
					golden, firstDifference(string(want), got))
			}
		})
	}
}

// exported returns the exported declarations of a package, in the order of go doc and without comments. After an alias
// of a type of the engine it has the declarations of that type. After constants it has their values.
func exported(values *constants, dir string) (string, error) {
	root := values.root
	p, fset, err := docOf(root, dir)
	if err != nil {
		return "", err
	}
	w := declarations{fset: fset, constants: values, path: p.ImportPath}
	w.printf("package %s // import %q\n", p.Name, p.ImportPath)
	w.values(p.Consts)
	w.values(p.Vars)
	w.funcs(p.Funcs)
	for _, ty := range p.Types {
		w.typ(ty)
		for _, spec := range ty.Decl.Specs {
			if err := w.aliased(root, spec.(*ast.TypeSpec)); err != nil {
				return "", err
			}
		}
	}
	return w.text.String(), w.err
}

// docOf reads the documentation of the package in a folder below the root of the repository.
func docOf(root, dir string) (*doc.Package, *token.FileSet, error) {
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		return nil, nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(fset, files, path.Join(modulePath, dir))
	return p, fset, err
}

// declarations prints declarations, each in lines of its own.
type declarations struct {
	fset      *token.FileSet
	constants *constants
	path      string // the import path of the package that has the declarations
	text      bytes.Buffer
	err       error
}

func (w *declarations) typ(ty *doc.Type) {
	w.decl(ty.Decl)
	w.values(ty.Consts)
	w.values(ty.Vars)
	w.funcs(ty.Funcs)
	w.funcs(ty.Methods)
}

// aliased prints the type that an alias names, if it is a type of another package of the module.
func (w *declarations) aliased(root string, spec *ast.TypeSpec) error {
	target, ok := spec.Type.(*ast.SelectorExpr)
	if !spec.Assign.IsValid() || !ok {
		return nil
	}
	for _, dir := range []string{"runtime", "objectstore", "eviction", "alarm", "internal/socket", "internal/budget", "chat/uimessage"} {
		if path.Base(dir) != target.X.(*ast.Ident).Name {
			continue
		}
		p, fset, err := docOf(root, dir)
		if err != nil {
			return err
		}
		for _, ty := range p.Types {
			if ty.Name == target.Sel.Name {
				outerSet, outerPath := w.fset, w.path
				w.fset, w.path = fset, p.ImportPath
				ty.Funcs = nil // the alias does not make them functions of the package
				w.typ(ty)
				w.fset, w.path = outerSet, outerPath
				return nil
			}
		}
	}
	return fmt.Errorf("%s: no type %s.%s", spec.Name, target.X, target.Sel)
}

func (w *declarations) values(vs []*doc.Value) {
	for _, v := range vs {
		w.decl(v.Decl)
		if v.Decl.Tok == token.CONST && w.err == nil {
			w.err = w.constantValues(v.Decl)
		}
	}
}

// constantValues prints the values of the exported constants of a declaration.
func (w *declarations) constantValues(d *ast.GenDecl) error {
	for _, spec := range d.Specs {
		for _, name := range spec.(*ast.ValueSpec).Names {
			if !name.IsExported() {
				continue
			}
			value, err := w.constants.value(w.path, name.Name)
			if err != nil {
				return err
			}
			w.printf("// %s is %s\n", name.Name, value)
		}
	}
	return nil
}

func (w *declarations) funcs(fs []*doc.Func) {
	for _, f := range fs {
		f.Decl.Body = nil
		w.decl(f.Decl)
	}
}

func (w *declarations) decl(d ast.Decl) {
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			n.Doc = nil
		case *ast.FuncDecl:
			n.Doc = nil
		case *ast.TypeSpec:
			n.Doc, n.Comment = nil, nil
		case *ast.ValueSpec:
			n.Doc, n.Comment = nil, nil
		case *ast.Field:
			n.Doc, n.Comment = nil, nil
		}
		return true
	})
	w.printf("\n")
	if w.err == nil {
		w.err = (&printer.Config{Mode: printer.UseSpaces | printer.TabIndent, Tabwidth: 8}).Fprint(&w.text, w.fset, d)
	}
	w.printf("\n")
}

func (w *declarations) printf(format string, args ...any) { fmt.Fprintf(&w.text, format, args...) }

// firstDifference returns the first lines that differ.
func firstDifference(want, got string) string {
	ws, gs := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(ws), len(gs)) {
		if ws[i] != gs[i] {
			return fmt.Sprintf("line %d was  %s\nline %d is   %s", i+1, ws[i], i+1, gs[i])
		}
	}
	return fmt.Sprintf("it had %d lines and has %d", len(ws), len(gs))
}
