package archtest

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
)

// maxRecoveryFiles bounds the files that a reader of the recovery of a fiber opens.
const maxRecoveryFiles = 6

// recoveryRow has a file, and its functions that have a part in the recovery of a fiber.
var recoveryRow = regexp.MustCompile("^\\| [^|]+ \\| `(\\S+\\.go)` \\| `([^|]+)` \\|$")

// recoveryFiles requires the functions in the table of the recovery of a fiber in ARCHITECTURE.md to be in the files of their rows, and
// bounds the number of these files.
func recoveryFiles(t *tree) (found []string) {
	declared := map[string]bool{}
	for _, f := range t.files {
		for _, decl := range f.syntax.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && !f.test {
				declared[f.path+" "+funcName(d)] = true
			}
		}
	}
	files := map[string]bool{}
	for line := range strings.Lines(tableAfter(t.documents["ARCHITECTURE.md"], "| step | file | functions |")) {
		m := recoveryRow.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			found = append(found, fmt.Sprintf("ARCHITECTURE.md: the row %q has no file with functions", strings.TrimSpace(line)))
			continue
		}
		files[m[1]] = true
		for name := range strings.SplitSeq(m[2], "`, `") {
			if where := m[1] + " " + name; !declared[where] {
				found = append(found, fmt.Sprintf("ARCHITECTURE.md: there is no function `%s`", where))
			}
		}
	}
	if n := len(files); n < 1 || n > maxRecoveryFiles {
		found = append(found, fmt.Sprintf("ARCHITECTURE.md: the recovery of a fiber is in %d files, want 1 to %d", n, maxRecoveryFiles))
	}
	return found
}
