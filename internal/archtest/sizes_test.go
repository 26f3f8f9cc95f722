package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	maxFileLines = 400
	maxFuncLines = 70
)

// longDecoders are flat switches, one short case for each thing decoded, which would not be
// clearer in pieces. Each is named "path Func".
var longDecoders = []string{}

// vagueNames do not describe the content of a file, so it would collect everything.
var vagueNames = []string{
	"util", "utils", "common", "helper", "helpers", "type", "types",
	"misc", "shared", "constants", "interfaces",
}

func fileSizes(t *tree) (found []string) {
	for _, f := range t.files {
		if !f.test && f.lines > maxFileLines {
			found = append(found, fmt.Sprintf("%s: %d lines, more than %d", f.path, f.lines, maxFileLines))
		}
	}
	return found
}

func funcSizes(t *tree) (found []string) {
	unused := slices.Clone(longDecoders)
	for _, f := range t.files {
		if f.test {
			continue
		}
		for _, decl := range f.syntax.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := t.fset.Position(d.End()).Line - t.fset.Position(d.Pos()).Line + 1
			if lines <= maxFuncLines {
				continue
			}
			where := f.path + " " + funcName(d)
			if slices.Contains(longDecoders, where) {
				unused = slices.DeleteFunc(unused, func(s string) bool { return s == where })
				continue
			}
			found = append(found, t.at(d.Pos(), "%s has %d lines, more than %d", funcName(d), lines, maxFuncLines))
		}
	}
	for _, where := range unused {
		found = append(found, where+": excepted as a long decoder, but not long, or not there")
	}
	return found
}

func packageNames(t *tree) (found []string) {
	for _, f := range t.files {
		name := strings.TrimSuffix(f.syntax.Name.Name, "_test")
		if slices.Contains(vagueNames, name) || slices.Contains(vagueNames, path.Base(f.dir)) {
			found = append(found, t.at(f.syntax.Name.Pos(), "package %s says nothing by its name", name))
		}
		stem := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.path), ".go"), "_test")
		if slices.Contains(vagueNames, stem) {
			found = append(found, f.path+": the file says nothing by its name")
		}
	}
	return found
}

var option = regexp.MustCompile(`^With([A-Z0-9]|$)`)

// ofHandler reports whether d is one of the methods that slog.Handler requires.
func ofHandler(d *ast.FuncDecl) bool {
	return d.Recv != nil && (d.Name.Name == "WithAttrs" || d.Name.Name == "WithGroup")
}

func functionalOptions(t *tree) (found []string) {
	for _, f := range t.files {
		if f.test {
			continue
		}
		for _, decl := range f.syntax.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && option.MatchString(d.Name.Name) && !ofHandler(d) {
				found = append(found, t.at(d.Pos(), "%s: options are a struct here", d.Name.Name))
			}
		}
	}
	return found
}

func packageComments(t *tree) (found []string) {
	for dir, files := range t.packages() {
		documented := slices.ContainsFunc(files, func(f *file) bool {
			return f.syntax.Doc != nil && strings.TrimSpace(f.syntax.Doc.Text()) != ""
		})
		if !documented {
			found = append(found, dir+": no file has a package comment")
		}
	}
	slices.Sort(found)
	return found
}

func exportedComments(t *tree) (found []string) {
	for _, f := range t.files {
		if f.test {
			continue
		}
		for _, decl := range f.syntax.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				inDocs := d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d)))
				if inDocs && d.Doc == nil {
					found = append(found, t.undocumented(d.Pos(), funcName(d)))
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					found = append(found, t.undocumentedIn(d, spec)...)
				}
			}
		}
	}
	return found
}

// undocumentedIn checks one line of a declaration. A comment over a group of constants or
// variables documents all of them; each type needs one of its own.
func (t *tree) undocumentedIn(d *ast.GenDecl, spec ast.Spec) (found []string) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		if d.Doc != nil || s.Doc != nil || s.Comment != nil {
			return nil
		}
		for _, name := range s.Names {
			if name.IsExported() {
				found = append(found, t.undocumented(name.Pos(), name.Name))
			}
		}
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return nil
		}
		if s.Doc == nil && (d.Doc == nil || d.Lparen.IsValid()) {
			found = append(found, t.undocumented(s.Pos(), s.Name.Name))
		}
		methods, ok := s.Type.(*ast.InterfaceType)
		if !ok {
			return found
		}
		for _, m := range methods.Methods.List {
			if m.Doc == nil && m.Comment == nil && len(m.Names) == 1 && m.Names[0].IsExported() {
				found = append(found, t.undocumented(m.Pos(), s.Name.Name+"."+m.Names[0].Name))
			}
		}
	}
	return found
}

func (t *tree) undocumented(pos token.Pos, name string) string {
	return t.at(pos, "%s is exported and has no comment", name)
}
