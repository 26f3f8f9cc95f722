package archtest

import (
	"go/types"
	"slices"
	"strings"
	"testing"
)

// A program can name the types of all exported fields and methods of an alias of package dohost without importing a
// package that carries no promise of compatibility: package dohost has aliases of those types too.
func TestAliasesLeadToNamedTypes(t *testing.T) {
	loaded := constants{root: "../..", packages: map[string]*types.Package{}}
	root, err := loaded.Import(modulePath)
	if err != nil {
		t.Fatal(err)
	}
	aliases, findings := unnamedTypes(root)
	if aliases == 0 {
		t.Fatal("no alias was checked")
	}
	t.Logf("%d aliases of types of other packages", aliases)
	if len(findings) > 0 {
		t.Errorf("types without a name in package dohost:\n%s", strings.Join(findings, "\n"))
	}
}

// unnamedTypes returns the number of aliases of a package for types of other packages of the module, and the types of
// their fields and methods that the package does not name.
func unnamedTypes(p *types.Package) (aliases int, findings []string) {
	named := map[types.Object]string{} // the types that the package names, by their declarations
	for _, name := range p.Scope().Names() {
		obj, ok := p.Scope().Lookup(name).(*types.TypeName)
		if !ok || !obj.Exported() {
			continue
		}
		if n, ok := types.Unalias(obj.Type()).(*types.Named); ok && n.Obj().Pkg() != p && ofModule(n.Obj().Pkg()) {
			named[n.Obj()] = name
		}
	}
	for obj, name := range named {
		for _, n := range exportedTypes(obj.Type()) {
			if o := n.Obj(); o.Pkg() != p && o.Exported() && ofModule(o.Pkg()) && named[o] == "" {
				findings = append(findings, name+" leads to "+o.Pkg().Path()+"."+o.Name())
			}
		}
	}
	slices.Sort(findings)
	return len(named), findings
}

func ofModule(p *types.Package) bool {
	return p != nil && (p.Path() == modulePath || strings.HasPrefix(p.Path(), modulePath+"/"))
}

// exportedTypes returns the named types in the exported fields and methods of a type.
func exportedTypes(t types.Type) (found []*types.Named) {
	named := t.(*types.Named)
	for m := range named.Methods() {
		if m.Exported() {
			found = append(found, namedIn(m.Type())...)
		}
	}
	switch u := named.Underlying().(type) {
	case *types.Struct:
		for f := range u.Fields() {
			if f.Exported() {
				found = append(found, namedIn(f.Type())...)
			}
		}
	case *types.Interface:
		for m := range u.Methods() {
			if m.Exported() {
				found = append(found, namedIn(m.Type())...)
			}
		}
	default:
		found = append(found, namedIn(u)...)
	}
	return found
}

// namedIn returns the named types that a type consists of.
func namedIn(t types.Type) (found []*types.Named) {
	switch t := types.Unalias(t).(type) {
	case *types.Named:
		found = append(found, t)
		for a := range t.TypeArgs().Types() {
			found = append(found, namedIn(a)...)
		}
	case *types.Pointer:
		found = namedIn(t.Elem())
	case *types.Slice:
		found = namedIn(t.Elem())
	case *types.Array:
		found = namedIn(t.Elem())
	case *types.Chan:
		found = namedIn(t.Elem())
	case *types.Map:
		found = append(namedIn(t.Key()), namedIn(t.Elem())...)
	case *types.Signature:
		for v := range t.Params().Variables() {
			found = append(found, namedIn(v.Type())...)
		}
		for v := range t.Results().Variables() {
			found = append(found, namedIn(v.Type())...)
		}
	}
	return found
}
