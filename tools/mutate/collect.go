package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/go/types/typeutil"
)

// collector collects the sites of a file.
type collector struct {
	p        *packages.Package
	ast      *ast.File
	pos      *token.File
	text     string
	function string         // the current one
	hash     string         // of its text
	index    map[string]int // the next one, by function and operator
	sites    []*site
	negated  map[ast.Expr]bool // conditions
	fixed    map[ast.Expr]bool // constants that must not change
	unread   map[ast.Node]bool // results that are returned with an error
}

// collect collects the sites of a function.
func (c *collector) collect(fn *ast.FuncDecl) {
	c.negated, c.fixed, c.unread = map[ast.Expr]bool{}, map[ast.Expr]bool{}, map[ast.Node]bool{}
	c.locks(fn)
	ast.PreorderStack(fn.Body, []ast.Node{fn}, func(n ast.Node, stack []ast.Node) bool {
		if e, ok := n.(ast.Expr); ok && c.p.TypesInfo.Types[e].Value != nil {
			c.constant(e)
			return false
		}
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok != token.CONST
		case *ast.ArrayType:
			return false
		case *ast.IfStmt:
			if c.p.TypesInfo.Types[n.Cond].Value != nil {
				return false // code of other builds
			}
			c.negate(n.Cond)
		case *ast.ForStmt:
			c.negate(n.Cond)
		case *ast.BinaryExpr:
			return c.binary(n)
		case *ast.CompositeLit:
			c.fixKeys(n)
		case *ast.CallExpr:
			if c.ignored(n) {
				return false
			}
			c.call(n)
		case *ast.ReturnStmt:
			c.returned(n, stack)
			if last := len(n.Results) - 1; last > 0 && c.failing(n.Results[last], stack) {
				for _, e := range n.Results[:last] {
					c.unread[e] = true
				}
			}
		case *ast.BlockStmt:
			c.statements(n.List, n == fn.Body)
		case *ast.CaseClause:
			c.statements(n.Body, false)
		case *ast.CommClause:
			c.statements(n.Body, false)
		}
		return true
	})
}

// ignored reports whether a call, with its arguments, gets no mutations.
func (c *collector) ignored(call *ast.CallExpr) bool {
	for _, arg := range call.Args {
		if t := c.p.TypesInfo.TypeOf(arg); t != nil && strings.HasSuffix(t.String(), "/eviction.Place") {
			return true
		}
	}
	switch f := typeutil.Callee(c.p.TypesInfo, call).(type) {
	case *types.Builtin:
		return f.Name() == "panic"
	case *types.Func:
		if f.Pkg() == nil {
			return false
		}
		switch name := f.Name(); f.Pkg().Path() {
		case "log", "log/slog":
			return true
		case "fmt":
			return name == "Errorf"
		case "errors":
			return name == "New"
		}
		return strings.HasSuffix(f.Pkg().Path(), "/internal/invariants")
	}
	return false
}

// fixKeys keeps the indices of a list, which are constants.
func (c *collector) fixKeys(lit *ast.CompositeLit) {
	switch c.p.TypesInfo.TypeOf(lit).Underlying().(type) {
	case *types.Array, *types.Slice:
		for _, e := range lit.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				c.fixed[kv.Key] = true
			}
		}
	}
}

// locks collects the removal of a lock: all calls of Lock and Unlock of a receiver in a function.
func (c *collector) locks(fn *ast.FuncDecl) {
	type pair struct{ lock, unlock []ast.Stmt }
	pairs := map[string]*pair{} // by receiver and kind of lock
	var order []string
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		s, ok := n.(ast.Stmt)
		if !ok {
			return true
		}
		recv, method := c.lockCall(s)
		if method == "" {
			return true
		}
		kind, unlock := strings.CutSuffix(method, "Unlock")
		kind = strings.TrimSuffix(kind, "Lock")
		p := pairs[recv+" "+kind]
		if p == nil {
			p = new(pair)
			pairs[recv+" "+kind] = p
			order = append(order, recv+" "+kind)
		}
		if unlock {
			p.unlock = append(p.unlock, s)
		} else {
			p.lock = append(p.lock, s)
		}
		return true
	})
	for _, key := range order {
		p := pairs[key]
		if len(p.lock) == 0 || len(p.unlock) == 0 {
			continue
		}
		var edits []edit
		for _, s := range slices.Concat(p.lock, p.unlock) {
			edits = append(edits, c.guard(s)...)
		}
		c.add("lock", p.lock[0], edits...)
	}
}

// lockCall returns the receiver and the method of a statement that calls Lock, Unlock, RLock or
// RUnlock, now or deferred; otherwise an empty method.
func (c *collector) lockCall(s ast.Stmt) (recv, method string) {
	var call *ast.CallExpr
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, _ = s.X.(*ast.CallExpr)
	case *ast.DeferStmt:
		call = s.Call
	}
	if call == nil || len(call.Args) > 0 {
		return "", ""
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Lock", "Unlock", "RLock", "RUnlock"}, sel.Sel.Name) {
		return "", ""
	}
	return c.source(sel.X), sel.Sel.Name
}
