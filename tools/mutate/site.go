package main

import (
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

// site is a place where an operator applies: a mutation, once it has a number.
type site struct {
	name  string // package/file:function:operator:index in the function
	op    string
	pkg   string // its folder, relative to the module; "." is the root
	file  string // its path
	line  int
	text  string // of the line
	hash  string // of the function's text
	edits []edit
}

// edit is a part of a mutation: an insertion, or the replacement of an operator.
type edit struct {
	at, width int  // offset and width of the replaced text
	size      int  // of the edited node
	closing   bool // it stands after the node
	// The text is before, the number of the mutation, and after; or only after if before is empty.
	before, after string
}

// load returns the sites of packages of the module in a folder, in the order of the sources,
// and the module's path.
func load(root string, pkgs []string) (sites []*site, module string, err error) {
	patterns := make([]string, len(pkgs))
	for i, pkg := range pkgs {
		patterns[i] = "./" + pkg
	}
	mode := packages.LoadSyntax | packages.NeedModule
	loaded, err := packages.Load(&packages.Config{Mode: mode, Dir: root, Env: environment()}, patterns...)
	if err != nil {
		return nil, "", err
	}
	for _, p := range loaded {
		for _, err := range p.Errors {
			return nil, "", err
		}
		module = p.Module.Path
		for _, file := range p.Syntax {
			found, err := fileSites(p, file, root)
			if err != nil {
				return nil, "", err
			}
			sites = append(sites, found...)
		}
	}
	return sites, module, nil
}

// environment returns the environment of go commands, which use the workspace.
func environment(more ...string) []string {
	return append(append(os.Environ(), "GOWORK="), more...)
}

func fileSites(p *packages.Package, file *ast.File, root string) ([]*site, error) {
	if ast.IsGenerated(file) {
		return nil, nil
	}
	pos := p.Fset.File(file.Pos())
	text, err := os.ReadFile(pos.Name())
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(root, pos.Name())
	if err != nil {
		return nil, err
	}
	rel = filepath.ToSlash(rel)
	c := &collector{p: p, ast: file, pos: pos, text: string(text), index: map[string]int{}}
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil || isDescription(fn) {
			continue
		}
		c.function = functionName(fn)
		c.hash = fmt.Sprintf("%x", sha256.Sum256([]byte(c.source(fn))))[:16]
		c.collect(fn)
	}
	lines := strings.Split(c.text, "\n")
	for _, s := range c.sites {
		s.name, s.file, s.pkg = rel+":"+s.name, pos.Name(), path.Dir(rel)
		s.text = strings.TrimSpace(lines[s.line-1])
	}
	return c.sites, nil
}

// isDescription reports whether fn only describes a value to people.
func isDescription(fn *ast.FuncDecl) bool {
	switch fn.Name.Name {
	case "String", "GoString", "Error", "Format", "LogValue":
		return fn.Recv != nil
	}
	return false
}

// functionName returns the name of a function, or Type.Method.
func functionName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	recv := fn.Recv.List[0].Type
	for {
		switch t := recv.(type) {
		case *ast.StarExpr:
			recv = t.X
		case *ast.IndexExpr:
			recv = t.X
		case *ast.IndexListExpr:
			recv = t.X
		case *ast.Ident:
			return t.Name + "." + fn.Name.Name
		default:
			return fn.Name.Name
		}
	}
}

// add adds a site at a node.
func (c *collector) add(op string, n ast.Node, edits ...edit) {
	key := c.function + ":" + op
	if c.unread[n] {
		c.index[key]++ // the other names stay the same
		return
	}
	c.sites = append(c.sites, &site{
		name: fmt.Sprintf("%s:%d", key, c.index[key]), op: op, line: c.pos.Line(n.Pos()), hash: c.hash, edits: edits,
	})
	c.index[key]++
}

// open inserts a text with the number of the mutation before a node.
func (c *collector) open(n ast.Node, before, after string) edit {
	return edit{at: c.pos.Offset(n.Pos()), size: int(n.End() - n.Pos()), before: before, after: after}
}

// closeWith inserts a text after a node.
func (c *collector) closeWith(n ast.Node, text string) edit {
	return edit{at: c.pos.Offset(n.End()), size: int(n.End() - n.Pos()), closing: true, after: text}
}

// replace replaces an operator.
func (c *collector) replace(pos token.Pos, op token.Token, text string) edit {
	return edit{at: c.pos.Offset(pos), width: len(op.String()), after: text}
}

// source returns the text of a node.
func (c *collector) source(n ast.Node) string {
	return c.text[c.pos.Offset(n.Pos()):c.pos.Offset(n.End())]
}
