package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

//go:embed mutant.go.txt
var mutantSource []byte

// instrument writes files with all mutations to dir, and the list for -overlay, whose path it
// returns. The number of a mutation is its index in sites, and 1.
func instrument(root, module string, sites []*site, dir string) (overlay string, err error) {
	replace := map[string]string{}
	write := func(file string, text []byte) error {
		to := filepath.Join(dir, strconv.Itoa(len(replace))+"-"+filepath.Base(file))
		replace[file] = to
		return os.WriteFile(to, text, 0o666)
	}
	if err := write(filepath.Join(root, "internal", "mutant", "mutant.go"), mutantSource); err != nil {
		return "", err
	}
	edits := map[string][]numbered{}
	for i, s := range sites {
		for _, e := range s.edits {
			edits[s.file] = append(edits[s.file], numbered{e, i + 1})
		}
	}
	for file, es := range edits {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		at, err := packageClause(file, text)
		if err != nil {
			return "", err
		}
		es = append(es, numbered{edit: edit{at: at, after: fmt.Sprintf("; import mutant %q", module+"/internal/mutant")}})
		if err := write(file, apply(string(text), es)); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, list, 0o666)
}

// packageClause returns the offset of the end of the package clause.
func packageClause(file string, text []byte) (int, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, text, parser.PackageClauseOnly)
	if err != nil {
		return 0, err
	}
	return fset.Position(f.Name.End()).Offset, nil
}

// numbered is an edit of a mutation.
type numbered struct {
	edit
	id int
}

// apply makes the edits. At the same offset, nodes end before others begin, and the edits of an
// outer node enclose those of an inner one; of the same node, those of the first mutation do.
func apply(text string, edits []numbered) []byte {
	slices.SortStableFunc(edits, func(a, b numbered) int {
		switch {
		case a.at != b.at:
			return cmp.Compare(a.at, b.at)
		case a.closing && b.closing:
			return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(b.id, a.id))
		case a.closing:
			return -1
		case b.closing:
			return 1
		}
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.id, b.id))
	})
	var out strings.Builder
	from := 0
	for _, e := range edits {
		out.WriteString(text[from:e.at])
		if e.before != "" {
			out.WriteString(e.before + strconv.Itoa(e.id))
		}
		out.WriteString(e.after)
		from = e.at + e.width
	}
	out.WriteString(text[from:])
	return []byte(out.String())
}
