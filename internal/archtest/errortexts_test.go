package archtest

import (
	"go/ast"
	"go/token"
	"path"
	"strconv"
	"strings"
)

// errorTextPackages are the packages with errors that name them, by the names of their folders. Errors of chat/uimessage name
// chat, since programs use its types as those of chat.
var errorTextPackages = map[string]string{
	".": "dohost", "agent": "agent", "chat": "chat", "chat/anthropic": "anthropic", "chat/chattest": "chattest",
	"chat/extract": "extract", "chat/openai": "openai", "chat/uimessage": "chat", "cli": "cli", "cluster": "cluster",
	"cluster/nats/natslog": "natslog", "dohosttest": "dohosttest", "inbox": "inbox", "ledger": "ledger",
	"ledger/ledgertest": "ledgertest", "pool": "pool", "sharedlog": "sharedlog", "sharedlog/dirlog": "dirlog",
	"sharedlog/logtest": "logtest", "streams": "streams", "streams/consumer": "consumer", "web": "web",
}

// variablesOnly are packages with other errors, which name a flag of the command line: only the exported variables name the package.
var variablesOnly = map[string]bool{"cli": true}

// Reasons for errors with texts that do not name their package.
const (
	isCause    = "it is the cause in an error that names the package"
	isAnswer   = "clients, servers or models get the text as an answer"
	isInternal = "no exported function returns it"
	inReport   = "it is a part of the report of a test"
)

// otherTexts are variables and types of errors that may have other texts, and the reasons.
var otherTexts = map[string]string{
	"errCodeFault": isCause, "errCodeReset": isCause,
	"errFlushEnded": isInternal, "errHeartbeat": isInternal, "errLoopEnded": isInternal, "errReset": isInternal,

	"agent/errNoMethod": isAnswer, "agent/errNotCallable": isAnswer, "agent/errRejected": isAnswer,

	"chat/errCallEnded": isAnswer, "chat/errNoAnswer": isCause, "chat/errNoCallRecord": isAnswer,
	"chat/clientBudgetError": isAnswer, "chat/lateCallError": isAnswer, "chat/taskError": isAnswer,

	"cluster/nats/natslog/Flags":      "its errors name flags",
	"cluster/nats/natslog/errDamaged": isCause, "cluster/nats/natslog/errFrame": isCause, "cluster/nats/natslog/errMissing": isCause,
	"sharedlog/dirlog/errFilled": isCause,

	"dohosttest/errDisk": inReport, "dohosttest/errExited": inReport, "dohosttest/errNoOrder": inReport,
	"dohosttest/errNotDeterministic": inReport, "dohosttest/errStuck": inReport,

	"ledger/errNotUTF8": isCause, "ledger/errZone": isCause,

	"streams/errLocalAddress": isAnswer, "streams/errNoJSON": isAnswer, "streams/errNotUTF8": isAnswer, "streams/errOffset": isAnswer,
	"streams/boundedList": isAnswer, "streams/errWakeStream": isAnswer, "streams/consumer/errSignature": isAnswer,
}

// errorTexts finds errors with a text that does not begin with the name of the package: the results of exported functions
// and methods, the variables of the package, and the texts of its types of errors. It follows the names of the package's
// variables, but no calls.
func errorTexts(t *tree) (findings []string) {
	packages := t.packages()
	for _, dir := range t.sortedPackages() {
		name, ok := errorTextPackages[dir]
		if !ok {
			continue
		}
		p := &packageErrors{dir: dir, vars: map[string]ast.Expr{}}
		for _, f := range packages[dir] {
			if !f.test {
				p.add(f)
			}
		}
		found := func(at token.Pos, text string) {
			if !strings.HasPrefix(text, name+": ") {
				findings = append(findings, t.at(at, "the text of an error is %q: begin it with %q", text, name+": "))
			}
		}
		for _, e := range p.errors {
			if id, ok := e.(*ast.Ident); ok && p.hasOtherText(id.Name) {
				e = p.vars[id.Name]
			}
			if text, ok := errorText(e); ok {
				found(e.Pos(), text)
			}
		}
		for _, e := range p.texts {
			if text, ok := textOf(e); ok {
				found(e.Pos(), text)
			}
		}
	}
	return findings
}

