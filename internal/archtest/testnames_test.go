package archtest

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

// testSubjects requires the name of a test to begin with its subject, a noun, so that "go test -run Fiber" runs the tests of fibers. It
// knows the other words by list, and participles by their ending.
func testSubjects(t *tree) (found []string) {
	for _, f := range t.files {
		for _, decl := range f.syntax.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok || !f.test || d.Recv != nil {
				continue
			}
			m := namedForSubject.FindStringSubmatch(d.Name.Name)
			if m == nil || slices.ContainsFunc(featureNames, func(name string) bool { return strings.HasPrefix(m[1], name) }) {
				continue
			}
			if slices.Contains(noSubjects, m[2]) || strings.HasSuffix(m[2], "ed") && !slices.Contains(nounsInEd, m[2]) {
				found = append(found, t.at(d.Pos(), "%s begins with %q: begin the name of a test with its subject", d.Name.Name, m[2]))
			}
		}
	}
	return found
}

var namedForSubject = regexp.MustCompile(`^(?:Test|Fuzz|Benchmark)(([A-Z][a-z]*).*)$`)

// featureNames are names of features and of functions that begin with an adjective.
var featureNames = []string{"AutoResponse", "DeadLetter", "EveryPoint", "ExternalCall", "LongPoll", "OwnTokens", "SharedLog", "UnknownTarget"}

// nounsInEd are words that end in "ed" and are no participles: Shed is a function.
var nounsInEd = []string{"Feed", "Seed", "Shed"}

// noSubjects are adjectives, irregular participles, quantifiers, prepositions and pronouns.
var noSubjects = strings.Fields(`
	After All An Another Any At Async Auto Backward Bad Before Begun Big Broken Busy Cold Concurrent Dead Deep Due Durable During Each
	Early Earlier Empty Ephemeral Equal Every Extra False Few First Foreign Former Forward Fresh Full Good Hanging Hostile Huge Idempotent
	If Impossible In Incomplete Invalid It Large Last Late Later Live Long Lost Many Missing More Most Negative Newer Nil No None Not
	Nothing Null Old Older One Only Optimistic Other Overdue Own Pending Private Public Random Rare Running Same Second Several Short
	Silent Slow Small Some Stable Stale Stray Strange Such That The Tiny Too True Two Unavailable Unclean Unknown Unreachable Unsafe
	Unsent Unused Valid Waiting What When While Wide With Withdrawn Within Without Wrong Young
`)
