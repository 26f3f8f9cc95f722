package archtest

import (
	"go/ast"
	"path"
	"slices"
	"strings"
)

// transportFiles lists, for each package whose primitives name no transport, its files that may import one. Rows, queries, watches,
// feeds, tool calls, chunks, fibers and operations are in the other files: they work the same for each transport. A package
// without files here has none.
var transportFiles = map[string][]string{
	".": {
		"access.go", "authorize.go", "budgets.go", "class.go", "delegate.go", "handlers.go", "http.go", "httperror.go", "response.go",
		"socket.go", "watchhttp.go",
		// The owners of the sockets, and of their limits.
		"broadcast.go", "host.go", "options.go", "relay.go", "relayevents.go", "relayrows.go", "relaysend.go", "socketinfo.go", "socketlink.go", "state.go",
	},
	// The core of an agent, its clients, and its handlers for requests.
	"agent": {"agent.go", "bind.go", "clients.go", "extension.go", "handlers.go", "subagent.go"},
	// The protocol of the published hooks: requests as frames, and the transcript over HTTP.
	"chat": {"bind.go", "request.go", "storedmessages.go"},

	"alarm": nil, "chat/uimessage": nil, "eviction": nil, "inbox": nil, "ledger": nil, "objectstore": nil, "runtime": nil, "sharedlog": nil,
}

// transports are the packages that send or receive bytes.
var transports = []string{"net", "net/http", "net/rpc", "github.com/coder/websocket", modulePath + "/internal/socket"}

// statusOnly lists the files that import net/http for the numbers and texts of statuses only: those of errors for callers over HTTP, and
// those of providers.
var statusOnly = []string{"agent/callable.go", "agent/errors.go", "chat/bounds.go", "chat/modelerror.go", "ledger/errors.go"}

func transportImports(t *tree) (found []string) {
	for _, f := range t.files {
		allowed, core := transportFiles[f.dir]
		if !core || f.test || slices.Contains(allowed, path.Base(f.path)) {
			continue
		}
		for _, imp := range sortedImports(f) {
			switch {
			case !slices.Contains(transports, imp.path):
			case imp.path == "net/http" && slices.Contains(statusOnly, f.path):
				found = append(found, notStatus(t, f)...)
			default:
				found = append(found, t.at(imp.pos, "%s is a primitive, and may not import %s", f.path, imp.path))
			}
		}
	}
	return found
}

// notStatus returns the uses of net/http in a file, other than its statuses.
func notStatus(t *tree, f *file) (found []string) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && x.Name == "http" && !strings.HasPrefix(s.Sel.Name, "Status") {
			found = append(found, t.at(s.Pos(), "%s may use only the statuses of net/http, not http.%s", f.path, s.Sel.Name))
		}
		return true
	})
	return found
}
