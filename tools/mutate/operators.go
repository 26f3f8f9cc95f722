package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// isBool reports whether e has the type bool, or the untyped one.
func (c *collector) isBool(e ast.Expr) bool {
	t := c.p.TypesInfo.TypeOf(e)
	return t == types.Typ[types.Bool] || t == types.Typ[types.UntypedBool]
}

// basicInfo returns the kind of a type that is not a type parameter.
func basicInfo(t types.Type) types.BasicInfo {
	if b, ok := t.Underlying().(*types.Basic); ok {
		return b.Info()
	}
	return 0
}

// negate collects the negation of a condition.
func (c *collector) negate(cond ast.Expr) {
	if cond == nil || c.negated[ast.Unparen(cond)] || !c.isBool(cond) {
		return
	}
	c.negated[ast.Unparen(cond)] = true
	c.add("negate", cond, c.open(cond, "mutant.Is(", ") != ("), c.closeWith(cond, ")"))
}

// functions are the functions of the package mutant, by operator.
var functions = map[token.Token]string{
	token.LSS: "Less", token.LEQ: "LessEqual", token.GTR: "Greater", token.GEQ: "GreaterEqual",
	token.ADD: "Add", token.SUB: "Sub", token.LAND: "And", token.LOR: "Or",
}

// binary collects the mutation of an operator. It returns false if the operands get none.
func (c *collector) binary(n *ast.BinaryExpr) bool {
	x, y := c.p.TypesInfo.Types[n.X], c.p.TypesInfo.Types[n.Y]
	call := c.open(n, "mutant."+functions[n.Op]+"(", ", ")
	switch n.Op {
	case token.EQL, token.NEQ:
		c.negate(n)
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		if c.isBool(n) && basicInfo(x.Type)&types.IsOrdered != 0 {
			c.add("boundary", n, call, c.replace(n.OpPos, n.Op, ","), c.closeWith(n, ")"))
		}
	case token.ADD, token.SUB:
		if info := basicInfo(c.p.TypesInfo.TypeOf(n)); info&types.IsInteger != 0 && info&types.IsUntyped == 0 {
			c.add("arithmetic", n, call, c.replace(n.OpPos, n.Op, ","), c.closeWith(n, ")"))
		}
	case token.LAND, token.LOR:
		if x.Value != nil || y.Value != nil {
			return false // code of other builds
		}
		if c.isBool(n) && c.isBool(n.X) && c.isBool(n.Y) && !strings.Contains(c.source(n.Y), "recover()") {
			c.add("connective", n, call, c.replace(n.OpPos, n.Op, ", func() bool { return ("), c.closeWith(n, ")})"))
		}
	}
	return true
}

// constant collects the mutation of a constant.
func (c *collector) constant(e ast.Expr) {
	t := c.p.TypesInfo.TypeOf(e)
	if id, ok := e.(*ast.Ident); ok && (id.Name == "true" || id.Name == "false") && !c.fixed[e] {
		c.negate(e)
	}
	if info := basicInfo(t); info&types.IsInteger == 0 || info&types.IsUntyped != 0 || c.fixed[e] {
		return
	}
	if name := c.typeName(types.Unalias(t), e.Pos()); name != "" {
		c.add("constant", e, c.open(e, "mutant.Inc["+name+"](", ", "), c.closeWith(e, ")"))
	}
}

// typeName returns the name of a type in the file, or "" if it has none there or gets no mutations.
func (c *collector) typeName(t types.Type, pos token.Pos) string {
	scope := c.p.Types.Scope().Innermost(pos)
	visible := func(name string, want types.Object) bool {
		_, found := scope.LookupParent(name, pos)
		return found == want
	}
	if b, ok := t.(*types.Basic); ok && visible(b.Name(), types.Universe.Lookup(b.Name())) {
		return b.Name()
	}
	named, ok := t.(*types.Named)
	if !ok || named.TypeArgs() != nil || slices.Contains([]string{"time.Duration", "io/fs.FileMode"}, named.String()) {
		return ""
	}
	obj := named.Obj()
	if obj.Pkg() == c.p.Types {
		if obj.Parent() == c.p.Types.Scope() && visible(obj.Name(), obj) {
			return obj.Name()
		}
		return ""
	}
	for _, name := range c.p.TypesInfo.Scopes[c.ast].Names() {
		imported, ok := c.p.TypesInfo.Scopes[c.ast].Lookup(name).(*types.PkgName)
		if ok && imported.Imported() == obj.Pkg() && visible(name, imported) {
			return name + "." + obj.Name()
		}
	}
	return ""
}

