package archtest

import (
	"fmt"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// mayImport lists the packages of ours that each of our packages may import; "." is the
// root package and "x/..." is x and all below it. A package without a row may not exist.
// ARCHITECTURE.md has a picture of it.
//
// agent, chat, ledger and web use the public API alone, which proves that an outsider could have
// written them; of internal/invariants agent alone uses the constant. internal/adminapi has
// only the JSON types that web and cli share, internal/agenttool, internal/summary, internal/work and internal/backoff only pure functions.
var mayImport = map[string][]string{
	"sharedlog":   {},
	"objectstore": {"sharedlog", "internal/backoff", "internal/engine", "internal/errkind", "internal/frame", "internal/guard", "internal/invariants"},
	"eviction":    {},
	"alarm":       {"objectstore", "internal/backoff", "internal/invariants"},
	"runtime":     {"objectstore", "alarm", "eviction", "internal/backoff", "internal/errkind", "internal/guard", "internal/invariants", "internal/seal"},
	".":           {"runtime", "objectstore", "sharedlog", "alarm", "eviction", "internal/backoff", "internal/errkind", "internal/guard", "internal/invariants", "internal/socket", "internal/budget", "internal/hostof", "internal/kernel", "internal/seal"},

	"agent":            {".", "internal/backoff", "internal/invariants", "internal/work"},
	"ledger":           {".", "internal/backoff", "internal/work"},
	"chat":             {"agent", "ledger", "pool", ".", "chat/uimessage", "chat/internal/rawjson", "internal/agenttool", "internal/summary", "internal/work"},
	"inbox":            {"agent", "chat", "internal/agenttool", "internal/summary", "ledger", "."},
	"streams":          {"internal/backoff", "internal/hostof", "."}, // the directory of subscriptions belongs to a host
	"pool":             {"agent", "internal/backoff", "."},
	"streams/consumer": {"agent", "internal/backoff", "."},

	"chat/uimessage": {"chat/internal/rawjson"}, // pure: no host and no agent
	"chat/extract":   {"chat"},
	"chat/openai":    {"chat", "chat/internal/provider"},
	"chat/anthropic": {"chat", "chat/internal/provider"},

	"chat/internal/provider": {"chat"},
	"chat/internal/rawjson":  {},

	"web":      {"web/page", "internal/adminapi", "."},
	"web/page": {},
	"cli":      {"web", "agent", "chat", "ledger", "pool", "streams", "sharedlog", "sharedlog/dirlog", "cluster", "internal/adminapi", "."},

	"cluster":           {"sharedlog", "internal/budget", "."}, // the edge bounds the frames of clients as a host does
	"sharedlog/logtest": {"sharedlog"},
	"sharedlog/dirlog":  {"sharedlog"},
	// A module of its own: the root module must not import it.
	"cluster/nats/natslog":           {"sharedlog", "cluster"},
	"cluster/nats/internal/embedded": {"sharedlog", "cluster", "cluster/nats/natslog"},
	"cluster/nats/internal/natstest": {},
	"cluster/nats/cmd/...":           {"..."},

	"dohosttest": {".", "runtime", "objectstore", "sharedlog", "sharedlog/logtest", "eviction", "internal/..."},

	"ledger/ledgertest": {".", "ledger", "dohosttest", "internal/policytest"},
	"chat/chattest":     {".", "chat", "ledger", "dohosttest", "internal/policytest"},

	"docs":         {},
	"cmd/...":      {"..."},
	"examples/...": {"..."},
	"bench/...":    {"..."},
	"e2e/...":      {"..."},

	"internal/adminapi":      {"."},
	"internal/agenttool":     {},
	"internal/archtest":      {},
	"internal/backoff":       {},
	"internal/budget":        {},
	"internal/engine":        {},
	"internal/errkind":       {},
	"internal/frame":         {},
	"internal/guard":         {},
	"internal/invariants":    {},
	"internal/lifecycletest": {},
	"internal/hostof":        {},
	"internal/kernel":        {"runtime", "objectstore"},
	"internal/recovery":      {".", "ledger", "objectstore", "internal/kernel"},
	"internal/work":          {"internal/backoff"}, // a leaf without state
	"internal/summary":       {},                   // pure functions
	"internal/socket":        {"runtime", "objectstore", "eviction", "internal/budget"},
	"internal/seal":          {},
	"internal/sockettest":    {},
	"internal/crowd":         {},
	"internal/randagent":     {".", "agent", "dohosttest", "internal/hostof", "internal/randtest", "internal/sockettest"},
	"internal/randask":       {".", "agent", "chat", "dohosttest", "inbox", "internal/randtest"},
	"internal/randchat":      {".", "agent", "chat", "dohosttest", "internal/randtest", "internal/sockettest", "ledger"},
	"internal/randinbox":     {".", "agent", "chat", "dohosttest", "inbox", "internal/randtest", "ledger"},
	"internal/randprog":      {".", "dohosttest", "internal/hostof", "internal/randtest", "internal/sockettest"},
	"internal/randwatch":     {".", "chat", "dohosttest", "internal/hostof", "internal/randtest"},
	"internal/randtest":      {".", "runtime", "objectstore", "internal/kernel", "dohosttest", "internal/invariants"},
	"internal/pointtest":     {".", "dohosttest", "internal/invariants"},
	"internal/celltest":      {".", "objectstore", "sharedlog/logtest", "internal/invariants", "internal/kernel"},
	"internal/simtest":       {".", "agent", "dohosttest", "internal/sockettest"},
	"internal/mutants":       {},
	"internal/policytest":    {".", "ledger", "dohosttest"},
	"internal/providertest":  {".", "chat", "dohosttest", "internal/sockettest"},
	"internal/transcript":    {},

	"tools/mutate": {},
}

// testsMayImport lists further imports of test files, in addition to their package's row
// and to the test machinery in internal.
var testsMayImport = map[string][]string{
	".":                {"dohosttest", "sharedlog/logtest", "examples/..."},
	"objectstore":      {"sharedlog/logtest"},
	"sharedlog":        {"sharedlog/logtest"},
	"sharedlog/dirlog": {".", "sharedlog/logtest", "examples/counter"},
	"ledger":           {"dohosttest", "objectstore", "agent", "chat"}, // for a full disk, and for positions
	"agent":            {"dohosttest", "objectstore", "runtime"},       // for a full disk, and to count reads
	"chat":             {"dohosttest", "objectstore", "runtime"},       // likewise
	"inbox":            {"dohosttest", "objectstore"},                  // for a full disk
	"streams":          {"dohosttest", "objectstore"},                  // for a full disk
	"streams/consumer": {"dohosttest", "streams"},
	"pool":             {"dohosttest", "docs", "objectstore", "runtime", "web"}, // for the examples of the wire, hosts in memory, and to count reads
	"chat/openai":      {".", "dohosttest"},
	"chat/anthropic":   {".", "dohosttest"},
	"web":              {"dohosttest", "examples/counter"},
	"cluster":          {"sharedlog/dirlog", "sharedlog/logtest", "agent", "chat", "web", "examples/counter"}, // for agents that ask each other
	"cli":              {"dohosttest", "inbox", "examples/counter", "sharedlog/logtest"},

	"cluster/nats/natslog": {".", "cluster/nats/internal/natstest", "sharedlog/logtest", "examples/counter"},
}

// A dependency is a module that our go.mod files may name directly. Adding one is a decision
// with a page in docs/decisions.
type dependency struct {
	module string
	// importers are the packages that may import it; none listed means all.
	importers []string
	// testImporters are the packages whose tests may import it, too.
	testImporters []string
	// testOnly modules are imported by tests and test machinery alone.
	testOnly bool
	// forTests modules are imported by dohosttest, which programs link into their tests.
	forTests bool
}

var dependencies = []dependency{
	{module: "github.com/cockroachdb/pebble/v2", importers: []string{"objectstore", "internal/engine", "bench/..."}},
	{module: "github.com/vmihailenco/msgpack/v5"},
	{module: "github.com/oklog/ulid/v2"},
	{module: "github.com/prometheus/client_golang"},
	{module: "github.com/coder/websocket"},
	{module: "github.com/netresearch/go-cron"},
	{module: "github.com/openai/openai-go/v3", importers: []string{"chat/openai"}},
	{module: "github.com/anthropics/anthropic-sdk-go", importers: []string{"chat/anthropic"}},
	{module: "github.com/nats-io/nats.go", importers: []string{"cluster/nats/..."}},
	// A program that imports natslog has no server.
	{module: "github.com/nats-io/nats-server/v2", importers: []string{"cluster/nats/internal/embedded", "cluster/nats/internal/natstest"}},
	{module: "github.com/alecthomas/kong"},
	{module: "github.com/google/jsonschema-go", importers: []string{"chat"}},
	{module: "github.com/anishathalye/porcupine", importers: []string{"dohosttest"}, testImporters: []string{"runtime", "cluster/nats/cmd/..."}, forTests: true},
	{module: "github.com/HdrHistogram/hdrhistogram-go", importers: []string{"bench/..."}},
	{module: "gonum.org/v1/plot", importers: []string{"bench/..."}},
	{module: "golang.org/x/tools", importers: []string{"tools/..."}},

	{module: "pgregory.net/rapid", testOnly: true},
	{module: "github.com/cockroachdb/datadriven", testOnly: true},
	{module: "github.com/rogpeppe/go-internal", testOnly: true},
	{module: "go.uber.org/goleak", testOnly: true},
}

// testMachinery may import the modules for tests. Not dohosttest: it is linked into the tests of users, and into the
// program.
var testMachinery = []string{"internal/...", "cluster/nats/internal/natstest"}

// maxDirect is how many modules for the product the root's go.mod may require directly: docs/decisions/0014.
const maxDirect = 8

func importDirection(t *tree) (found []string) {
	for _, dir := range t.sortedPackages() {
		if _, ok := lookUp(mayImport, dir); !ok {
			found = append(found, fmt.Sprintf("%s: the package is not in the import table", dir))
		}
	}
	for _, f := range t.files {
		allowed, _ := lookUp(mayImport, f.dir)
		if f.test {
			extra, _ := lookUp(testsMayImport, f.dir)
			allowed = slices.Concat(allowed, extra, []string{f.dir, "internal/..."})
		}
		for _, imp := range sortedImports(f) {
			of, ours := ourPackage(imp.path)
			if !ours {
				continue
			}
			if !matchesAny(allowed, of) {
				found = append(found, t.at(imp.pos, "%s may not import %s", f.dir, of))
			}
			// The workspace would compile it, but a user has no workspace.
			if t.module(f.dir) == "." && t.module(of) != "." {
				found = append(found, t.at(imp.pos, "the root module may not import the module %s", t.module(of)))
			}
		}
	}
	return found
}

func importOwners(t *tree) (found []string) {
	for _, f := range t.files {
		for _, imp := range sortedImports(f) {
			if _, ours := ourPackage(imp.path); ours || !strings.Contains(before(imp.path, "/"), ".") {
				continue
			}
			i := slices.IndexFunc(dependencies, func(d dependency) bool { return within(d.module, imp.path) })
			switch {
			case i < 0:
				found = append(found, t.at(imp.pos, "%s is of no module on the list of dependencies", imp.path))
			case f.test && matchesAny(dependencies[i].testImporters, f.dir):
			case dependencies[i].importers != nil && !matchesAny(dependencies[i].importers, f.dir):
				found = append(found, t.at(imp.pos, "%s may not import %s", f.dir, dependencies[i].module))
			case dependencies[i].testOnly && !f.test && !matchesAny(testMachinery, f.dir):
				found = append(found, t.at(imp.pos, "%s is for tests only", dependencies[i].module))
			}
		}
	}
	return found
}

// A requirement is a line of a go.mod file.
type requirement struct {
	at              string // the place of the line
	in              string // the folder of the go.mod file
	module, version string
	indirect        bool
}

var requirementLine = regexp.MustCompile(`^(?:require\s+)?([^\s()]+\.[^\s()]+)\s+(v\S+)`)

// requirements returns those of all modules, ordered by their places.
func (t *tree) requirements() (list []requirement) {
	for _, dir := range slices.Sorted(maps.Keys(t.goMods)) {
		for i, line := range strings.Split(t.goMods[dir], "\n") {
			m := requirementLine.FindStringSubmatch(strings.TrimSpace(line))
			if m == nil {
				continue
			}
			at := fmt.Sprintf("%s:%d", path.Join(dir, "go.mod"), i+1)
			list = append(list, requirement{at, dir, m[1], m[2], strings.HasSuffix(line, "// indirect")})
		}
	}
	return list
}

// directDependencies requires each direct requirement to be on the list, and to be imported: an SDK that only a nested
// module imports is not in the go.mod of another module. The root module requires at most maxDirect, apart from those for
// tests.
func directDependencies(t *tree) (found []string) {
	direct := 0
	for _, r := range t.requirements() {
		if _, ours := ourPackage(r.module); ours || r.indirect {
			continue
		}
		i := slices.IndexFunc(dependencies, func(d dependency) bool { return d.module == r.module })
		if r.in == "." && (i < 0 || !dependencies[i].testOnly && !dependencies[i].forTests) {
			direct++
		}
		if i < 0 {
			found = append(found, fmt.Sprintf("%s: %s is not on the list of dependencies", r.at, r.module))
		} else if !t.imports(r.in, r.module) {
			found = append(found, fmt.Sprintf("%s: no file of this module imports %s", r.at, r.module))
		}
	}
	if direct > maxDirect {
		found = append(found, fmt.Sprintf("go.mod: %d direct requirements that are not for tests, more than %d", direct, maxDirect))
	}
	return found
}

// imports reports whether a file of the module in a folder imports a package of another module.
func (t *tree) imports(dir, module string) bool {
	return slices.ContainsFunc(t.files, func(f *file) bool {
		if t.module(f.dir) != dir {
			return false
		}
		for p := range f.imports() {
			if within(module, p) {
				return true
			}
		}
		return false
	})
}

// moduleVersions requires one version of each dependency in all modules. The workspace uses the highest version, so the
// tests would run with another version than the users of a module that names a lower one.
func moduleVersions(t *tree) (found []string) {
	first := make(map[string]requirement)
	for _, r := range t.requirements() {
		if f, ok := first[r.module]; !ok {
			first[r.module] = r
		} else if f.version != r.version {
			found = append(found, fmt.Sprintf("%s: %s %s, but %s at %s", r.at, r.module, r.version, f.version, f.at))
		}
	}
	return found
}

type imported struct {
	path string
	pos  token.Pos
}

func sortedImports(f *file) []imported {
	paths := f.imports()
	var list []imported
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		list = append(list, imported{p, paths[p]})
	}
	return list
}

// ourPackage returns the folder of an import path, if it is one of ours.
func ourPackage(importPath string) (dir string, ours bool) {
	if importPath == modulePath {
		return ".", true
	}
	return strings.CutPrefix(importPath, modulePath+"/")
}

// lookUp returns the row of dir, or that of the nearest folder above it.
func lookUp(table map[string][]string, dir string) ([]string, bool) {
	if row, ok := table[dir]; ok {
		return row, true
	}
	for key, row := range table {
		if strings.HasSuffix(key, "/...") && matches(key, dir) {
			return row, true
		}
	}
	return nil, false
}

func matchesAny(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, dir) })
}

func matches(pattern, dir string) bool {
	if pattern == "..." {
		return true
	}
	if above, ok := strings.CutSuffix(pattern, "/..."); ok {
		return within(above, dir)
	}
	return pattern == dir
}

// within reports whether the slashed path p is above, or lies below it.
func within(above, p string) bool {
	return p == above || strings.HasPrefix(p, above+"/")
}

func before(s, sep string) string {
	head, _, _ := strings.Cut(s, sep)
	return head
}
