package archtest

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const modulePath = "github.com/dohost/dohost"

// A tree is the source of a repository: the real one or a planted one.
type tree struct {
	fset      *token.FileSet
	files     []*file           // ordered by path
	goMods    map[string]string // by folder, those of the workspace; "." is the root module
	documents map[string]string // the existing documents of documentNames
}

// documentNames are the documents that describe the source.
var documentNames = []string{"AGENTS.md", "ARCHITECTURE.md"}

// A file is one Go file, with any build constraints.
type file struct {
	path   string // from the root of the repository, with slashes
	dir    string // "." for the root package
	test   bool
	lines  int
	text   []byte
	syntax *ast.File
}

// load parses every Go file of the modules of a repository. It skips modules whose path is not below ours, and folders
// that the go command ignores.
func load(fsys fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet(), documents: make(map[string]string)}
	err := eachFile(fsys, ".go", func(p string) error {
		f, err := parse(t.fset, fsys, p)
		t.files = append(t.files, f)
		return err
	})
	if err != nil {
		return nil, err
	}
	if t.goMods, err = workspace(fsys); err != nil {
		return nil, err
	}
	for _, name := range documentNames {
		text, err := fs.ReadFile(fsys, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		t.documents[name] = string(text)
	}
	return t, nil
}

var used = regexp.MustCompile(`(?m)^(?:use )?\t?(\.\S*)$`)

// workspace returns the go.mod files that go.work names, or that of the root alone.
func workspace(fsys fs.FS) (map[string]string, error) {
	goWork, err := fs.ReadFile(fsys, "go.work")
	if errors.Is(err, fs.ErrNotExist) {
		goWork = []byte("use .")
	} else if err != nil {
		return nil, err
	}
	goMods := make(map[string]string)
	for _, m := range used.FindAllStringSubmatch(string(goWork), -1) {
		dir := path.Clean(m[1])
		goMod, err := fs.ReadFile(fsys, path.Join(dir, "go.mod"))
		if err != nil {
			return nil, err
		}
		goMods[dir] = string(goMod)
	}
	return goMods, nil
}

// module returns the folder of the module that has dir.
func (t *tree) module(dir string) string {
	for dir != "." {
		if _, ok := t.goMods[dir]; ok {
			return dir
		}
		dir = path.Dir(dir)
	}
	return dir
}

// eachFile calls do for each file with an extension, except those in ignored folders.
func eachFile(fsys fs.FS, ext string, do func(p string) error) error {
	return fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && ignored(fsys, p):
			return fs.SkipDir
		case d.IsDir() || path.Ext(p) != ext:
			return nil
		}
		return do(p)
	})
}

func ignored(fsys fs.FS, dir string) bool {
	name := path.Base(dir)
	if name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return true
	}
	goMod, err := fs.ReadFile(fsys, path.Join(dir, "go.mod"))
	return err == nil && !strings.Contains("\n"+string(goMod), "\nmodule "+modulePath+"/")
}

func parse(fset *token.FileSet, fsys fs.FS, p string) (*file, error) {
	text, err := fs.ReadFile(fsys, p)
	if err != nil {
		return nil, err
	}
	syntax, err := parser.ParseFile(fset, p, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	return &file{
		path:   p,
		dir:    path.Dir(p),
		test:   strings.HasSuffix(p, "_test.go"),
		lines:  bytes.Count(text, []byte("\n")),
		text:   text,
		syntax: syntax,
	}, nil
}

// imports returns the paths that f imports and the position of each.
func (f *file) imports() map[string]token.Pos {
	paths := make(map[string]token.Pos)
	for _, spec := range f.syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has accepted it, so it unquotes
		}
		paths[p] = spec.Pos()
	}
	return paths
}

// localName returns the local name of the imported package in f, or "" if f does not import
// it.
func (f *file) localName(importPath string) string {
	for _, spec := range f.syntax.Imports {
		if p, _ := strconv.Unquote(spec.Path.Value); p != importPath {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}

// uses calls found for each mention of importPath.name in f, called or not.
func (f *file) uses(importPath string, names []string, found func(n ast.Node, name string)) {
	local := f.localName(importPath)
	if local == "" {
		return
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && slices.Contains(names, sel.Sel.Name) {
			found(n, sel.Sel.Name)
		}
		return true
	})
}

// packages returns the folders that hold Go files, and their files.
func (t *tree) packages() map[string][]*file {
	dirs := make(map[string][]*file)
	for _, f := range t.files {
		dirs[f.dir] = append(dirs[f.dir], f)
	}
	return dirs
}

func (t *tree) sortedPackages() []string {
	return slices.Sorted(maps.Keys(t.packages()))
}

// at renders a finding the way compilers do, so that editors can jump to it.
func (t *tree) at(pos token.Pos, format string, args ...any) string {
	p := t.fset.Position(pos)
	return fmt.Sprintf("%s:%d: %s", p.Filename, p.Line, fmt.Sprintf(format, args...))
}

// funcName names a declaration the way ARCHITECTURE.md does: Func or Type.Method.
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	return receiver(d) + "." + d.Name.Name
}

// receiver returns the name of the type that d is a method of.
func receiver(d *ast.FuncDecl) string {
	root, _ := rootOf(d.Recv.List[0].Type)
	if id, ok := root.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// rootOf returns the first part of an expression such as *a.b[0].c().d, and the number of selectors after it.
func rootOf(e ast.Expr) (root ast.Expr, selectors int) {
	for {
		switch x := e.(type) {
		case *ast.SelectorExpr:
			selectors, e = selectors+1, x.X
		case *ast.CallExpr:
			e = x.Fun
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		default:
			return e, selectors
		}
	}
}
