package archtest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var codeSpan = regexp.MustCompile("`([^`]+)`")

// layers compares the table of layers in AGENTS.md with the imports: no package imports one of a row above its own. The row
// "root" is the root package. A package without a row is outside of the order.
func layers(t *tree) (found []string) {
	const document = "AGENTS.md"
	rows := layerRows(t)
	if rows == nil && t.documents[document] != "" {
		return []string{document + " has no table of layers"}
	}
	for dir := range rows {
		if !t.hasPackage(dir) {
			found = append(found, fmt.Sprintf("%s: the table of layers names %s, which is no package", document, dir))
		}
	}
	for _, f := range t.files {
		row, ok := lookUpRow(rows, f.dir)
		if f.test || !ok {
			continue
		}
		for _, imp := range sortedImports(f) {
			of, ours := ourPackage(imp.path)
			if above, ok := lookUpRow(rows, of); ours && ok && above < row {
				found = append(found, t.at(imp.pos, "%s imports %s, which is in a row above it in %s", f.dir, of, document))
			}
		}
	}
	return found
}

// layerRows returns the number of the row of each package in the table of layers.
func layerRows(t *tree) map[string]int {
	var rows map[string]int
	for i, line := range strings.Split(tableAfter(t.documents["AGENTS.md"], "| layer |"), "\n") {
		first := before(strings.TrimPrefix(line, "|"), "|")
		if strings.HasPrefix(strings.TrimSpace(first), "other packages") {
			break
		}
		if rows == nil {
			rows = map[string]int{}
		}
		if strings.TrimSpace(first) == "root" {
			rows["."] = i
		}
		for _, m := range codeSpan.FindAllStringSubmatch(first, -1) {
			rows[m[1]] = i
		}
	}
	return rows
}

// lookUpRow returns the row of dir, or the row of the nearest folder above it.
func lookUpRow(rows map[string]int, dir string) (row int, ok bool) {
	for {
		if row, ok = rows[dir]; ok || !strings.Contains(dir, "/") {
			return row, ok
		}
		dir = dir[:strings.LastIndex(dir, "/")]
	}
}

// leafTable compares the table of the small packages in ARCHITECTURE.md with the imports of the packages that AGENTS.md has a
// row for: it has each package in internal that has a row there and imports no package of ours, and the importers of each.
func leafTable(t *tree) (found []string) {
	const document = "ARCHITECTURE.md"
	rows := layerRows(t)
	if rows == nil {
		return nil
	}
	leaf, importers := map[string]bool{}, map[string][]string{}
	for _, f := range t.files {
		if f.test {
			continue
		}
		if _, seen := leaf[f.dir]; !seen {
			_, ok := rows[f.dir]
			leaf[f.dir] = ok && strings.HasPrefix(f.dir, "internal/")
		}
		for _, imp := range sortedImports(f) {
			of, ours := ourPackage(imp.path)
			if !ours {
				continue
			}
			leaf[f.dir] = false
			if _, ok := lookUpRow(rows, f.dir); ok && !slices.Contains(importers[of], f.dir) {
				importers[of] = append(importers[of], f.dir)
			}
		}
	}
	listed := map[string]bool{}
	for _, line := range strings.Split(tableAfter(t.documents[document], "| package | contents | imported by |"), "\n") {
		columns := strings.Split(line, "|")
		if len(columns) != 5 {
			continue
		}
		dir := strings.Trim(columns[1], " `")
		listed[dir] = true
		slices.Sort(importers[dir])
		var want []string
		for _, importer := range importers[dir] {
			if importer == "." {
				want = append(want, "the root")
			} else {
				want = append(want, "`"+importer+"`")
			}
		}
		if got := strings.TrimSpace(columns[3]); got != strings.Join(want, ", ") {
			found = append(found, fmt.Sprintf("%s: %s is imported by %s, not by %s", document, dir, strings.Join(want, ", "), got))
		}
	}
	for dir, isLeaf := range leaf {
		if isLeaf != listed[dir] {
			found = append(found, fmt.Sprintf("%s: %s in the table of small packages: %v, want %v", document, dir, listed[dir], isLeaf))
		}
	}
	slices.Sort(found)
	return found
}

// tableAfter returns the rows of a table of a document, without its heading.
func tableAfter(document, heading string) string {
	_, table, ok := strings.Cut(document, heading)
	if !ok {
		return ""
	}
	table, _, _ = strings.Cut(table, "\n\n")
	lines := strings.SplitN(table, "\n", 3)
	return lines[len(lines)-1]
}

// hasPackage reports whether a folder has Go files, or a folder below it has some.
func (t *tree) hasPackage(dir string) bool {
	return slices.ContainsFunc(t.files, func(f *file) bool { return within(dir, f.dir) })
}
