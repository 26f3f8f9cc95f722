package main

import (
	"bytes"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestAPIReachesNoForeignGenericTypes follows the fields and methods of the exported types of the public packages. The compiler loads all
// types that it can reach there, and compiles the methods of generic ones again in each package that uses one of ours: Pebble's
// took 0.65 s of processor time. The test is in this package because the program imports nearly all public packages: go test has
// compiled them before it runs the test. In a package without these imports, the test would compile them a second time.
func TestAPIReachesNoForeignGenericTypes(t *testing.T) {
	const module = "github.com/dohost/dohost"
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}
	var public []string
	for _, dir := range []string{"", "/agent", "/chat", "/cli", "/dohosttest", "/inbox", "/ledger", "/pool", "/streams", "/web"} {
		public = append(public, module+dir)
	}
	out, err := exec.Command("go", append(args, public...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[path] = file
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		b, err := os.ReadFile(files[path])
		return io.NopCloser(bytes.NewReader(b)), err
	})
	r := reach{module: module, seen: map[types.Type]bool{}, found: map[string]bool{}}
	for _, path := range public {
		p, err := imports.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range p.Scope().Names() {
			if token.IsExported(name) {
				r.follow(p.Scope().Lookup(name).Type(), p.Name()+"."+name)
			}
		}
	}
	for _, f := range slices.Sorted(maps.Keys(r.found)) {
		t.Error(f)
	}
	if len(r.seen) < 500 {
		t.Errorf("%d types reached", len(r.seen))
	}
}

// reach follows types.
type reach struct {
	module string
	seen   map[types.Type]bool
	found  map[string]bool
}

// follow visits the types that a type reaches. at is the last place in this module on the way to it.
func (r *reach) follow(ty types.Type, at string) {
	switch x := ty.(type) {
	case *types.Alias:
		r.follow(types.Unalias(x), at)
	case *types.Named:
		r.named(x, at)
	case interface{ Elem() types.Type }: // pointers, slices, arrays, channels
		r.follow(x.Elem(), at)
		if m, ok := ty.(*types.Map); ok {
			r.follow(m.Key(), at)
		}
	case *types.Struct:
		for f := range x.Fields() {
			r.follow(f.Type(), at)
		}
	case *types.Tuple:
		for v := range x.Variables() {
			r.follow(v.Type(), at)
		}
	case *types.Signature:
		r.follow(x.Params(), at)
		r.follow(x.Results(), at)
	case *types.Interface:
		for m := range x.Methods() {
			r.follow(m.Type(), at)
		}
	}
}

func (r *reach) named(x *types.Named, at string) {
	if r.seen[x] {
		return
	}
	r.seen[x] = true
	path, name := "", x.Obj().Name()
	if p := x.Obj().Pkg(); p != nil {
		path = p.Path()
	}
	ours := strings.HasPrefix(path, r.module)
	generic := x.TypeArgs().Len() > 0 && !slices.Contains([]string{"sync/atomic", "iter", "unique"}, path) // these are small
	if generic && !ours {
		r.found[fmt.Sprintf("%s reaches %s.%s, which is generic", at, path, name)] = true
		return
	}
	for a := range x.TypeArgs().Types() {
		r.follow(a, at)
	}
	to := at
	if ours {
		to = strings.TrimPrefix(path+"."+name, r.module+"/")
	}
	if s, ok := x.Underlying().(*types.Struct); ok {
		for f := range s.Fields() {
			if ours {
				at = to + "." + f.Name()
			}
			r.follow(f.Type(), at)
		}
	} else {
		r.follow(x.Underlying(), to)
	}
	for m := range x.Methods() {
		if ours {
			at = to + "." + m.Name()
		}
		r.follow(m.Type(), at)
	}
}
