package archtest

import (
	"go/types"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// enumPrefixes are the prefixes of constants that do not repeat the name of their type.
var enumPrefixes = map[string]string{
	"ParkReason":    "Parked",   // the reason is read as a state: an alarm is Parked…
	"chat.Strategy": "Continue", // all strategies continue an interrupted reply
}

// A constant of an exported type begins with the name of the type, also without its last word: StatusQueued of Status,
// ChunkText of ChunkKind. So a reader of pkg.Constant knows the type, and two types of a package do not compete for a name.
func TestConstantsBeginWithTheirType(t *testing.T) {
	loaded := constants{root: "../..", packages: map[string]*types.Package{}}
	checked, used := 0, map[string]bool{}
	for _, dir := range append(slices.Clone(publicPackages), "chat/uimessage") {
		p, err := loaded.Import(path.Join(modulePath, dir))
		if err != nil {
			t.Fatal(err)
		}
		n, findings := bareConstants(p, dir, used)
		checked += n
		for _, f := range findings {
			t.Error(f)
		}
	}
	for name := range enumPrefixes {
		if !used[name] {
			t.Errorf("enumPrefixes has %s, and no constant needs it", name)
		}
	}
	if t.Logf("%d constants", checked); checked < 100 {
		t.Errorf("only %d constants were checked", checked)
	}
}

// bareConstants returns the number of the exported constants of exported types in a package, and findings about their
// names. used gets the entries of enumPrefixes that constants need.
func bareConstants(p *types.Package, dir string, used map[string]bool) (checked int, findings []string) {
	typeNames := map[types.Object]string{} // the exported types and aliases of the package, by their declarations
	for _, name := range p.Scope().Names() {
		if obj, ok := p.Scope().Lookup(name).(*types.TypeName); ok && obj.Exported() {
			if named, ok := types.Unalias(obj.Type()).(*types.Named); ok {
				typeNames[named.Obj()] = name
			}
		}
	}
	for _, name := range p.Scope().Names() {
		c, ok := p.Scope().Lookup(name).(*types.Const)
		if !ok || !c.Exported() {
			continue
		}
		named, ok := types.Unalias(c.Type()).(*types.Named)
		if !ok || typeNames[named.Obj()] == "" {
			continue
		}
		checked++
		typeName := typeNames[named.Obj()]
		if hasPrefix(name, typeName) || hasPrefix(name, withoutLastWord(typeName)) {
			continue
		}
		if key := strings.TrimPrefix(dir+"."+typeName, ".."); hasPrefix(name, enumPrefixes[key]) {
			used[key] = true
			continue
		}
		findings = append(findings, path.Join("dohost", dir)+"."+name+" is a "+typeName+": begin its name with the name of its type")
	}
	return checked, findings
}

// hasPrefix reports whether a name consists of a prefix, which is not empty, and of more words.
func hasPrefix(name, prefix string) bool {
	rest, ok := strings.CutPrefix(name, prefix)
	return ok && prefix != "" && rest != "" && !unicode.IsLower(rune(rest[0]))
}

// withoutLastWord returns a name without its last word; "" for a single word.
func withoutLastWord(name string) string {
	return name[:max(strings.LastIndexFunc(name, unicode.IsUpper), 0)]
}

func TestBareConstantsAreFound(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"eviction/e.go": "package eviction\n\ntype Mode int\n\nconst (\n\tEndFence Mode = iota\n\tCrash\n)\n",
		"d.go": `package dohost

import (
	"time"

	"github.com/dohost/dohost/eviction"
)

type (
	EndMode    = eviction.Mode
	ChunkKind  string
	State      int
	ParkReason int
	hidden     int
)

const (
	EndFence = eviction.EndFence
	Crash    = eviction.Crash

	ChunkText ChunkKind = "text"
	Chunked   ChunkKind = "ed"
	KindText  ChunkKind = "text"

	StateOpen State = iota
	State2    State = iota
	Closed    State = iota
	state     State = iota

	ParkedFailed ParkReason = iota
	NotParked    ParkReason = iota

	Visible hidden = 1
	Wait           = time.Second
	Number         = 3
)
`,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p, err := (&constants{root: dir, packages: map[string]*types.Package{}}).Import(modulePath)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	checked, findings := bareConstants(p, ".", used)
	const is, want = " is a ", ": begin its name with the name of its type"
	wants := []string{
		"dohost.Chunked" + is + "ChunkKind" + want, "dohost.Closed" + is + "State" + want, "dohost.Crash" + is + "EndMode" + want,
		"dohost.KindText" + is + "ChunkKind" + want, "dohost.NotParked" + is + "ParkReason" + want,
	}
	if checked != 10 || !slices.Equal(findings, wants) || !used["ParkReason"] {
		t.Errorf("%d constants, %v:\n%s\nwant\n%s", checked, used, strings.Join(findings, "\n"), strings.Join(wants, "\n"))
	}
}
