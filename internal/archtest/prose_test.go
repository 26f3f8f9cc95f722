package archtest

import (
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// The style of the project bans some phrases (see docs/glossary.md). The tree had thousands of them when the ban began,
// so testdata/prose.txt has a ceiling for each phrase in each package and document. A count above its ceiling is a
// failure, and so is a count below it: the change that removes a phrase lowers the ceiling with -lower, which writes
// nothing if a count is above its ceiling.

var lower = flag.Bool("lower", false, "write the present counts of banned phrases to testdata/prose.txt")

// A phrase is banned from comments, documents, the help of commands, and the texts of errors, logs and pages.
type phrase struct {
	name string
	re   *regexp.Regexp
}

var phrases = []phrase{
	{"what", regexp.MustCompile(`(?i)\bwhat(ever)?\b`)},
	{"who", regexp.MustCompile(`(?i)\bwho(m|ever)?\b`)},
	{"of-which", regexp.MustCompile(`(?i)\b(of|by|for|in|with|from|to|at|than) which\b`)},
	{"somebody", regexp.MustCompile(`(?i)\b(some|no|any)body\b`)},
	{"go-on", regexp.MustCompile(`(?i)\b(go|goes|going|gone|went) on\b`)},
	{"is-told", regexp.MustCompile(`(?i)\b(is|are|was|were|be|been|being) (told|shown)\b`)},
	{"behind", regexp.MustCompile(`(?i)\bbehind\b`)},
	{"beside", regexp.MustCompile(`(?i)\bbesides?\b`)},
	{"meanwhile", regexp.MustCompile(`(?i)\bmeanwhile\b`)},
	{"at-once", regexp.MustCompile(`(?i)\bat once\b`)},
	{"that-of", regexp.MustCompile(`(?i)\b(that|those) of\b`)},
	{"one-that", regexp.MustCompile(`(?i)\b(one|those) that\b`)},
	{"whose", regexp.MustCompile(`(?i)\bwhose\b`)},
	{"none-of", regexp.MustCompile(`(?i)\bnone of\b`)},
	{"life", regexp.MustCompile(`(?i)\blife\b|\b(the|its|their|all|both|many|several|these|those|of|in|two|three|[0-9]+|%d) lives\b`)},
	{"boot", regexp.MustCompile(`(?i)\bboot\b`)},
	{"says-that", regexp.MustCompile(`(?i)\b(says|tells) (that|whether)\b`)},
	{"a-look", regexp.MustCompile(`(?i)\b(a|two) looks?([^-\w]|$)`)},
}

// passage is a comment, the help of a flag or a command, a text of an error, of the log, of a test or of a page, or a document.
type passage struct {
	place string // a folder, a package and " tests", " texts", " tests texts" or " scripts", or the path of a document
	at    string
	text  string
}

// passages returns the comments and the help of the packages, the texts of their errors and logs, the sentences in the strings of their tests, the pages, the comments
// of the page's modules and styles, the documents, and the comments of the tests' scripts of a repository.
func passages(fsys fs.FS) (all []passage, err error) {
	t, err := load(fsys)
	if err != nil {
		return nil, err
	}
	all = goPassages(t)
	err = eachFile(fsys, ".html", func(p string) error {
		text, err := fs.ReadFile(fsys, p)
		all = append(all, passage{path.Dir(p) + " texts", p, markup.ReplaceAllString(string(text), " ")})
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, ext := range []string{".js", ".css"} {
		err := eachFile(fsys, ext, func(p string) error {
			text, err := fs.ReadFile(fsys, p)
			for _, comment := range scriptComment.FindAllString(string(text), -1) {
				all = append(all, passage{path.Dir(p), p, quoted.ReplaceAllString(comment, "")})
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	err = eachFile(fsys, ".md", func(p string) error {
		if p == glossary {
			return nil
		}
		text, err := fs.ReadFile(fsys, p)
		all = append(all, passage{p, p, quoted.ReplaceAllString(fenced.ReplaceAllString(string(text), ""), "")})
		return err
	})
	if err != nil {
		return nil, err
	}
	scripts, err := scriptPassages(fsys)
	return append(all, scripts...), err
}

// goPassages returns the passages of the Go files of a repository.
func goPassages(t *tree) (all []passage) {
	for _, f := range t.files {
		place := f.dir
		if f.test {
			place += " tests"
		}
		add := func(place string, n ast.Node, text string) {
			pos := t.fset.Position(n.Pos())
			all = append(all, passage{place, fmt.Sprintf("%s:%d", pos.Filename, pos.Line), text})
		}
		for _, group := range f.syntax.Comments {
			add(place, group, quoted.ReplaceAllString(group.Text(), ""))
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok && field.Tag != nil {
				add(place, field.Tag, reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("help"))
			}
			if call, ok := n.(*ast.CallExpr); ok && !f.test && makesText(call) {
				for _, text := range literals(call) {
					add(place+" texts", call, text)
				}
			}
			if text, ok := sentence(n); ok && f.test {
				add(place+" texts", n, text)
			}
			return true
		})
	}
	return all
}

// sentence returns the text of a string literal with three words or more.
func sentence(n ast.Node) (text string, ok bool) {
	l, ok := n.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil && len(strings.Fields(text)) >= 3
}

// scriptPassages returns the comments of the scripts and transcripts in the folders named testdata.
func scriptPassages(fsys fs.FS) (all []passage, err error) {
	err = fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		dir, _, inside := strings.Cut(p, "/testdata/")
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && path.Base(p) != "testdata" && ignored(fsys, p):
			return fs.SkipDir
		case d.IsDir() || !inside || path.Ext(p) != ".txt" && path.Ext(p) != ".txtar":
			return nil
		}
		text, err := fs.ReadFile(fsys, p)
		comments := strings.Join(hashComment.FindAllString(string(text), -1), "\n")
		all = append(all, passage{dir + " scripts", p, quoted.ReplaceAllString(comments, "")})
		return err
	})
	return all, err
}

// makesText reports whether a call makes an error or a line of the log of its arguments.
func makesText(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := f.X.(*ast.Ident)
	return ok && (x.Name == "slog" || x.Name == "errors" && f.Sel.Name == "New" || x.Name == "fmt" && f.Sel.Name == "Errorf")
}

// literals returns the arguments that are string literals.
func literals(call *ast.CallExpr) (texts []string) {
	for _, arg := range call.Args {
		if l, ok := arg.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if text, err := strconv.Unquote(l.Value); err == nil {
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// glossary is the document that lists the phrases.
const glossary = "docs/glossary.md"

var (
	markup        = regexp.MustCompile(`(?s)<script.*?</script>|<style.*?</style>|<[^>]*>`)
	quoted        = regexp.MustCompile("`[^`\n]*`")
	hashComment   = regexp.MustCompile(`(?m)^#.*$`)
	scriptComment = regexp.MustCompile(`(?s:/\*.*?\*/)|(?m:(?:^|\s)//.*$)`)
	fenced        = regexp.MustCompile("(?ms)^```.*?^```$|^    .*?$")
)

// counts is the number of phrases in each place, and where they are.
type counts map[string]map[string][]string

func countPhrases(all []passage) (found counts, words map[string]int) {
	found, words = counts{}, map[string]int{}
	for _, p := range all {
		words[p.place] += len(strings.Fields(p.text))
		for _, ph := range phrases {
			for range ph.re.FindAllStringIndex(p.text, -1) {
				if found[p.place] == nil {
					found[p.place] = map[string][]string{}
				}
				found[p.place][ph.name] = append(found[p.place][ph.name], p.at)
			}
		}
	}
	return found, words
}

// String returns the lines of a file of ceilings.
func (c counts) String() string {
	var b strings.Builder
	for _, place := range slices.Sorted(maps.Keys(c)) {
		for _, name := range slices.Sorted(maps.Keys(c[place])) {
			fmt.Fprintf(&b, "%s\t%s\t%d\n", place, name, len(c[place][name]))
		}
	}
	return b.String()
}

// against compares counts with the ceilings of a file. It describes the counts above their ceilings, which are failures,
// and those below, whose ceilings can be lowered.
func (c counts) against(ceilings string) (above, below []string, err error) {
	allowed := map[[2]string]int{}
	for line := range strings.Lines(ceilings) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		n, err := strconv.Atoi(columns[len(columns)-1])
		if err != nil || len(columns) != 3 {
			return nil, nil, fmt.Errorf("%q: want a place, a phrase and a number", line)
		}
		allowed[[2]string{columns[0], columns[1]}] = n
	}
	for place, names := range c {
		for name, at := range names {
			key := [2]string{place, name}
			if n := allowed[key]; len(at) > n {
				above = append(above, fmt.Sprintf("%s has %d times %q, the ceiling is %d: %s", place, len(at), name, n, some(slices.Compact(at))))
			} else if len(at) == n {
				delete(allowed, key)
			}
		}
	}
	for key, n := range allowed {
		if len(c[key[0]][key[1]]) < n {
			below = append(below, fmt.Sprintf("%s has fewer than %d times %q", key[0], n, key[1]))
		}
	}
	slices.Sort(above)
	slices.Sort(below)
	return above, below, nil
}

// some returns the first places, which are enough to see the kind of sentence.
func some(places []string) string {
	if len(places) > 10 {
		places = append(slices.Clone(places[:10]), "and others")
	}
	return strings.Join(places, ", ")
}

// TestPhrasesAreWithinTheirCeilings compares the tree with testdata/prose.txt, and logs the rates of the whole tree.
func TestPhrasesAreWithinTheirCeilings(t *testing.T) {
	all, err := passages(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	found, words := countPhrases(all)
	const file = "testdata/prose.txt"
	ceilings, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	above, below, err := found.against(string(ceilings))
	switch {
	case err != nil || len(above) > 0:
		t.Errorf("%v\n%s", err, lines(above))
	case *lower:
		err = os.WriteFile(file, []byte(found.String()), 0o644)
	case len(below) > 0:
		t.Errorf("go test ./internal/archtest -run Phrases -lower\n%s", lines(below))
	}
	if err != nil {
		t.Error(err)
	}
	logRates(t, found, words)
}

// logRates logs the phrases in a thousand words of the product's comments, of tests' comments, and of documents.
func logRates(t *testing.T, found counts, words map[string]int) {
	kind := func(place string) string {
		switch {
		case strings.HasSuffix(place, ".md"):
			return "documents"
		case strings.Contains(place, " tests"), strings.HasSuffix(place, " scripts"):
			return "tests"
		}
		return "comments"
	}
	sums, phrasesOf := map[string]int{}, map[string]map[string]int{"documents": {}, "tests": {}, "comments": {}}
	for place, n := range words {
		sums[kind(place)] += n
		for name, at := range found[place] {
			phrasesOf[kind(place)][name] += len(at)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(sums)) {
		line := fmt.Sprintf("%s: %d words; in a thousand:", k, sums[k])
		for _, p := range phrases {
			line += fmt.Sprintf(" %s %.2f", p.name, 1000*float64(phrasesOf[k][p.name])/float64(sums[k]))
		}
		t.Log(line)
	}
}

func TestPhrasesAreCounted(t *testing.T) {
	all, err := passages(fstest.MapFS{
		"go.mod":          {Data: []byte("module " + modulePath)},
		"alarm/a.go":      {Data: []byte("// Package alarm says what it is, `what` it was.\npackage alarm\n\n// Whoever goes on, besides, is told at once\n// by somebody behind it, of which meanwhile.\nvar what = \"who\"\n")},
		"alarm/a_test.go": {Data: []byte("package alarm\n\n/* What. */\n")},
		"docs/b.md":       {Data: []byte("It says that its life had two looks at the boot: a look-up, it lives in memory, and the lives of two objects.\n")},
		"docs/a.md":       {Data: []byte("What is at\nonce?\n```go\nwhat\n```\n    what\n")},
		glossary:          {Data: []byte("what")},
		"cli/c.go":        {Data: []byte("package cli\n\ntype flags struct {\n\tDir string `name:\"who\" help:\"What it is.\"`\n}\n")},
		"page/p.js":       {Data: []byte("// What\nconst what = \"https://who\"; // who\n/* who\nis told */\n")},
		"cli/e.go":        {Data: []byte("package cli\n\nvar err = errors.New(\"who at once\")\nvar x = other(\"who\")\nvar a = slog.String(\"behind\", \"x\")\n")},
		"cli/e_test.go":   {Data: []byte("package cli\n\nvar err = errors.New(\"who\")\nvar text = `who is \nthere`\nvar two = \"who is\"\n")},
		"page/p.html":     {Data: []byte("<p title=who>one that\nis <b>none of</b> those of it, whose</p><script>who</script>\n")},
		"page/p.css":      {Data: []byte(".what { color: red; } /* Behind. */\n")},

		"alarm/testdata/a.txt":                 {Data: []byte("# Who asks.\ncall who a # who\n")},
		"alarm/testdata/script/b.txtar":        {Data: []byte("exec who\n# At once,\n# `who` or not.\n")},
		"alarm/testdata/c.json":                {Data: []byte("# Who\n")},
		"alarm/notes.txt":                      {Data: []byte("# Who\n")},
		"page/node_modules/who/testdata/a.txt": {Data: []byte("# Who\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	found, words := countPhrases(all)
	const want = "alarm\tat-once\t1\nalarm\tbehind\t1\nalarm\tbeside\t1\nalarm\tgo-on\t1\nalarm\tis-told\t1\nalarm\tmeanwhile\t1\n" +
		"alarm\tof-which\t1\nalarm\tsomebody\t1\nalarm\twhat\t1\nalarm\twho\t1\n" +
		"alarm scripts\tat-once\t1\nalarm scripts\twho\t1\nalarm tests\twhat\t1\ncli\twhat\t1\n" +
		"cli tests texts\twho\t1\ncli texts\tat-once\t1\ncli texts\tbehind\t1\ncli texts\twho\t1\ndocs/a.md\twhat\t1\n" +
		"docs/b.md\ta-look\t1\ndocs/b.md\tboot\t1\ndocs/b.md\tlife\t2\ndocs/b.md\tsays-that\t1\n" +
		"page\tbehind\t1\npage\tis-told\t1\npage\twhat\t1\npage\twho\t2\n" +
		"page texts\tnone-of\t1\npage texts\tone-that\t1\npage texts\tthat-of\t1\npage texts\twhose\t1\n"
	if found.String() != want || words["alarm"] != 23 {
		t.Errorf("%v\nfound\n%swant\n%s", words, found, want)
	}
	above, below, err := found.against("alarm\tat-once\t2\nalarm\twhat\t0\nagent\twho\t1\n" + strings.ReplaceAll(strings.ReplaceAll(want, "alarm\tat-once\t1\n", ""), "alarm\twhat\t1\n", ""))
	wantAbove := []string{`alarm has 1 times "what", the ceiling is 0: alarm/a.go:1`}
	wantBelow := []string{`agent has fewer than 1 times "who"`, `alarm has fewer than 2 times "at-once"`}
	if err != nil || !slices.Equal(above, wantAbove) || !slices.Equal(below, wantBelow) {
		t.Errorf("%v\n%s%s", err, lines(above), lines(below))
	}
}
