package archtest

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// durableRows are the collections of durable work, by the only file of their package that writes them. rowReads are the members of a
// collection that other files may use. They may pass its address to rowHelpers: functions of the writer, and functions that only read.
var (
	durableRows = map[string][]string{
		"agent/rowwriter.go": {"fiberRows", "scheduleRows", "queue", "deadLetterRows", "payloads", "rowTasks"},
		"chat/replyrow.go":   {"replies"},
		"chat/callwriter.go": {"callRows"},
		"ledger/store.go":    {"operations", "resultParts"},
	}
	rowReads   = []string{"All", "Count", "Get", "InIndex", "Key", "Keys", "List", "Name", "Scan"}
	rowHelpers = map[string][]string{
		"agent": {"details", "first", "get", "insert", "list", "put", "remove", "update"},
		"chat":  {"newestOf"},
	}
)

// rowWriters requires that one file of a package writes a collection of durable work. In package agent it also sets the
// alarm, in the same batch. Other files only read the collection, or pass its address to a helper: an alias would hide a write.
func rowWriters(t *tree) (found []string) {
	for _, f := range t.files {
		writers := map[string]string{} // of a collection
		for writer, names := range durableRows {
			if path.Dir(writer) == f.dir && f.path != writer {
				for _, name := range names {
					writers[name] = writer
				}
			}
		}
		if f.test || len(writers) == 0 {
			continue
		}
		allowed := map[*ast.Ident]bool{} // no uses of a collection, or permitted ones
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				allowed[n.Sel] = true
				if x, ok := n.X.(*ast.Ident); ok && slices.Contains(rowReads, n.Sel.Name) {
					allowed[x] = true
				}
			case *ast.CallExpr:
				allowArguments(n, rowHelpers[f.dir], allowed)
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok {
					allowed[key] = true // a field
				}
			case *ast.Field:
				for _, name := range n.Names {
					allowed[name] = true
				}
			case *ast.Ident:
				if writer := writers[n.Name]; writer != "" && !allowed[n] && isGlobal(f, n) {
					found = append(found, t.at(n.Pos(), "%s: only %s writes rows of durable work, and other files only read them", n.Name, writer))
				}
			}
			return true
		})
	}
	return found
}

// allowArguments allows the addresses that a call passes to one of the helpers.
func allowArguments(call *ast.CallExpr, helpers []string, allowed map[*ast.Ident]bool) {
	if fn, ok := call.Fun.(*ast.Ident); !ok || !slices.Contains(helpers, fn.Name) {
		return
	}
	for _, arg := range call.Args {
		if of, ok := arg.(*ast.UnaryExpr); ok && of.Op == token.AND {
			if x, ok := of.X.(*ast.Ident); ok {
				allowed[x] = true
			}
		}
	}
}

// isGlobal reports whether x uses a variable of the package, and does not declare it.
func isGlobal(f *file, x *ast.Ident) bool {
	if x.Obj == nil {
		return true // of another file
	}
	return f.syntax.Scope.Lookup(x.Name) == x.Obj && x.Obj.Pos() != x.Pos()
}

// reservedRows are the files that declare the collections of reserved names, by those names.
var reservedRows = map[string][]string{
	"dohost.calls":               {"answercall.go"},
	"dohost.calls.total":         {"answercall.go"},
	"dohost.chat.approvals":      {"chat/approval.go"},
	"dohost.chat.asked":          {"chat/returnaddress.go"},
	"dohost.chat.calls":          {"chat/callrow.go"},
	"dohost.chat.chunks":         {"chat/replyrow.go", "internal/randchat/verify.go"},
	"dohost.chat.messages":       {"chat/transcript.go"},
	"dohost.chat.modelcalls":     {"chat/usagerow.go"},
	"dohost.chat.notes":          {"chat/replyrow.go"},
	"dohost.chat.progress":       {"chat/progresslog.go"},
	"dohost.chat.progresslog":    {"chat/progresslog.go"},
	"dohost.chat.replies":        {"chat/replyrow.go"},
	"dohost.chat.summaries":      {"chat/summaryrow.go"},
	"dohost.chat.usage":          {"chat/usagerow.go"},
	"dohost.dead":                {"agent/deadletter.go"},
	"dohost.fibers":              {"agent/fibers.go"},
	"dohost.inbox.asked":         {"inbox/agenttoolprocedures.go"},
	"dohost.inbox.awaited":       {"inbox/awaitedrequests.go"},
	"dohost.inbox.budgetevents":  {"inbox/budgetlog.go"},
	"dohost.inbox.budgets":       {"inbox/budgetrow.go"},
	"dohost.inbox.budgetwaits":   {"inbox/budgetrow.go"},
	"dohost.inbox.generations":   {"inbox/agentcycle.go"},
	"dohost.inbox.summaries":     {"inbox/history.go"},
	"dohost.inbox.summarystates": {"inbox/history.go"},
	"dohost.inbox.unknown":       {"inbox/unknown.go"},
	"dohost.ledger":              {"ledger/id.go"},
	"dohost.numbers":             {"agent/agent.go"},
	"dohost.operations":          {"ledger/row.go"},
	"dohost.operations.outcomes": {"ledger/outcomes.go"},
	"dohost.operations.results":  {"ledger/store.go"},
	"dohost.payloads":            {"agent/callback.go"},
	"dohost.queue":               {"agent/queue.go"},
	"dohost.rowtasks":            {"agent/rowwork.go"},
	"dohost.schedules":           {"agent/schedule.go"},
	"dohost.sockets":             {"relayrows.go"},
	"dohost.sockets.outputs":     {"relayrows.go"},
	"dohost.sockets.received":    {"relayrows.go"},
	"dohost.state":               {"agent/state.go"},
	"dohost.streams.positions":   {"streams/consumer/target.go"},
	"dohost.streams.wakes":       {"streams/consumer/worker.go"},
	"dohost.subs":                {"agent/subagent.go"},
}

// reservedCollections requires that only the listed files declare collections of reserved names.
func reservedCollections(t *tree) (found []string) {
	for _, f := range t.files {
		if f.test {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			name, err := strconv.Unquote(lit.Value)
			if files, listed := reservedRows[name]; err == nil && listed && !slices.Contains(files, f.path) {
				found = append(found, t.at(lit.Pos(), "%q: only %s declares this collection", name, strings.Join(files, " and ")))
			}
			return true
		})
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if lit, ok := n.(*ast.CompositeLit); ok && isCollection(lit.Type) {
				if name := nameOf(lit); strings.HasPrefix(name, "dohost.") && reservedRows[name] == nil {
					found = append(found, t.at(lit.Pos(), "the collection %q is not listed", name))
				}
			}
			return true
		})
	}
	return found
}

// isCollection reports whether x is the type of a collection of the root package.
func isCollection(x ast.Expr) bool {
	of, ok := x.(*ast.IndexExpr)
	if !ok {
		return false
	}
	switch x := of.X.(type) {
	case *ast.Ident:
		return x.Name == "Collection"
	case *ast.SelectorExpr:
		return x.Sel.Name == "Collection"
	}
	return false
}

// nameOf returns the Name of a composite literal, if it is a string in the source.
func nameOf(lit *ast.CompositeLit) string {
	for _, field := range lit.Elts {
		kv, ok := field.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, isKey := kv.Key.(*ast.Ident)
		if value, ok := kv.Value.(*ast.BasicLit); ok && isKey && key.Name == "Name" {
			name, _ := strconv.Unquote(value.Value)
			return name
		}
	}
	return ""
}