// packageErrors has the errors of a package.
type packageErrors struct {
	dir    string
	vars   map[string]ast.Expr // values of the variables
	errors []ast.Expr          // of variables, and results
	texts  []ast.Expr          // results of methods Error
}

func (p *packageErrors) add(f *file) {
	for _, d := range f.syntax.Decls {
		switch d := d.(type) {
		case *ast.GenDecl:
			p.addVars(d)
		case *ast.FuncDecl:
			switch {
			case variablesOnly[p.dir]:
			case !d.Name.IsExported() || d.Body == nil || d.Recv != nil && p.hasOtherText(receiver(d)):
			case d.Recv != nil && d.Name.Name == "Error":
				p.texts = append(p.texts, returned(d.Body)...)
			default: // of a type that is not exported, too: it may implement an exported interface
				p.errors = append(p.errors, returned(d.Body)...)
			}
		}
	}
}

func (p *packageErrors) hasOtherText(name string) bool {
	return otherTexts[path.Join(p.dir, name)] != ""
}

func (p *packageErrors) addVars(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		v, ok := spec.(*ast.ValueSpec)
		if !ok || d.Tok != token.VAR || len(v.Values) != len(v.Names) {
			continue
		}
		for i, n := range v.Names {
			p.vars[n.Name] = v.Values[i]
			if !p.hasOtherText(n.Name) && (n.IsExported() || !variablesOnly[p.dir]) {
				p.errors = append(p.errors, v.Values[i])
			}
		}
	}
}

// returned returns the results of the return statements of a function, without those of the functions in it, and the
// arguments of the calls of yield: an iterator is such a function.
func returned(body *ast.BlockStmt) (results []ast.Expr) {
	depth := 0
	var walk func(n ast.Node) bool
	walk = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			depth++
			ast.Inspect(n.Body, walk)
			depth--
			return false
		case *ast.ReturnStmt:
			if depth == 0 {
				results = append(results, n.Results...)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "yield" {
				results = append(results, n.Args...)
			}
		}
		return true
	}
	ast.Inspect(body, walk)
	return results
}

// errorText returns the text, or the format, of an error that a call of errors.New or fmt.Errorf makes. A format that
// begins with an error that is not a kind of another package has the text of that error.
func errorText(e ast.Expr) (text string, ok bool) {
	call, isCall := e.(*ast.CallExpr)
	if !isCall || len(call.Args) == 0 {
		return "", false
	}
	if f := selector(call.Fun); f != "errors.New" && f != "fmt.Errorf" {
		return "", false
	}
	if text, ok = literal(call.Args[0]); !ok {
		return "", false
	}
	wraps := strings.HasPrefix(text, "%w") && len(call.Args) > 1
	return text, !wraps || isForeignKind(selector(call.Args[1]))
}

// isForeignKind reports whether a selection is a kind of errors of another of these packages.
func isForeignKind(selection string) bool {
	from, name, _ := strings.Cut(selection, ".")
	if !strings.HasPrefix(name, "Err") {
		return false
	}
	for _, of := range errorTextPackages {
		if of == from {
			return true
		}
	}
	return false
}

// textOf returns the beginning of a text that is a literal, a sum that begins with one, or a format of fmt.Sprintf.
func textOf(e ast.Expr) (text string, ok bool) {
	switch x := e.(type) {
	case *ast.BinaryExpr:
		return textOf(x.X)
	case *ast.CallExpr:
		if selector(x.Fun) != "fmt.Sprintf" || len(x.Args) == 0 {
			return "", false
		}
		text, ok = literal(x.Args[0])
		return text, ok && !strings.HasPrefix(text, "%")
	}
	return literal(e)
}

// literal returns the value of a literal of a string.
func literal(e ast.Expr) (text string, ok bool) {
	lit, isLit := e.(*ast.BasicLit)
	if !isLit {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

// selector returns the text of a selection from a package, or "".
func selector(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok {
			return x.Name + "." + s.Sel.Name
		}
	}
	return ""
}