// symmetric are functions that have the same result with swapped arguments.
var symmetric = []string{"bytes.Equal", "slices.Equal", "maps.Equal", "reflect.DeepEqual", "errors.Join"}

// call collects the swap of two arguments. The capacity for make gets no mutations: it is a hint.
func (c *collector) call(n *ast.CallExpr) {
	switch f := typeutil.Callee(c.p.TypesInfo, n).(type) {
	case *types.Builtin:
		if f.Name() == "make" && len(n.Args) == 3 {
			c.fixed[n.Args[2]] = true
		}
		return
	case *types.Func:
		if slices.Contains(symmetric, f.Origin().FullName()) {
			return
		}
	}
	if len(n.Args) != 2 || n.Ellipsis.IsValid() || c.source(n.Args[0]) == c.source(n.Args[1]) {
		return
	}
	a, b := c.p.TypesInfo.Types[n.Args[0]], c.p.TypesInfo.Types[n.Args[1]]
	if a.Value != nil && b.Value != nil || a.IsNil() || b.IsNil() || !types.Identical(a.Type, b.Type) {
		return
	}
	c.add("swap", n, c.open(n.Args[0], "mutant.Swap(", ", "), c.closeWith(n.Args[1], ")"))
}

// returned collects the loss of a returned error.
func (c *collector) returned(n *ast.ReturnStmt, stack []ast.Node) {
	var results *types.Tuple
	for _, above := range slices.Backward(stack) {
		if lit, ok := above.(*ast.FuncLit); ok {
			results = c.p.TypesInfo.TypeOf(lit).(*types.Signature).Results()
			break
		}
		if fn, ok := above.(*ast.FuncDecl); ok {
			results = c.p.TypesInfo.Defs[fn.Name].Type().(*types.Signature).Results()
			break
		}
	}
	if len(n.Results) == 0 || results.Len() != len(n.Results) {
		return
	}
	last := n.Results[len(n.Results)-1]
	if results.At(results.Len()-1).Type() == types.Universe.Lookup("error").Type() && !c.p.TypesInfo.Types[last].IsNil() {
		c.add("error", last, c.open(last, "mutant.Nil(", ", "), c.closeWith(last, ")"))
	}
}

// failing reports whether a returned error is not nil: it is made there, or the condition of the block compares it with nil. stack are the
// nodes around the return.
func (c *collector) failing(e ast.Expr, stack []ast.Node) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.CallExpr:
		f, ok := typeutil.Callee(c.p.TypesInfo, e).(*types.Func)
		return ok && slices.Contains([]string{"fmt.Errorf", "errors.New"}, f.FullName())
	case *ast.Ident:
		n := len(stack)
		switch block := stack[n-1].(type) {
		case *ast.BlockStmt:
			branch, ok := stack[n-2].(*ast.IfStmt)
			return ok && branch.Body == block && c.isNotNil(branch.Cond, e)
		case *ast.CaseClause:
			return len(block.List) == 1 && c.isNotNil(block.List[0], e)
		}
	}
	return false
}

// isNotNil reports whether a condition is the comparison of a variable with nil by !=.
func (c *collector) isNotNil(cond ast.Expr, variable *ast.Ident) bool {
	b, ok := ast.Unparen(cond).(*ast.BinaryExpr)
	if !ok || b.Op != token.NEQ || !c.p.TypesInfo.Types[b.Y].IsNil() {
		return false
	}
	x, ok := ast.Unparen(b.X).(*ast.Ident)
	return ok && c.p.TypesInfo.ObjectOf(x) == c.p.TypesInfo.ObjectOf(variable)
}
