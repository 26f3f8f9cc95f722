package main

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// guard makes a statement depend on the mutation, which drops it.
func (c *collector) guard(s ast.Stmt) []edit {
	return []edit{c.open(s, "if !mutant.Is(", ") { "), c.closeWith(s, " }")}
}

// statements collects the loss and the order of the statements of a block. In the block of a
// function, a return at the end does nothing.
func (c *collector) statements(list []ast.Stmt, body bool) {
	for i, s := range list {
		_, isReturn := s.(*ast.ReturnStmt)
		if c.isSimple(s) || isJump(s) && !(body && isReturn && i == len(list)-1) {
			c.add("drop", s, c.guard(s)...)
		}
		if i > 0 && c.isSimple(list[i-1]) && c.isSimple(s) {
			c.order(list[i-1], s)
		}
	}
}

// isJump reports whether s is a return without results, a break or a continue.
func isJump(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ReturnStmt:
		return len(s.Results) == 0
	case *ast.BranchStmt:
		return s.Tok == token.BREAK || s.Tok == token.CONTINUE
	}
	return false
}

// isSimple reports whether s is a call, an assignment or a send, which other code may follow.
func (c *collector) isSimple(s ast.Stmt) bool {
	if _, method := c.lockCall(s); method != "" {
		return false
	}
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		return ok && !c.ignored(call)
	case *ast.DeferStmt:
		return !c.ignored(s.Call)
	case *ast.AssignStmt:
		blank := func(e ast.Expr) bool { id, ok := e.(*ast.Ident); return ok && id.Name == "_" }
		return s.Tok != token.DEFINE && slices.ContainsFunc(s.Lhs, func(e ast.Expr) bool { return !blank(e) })
	case *ast.IncDecStmt, *ast.SendStmt:
		return true
	}
	return false
}

// order collects the swap of two statements. One of them must fit in a line, since its copy must
// not change the numbers of the lines.
func (c *collector) order(a, b ast.Stmt) {
	if !c.ordered(a, b) {
		return
	}
	switch {
	case !strings.Contains(c.source(b), "\n"):
		c.add("order", a, append(c.guard(b), c.open(a, "if mutant.Is(", ") { "+c.source(b)+" }; "))...)
	case !strings.Contains(c.source(a), "\n"):
		after := c.closeWith(b, " }")
		after.before, after.after = "; if mutant.Is(", ") { "+c.source(a)+" }"
		c.add("order", a, append(c.guard(a), after)...)
	}
}

// ordered reports whether the order of two statements may matter: one of them has an effect
// elsewhere, or an operand of one is assigned by the other.
func (c *collector) ordered(a, b ast.Stmt) bool {
	for _, s := range []ast.Stmt{a, b} {
		effect := false
		ast.Inspect(s, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr, *ast.SendStmt:
				effect = true
			case *ast.UnaryExpr:
				effect = effect || n.Op == token.ARROW
			}
			return !effect
		})
		if effect {
			return true
		}
	}
	return c.assigns(a, b) || c.assigns(b, a)
}

// assigns reports whether the text of other has a variable that s assigns.
func (c *collector) assigns(s, other ast.Stmt) bool {
	var left []ast.Expr
	switch s := s.(type) {
	case *ast.AssignStmt:
		left = s.Lhs
	case *ast.IncDecStmt:
		left = []ast.Expr{s.X}
	}
	return slices.ContainsFunc(left, func(e ast.Expr) bool { return strings.Contains(c.source(other), c.source(e)) })
}
