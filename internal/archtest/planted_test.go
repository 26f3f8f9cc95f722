package archtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// Each case is a small repository and all violations that the rule must find in it: the
// rule must leave everything else alone.
var planted = []struct {
	rule  string
	files map[string]string
	want  []string
}{
	{
		rule: "layers",
		files: map[string]string{
			"AGENTS.md":     "| layer | x |\n|---|---|\n| `web`, `gone` | x |\n| root | x |\n| `alarm` | x |\n| other packages in `internal` | x |\n",
			"web/w.go":      `package web; import _ "github.com/dohost/dohost"`,
			"web/page/p.go": `package page; import _ "github.com/dohost/dohost/alarm"`,
			"d.go":          `package dohost; import (_ "github.com/dohost/dohost/web/page"; _ "github.com/dohost/dohost/internal/free")`,
			"d_test.go":     `package dohost; import _ "github.com/dohost/dohost/web"`,
			"alarm/a.go":    `package alarm; import _ "github.com/dohost/dohost"`,
		},
		want: []string{
			"AGENTS.md: the table of layers names gone, which is no package",
			"alarm/a.go:1: alarm imports ., which is in a row above it in AGENTS.md",
			"d.go:1: . imports web/page, which is in a row above it in AGENTS.md",
		},
	},
	{
		rule: "leaf table",
		files: map[string]string{
			"AGENTS.md":       "| layer | x |\n|---|---|\n| root | x |\n| `alarm`, `internal/a`, `internal/b`, `internal/c` | x |\n",
			"ARCHITECTURE.md": "| package | contents | imported by |\n|---|---|---|\n| `internal/a` | x | the root |\n| `internal/c` | x | |\n",
			"d.go":            `package dohost; import _ "github.com/dohost/dohost/internal/a"`,
			"alarm/a.go":      `package alarm; import _ "github.com/dohost/dohost/internal/a"`,
			"internal/a/a.go": `package a`,
			"internal/b/b.go": `package b`,
			"internal/c/c.go": `package c; import _ "github.com/dohost/dohost/alarm"`,
		},
		want: []string{
			"ARCHITECTURE.md: internal/a is imported by the root, `alarm`, not by the root",
			"ARCHITECTURE.md: internal/b in the table of small packages: false, want true",
			"ARCHITECTURE.md: internal/c in the table of small packages: true, want false",
		},
	},
	{
		rule: "import direction",
		files: map[string]string{
			"alarm/a.go":             `package alarm; import _ "github.com/dohost/dohost/objectstore"`,
			"alarm/a_test.go":        `package alarm; import _ "github.com/dohost/dohost/internal/crashtest"`,
			"agent/a.go":             `package agent; import _ "github.com/dohost/dohost/runtime"`,
			"agent/a_test.go":        `package agent_test; import (_ "github.com/dohost/dohost/agent"; _ "github.com/dohost/dohost/dohosttest")`,
			"agent/deep/a.go":        `package deep`,
			"chat/openai/a.go":       `package openai; import _ "github.com/dohost/dohost/chat"`,
			"chat/openai/a_test.go":  `package openai_test; import _ "github.com/dohost/dohost/chat/openai"`,
			"chat/uimessage/u.go":    `package uimessage; import (_ "github.com/dohost/dohost"; _ "github.com/dohost/dohost/agent"; _ "github.com/dohost/dohost/chat")`,
			"cli/c.go":               `package cli; import _ "github.com/dohost/dohost/chat/openai"`,
			"cmd/dohost/main.go":     `package main; import (_ "github.com/dohost/dohost/chat/openai"; _ "github.com/dohost/dohost/cli")`,
			"objectstore/o.go":       `package objectstore; import _ "github.com/dohost/dohost"`,
			"objectstore/o_test.go":  `package objectstore; import _ "github.com/dohost/dohost/runtime"`,
			"d.go":                   `package dohost; import (_ "github.com/dohost/dohost/runtime"; _ "github.com/dohost/dohost/web")`,
			"web/w.go":               `package web; import _ "github.com/dohost/dohost/internal/invariants"`,
			".scratch/s.go":          `package scratch; import _ "github.com/dohost/dohost/web"`,
			"_old/o.go":              `package old; import _ "github.com/dohost/dohost/web"`,
			"cli/testdata/t.go":      `package t; import _ "github.com/dohost/dohost/runtime"`,
			"web/node_modules/n.go":  `package n`,
			"go.work":                "go 1.26\n\nuse (\n\t.\n\t./chat/openai\n\t./examples/models\n)\n",
			"chat/openai/go.mod":     `module github.com/dohost/dohost/chat/openai`,
			"examples/models/go.mod": `module github.com/dohost/dohost/examples/models`,
			"examples/models/m.go":   `package main; import (_ "github.com/dohost/dohost/chat/openai"; _ "github.com/dohost/dohost/cli")`,
			"orders/go.mod":          `module example.com/orders`,
			"orders/o.go":            `package orders; import _ "github.com/dohost/dohost/runtime"`,
		},
		want: []string{
			"agent/deep: the package is not in the import table",
			"agent/a.go:1: agent may not import runtime",
			"chat/uimessage/u.go:1: chat/uimessage may not import .",
			"chat/uimessage/u.go:1: chat/uimessage may not import agent",
			"chat/uimessage/u.go:1: chat/uimessage may not import chat",
			"cli/c.go:1: cli may not import chat/openai",
			"cli/c.go:1: the root module may not import the module chat/openai",
			"cmd/dohost/main.go:1: the root module may not import the module chat/openai",
			"d.go:1: . may not import web",
			"objectstore/o.go:1: objectstore may not import .",
			"objectstore/o_test.go:1: objectstore may not import runtime",
			"web/w.go:1: web may not import internal/invariants",
		},
	},
	{
		rule: "transports",
		files: map[string]string{
			"collection.go":      `package dohost; import (_ "net/http"; _ "strings")`,
			"http.go":            `package dohost; import _ "net/http"`,
			"collection_test.go": `package dohost; import _ "net/http"`,
			"ledger/do.go":       `package ledger; import (_ "net"; _ "github.com/coder/websocket")`,
			"ledger/errors.go":   `package ledger; import "net/http"; const s = http.StatusConflict; var c http.Client`,
			"cli/c.go":           `package cli; import _ "net"`,
		},
		want: []string{
			"collection.go:1: collection.go is a primitive, and may not import net/http",
			"ledger/do.go:1: ledger/do.go is a primitive, and may not import github.com/coder/websocket",
			"ledger/do.go:1: ledger/do.go is a primitive, and may not import net",
			"ledger/errors.go:1: ledger/errors.go may use only the statuses of net/http, not http.Client",
		},
	},
	{
		rule: "wake names",
		files: map[string]string{
			"agent/lifecycle.go":           "package agent; type Lifecycle struct{}; func RunWake() {}; func beat() { RunWake() }",
			"agent/session.go":             "package agent; type Session struct{ of Lifecycle }",
			"agent/a.go":                   "package agent\ntype a struct{ Lifecycle int }\nfunc b(s *Session) { c.RunWake(); beat() }",
			"agent/a_test.go":              "package agent; var _ Lifecycle",
			"chat/c.go":                    `package chat; import a "github.com/dohost/dohost/agent"; var _, _ = a.RunWake, b.RunWake; var _ a.Other`,
			"streams/consumer/drain.go":    `package consumer; import "github.com/dohost/dohost/agent"; var _ = agent.RunWake`,
			"examples/queue/queue.go":      `package queue; import "github.com/dohost/dohost/agent"; var _ = agent.RunWake`,
			"streams/consumer/x/select.go": `package x; import "github.com/dohost/dohost/agent"; var _ agent.Session`,
		},
		want: []string{
			"agent/a.go:3: Session is for wakes of other systems, which agents do not know",
			"agent/a.go:3: beat is for wakes of other systems, which agents do not know",
			"chat/c.go:1: agent.RunWake is for wakes of other systems: only streams/consumer uses it",
			"streams/consumer/x/select.go:1: agent.Session is for wakes of other systems: only streams/consumer uses it",
		},
	},
	{
		rule: "import owners",
		files: map[string]string{
			"objectstore/o.go":       `package objectstore; import _ "github.com/cockroachdb/pebble/v2/vfs"`,
			"bench/limit/b.go":       `package main; import (_ "github.com/cockroachdb/pebble/v2"; _ "gonum.org/v1/plot/vg")`,
			"alarm/a.go":             `package alarm; import (_ "time"; _ "net/http"; _ "github.com/cockroachdb/pebble/v2")`,
			"alarm/a_test.go":        `package alarm; import (_ "github.com/cockroachdb/pebble/v2/vfs"; _ "pgregory.net/rapid")`,
			"runtime/r.go":           `package runtime; import _ "go.uber.org/goleak"`,
			"runtime/s.go":           `package runtime; import _ "github.com/stretchr/testify/assert"`,
			"runtime/u.go":           `package runtime; import _ "github.com/oklog/ulid/v2"`,
			"runtime/v.go":           `package runtime; import _ "github.com/anishathalye/porcupine"`,
			"runtime/v_test.go":      `package runtime; import _ "github.com/anishathalye/porcupine"`,
			"internal/simtest/s.go":  `package simtest; import _ "pgregory.net/rapid"`,
			"dohosttest/d.go":        `package dohosttest; import (_ "github.com/anishathalye/porcupine"; _ "pgregory.net/rapid")`,
			"cli/c.go":               `package cli; import _ "github.com/anishathalye/porcupine"`,
			"chat/openai/o.go":       `package openai; import _ "github.com/openai/openai-go/v3/option"`,
			"chat/anthropic/a.go":    `package anthropic; import _ "github.com/openai/openai-go/v3"`,
			"examples/counter/c.go":  `package main; import _ "github.com/anthropics/anthropic-sdk-go"`,
			"eviction/e.go":          `package eviction; import _ "gonum.org/v1/plotter"`,
			"internal/archtest/a.go": `package archtest; import _ "go/ast"`,
		},
		want: []string{
			"alarm/a.go:1: alarm may not import github.com/cockroachdb/pebble/v2",
			"alarm/a_test.go:1: alarm may not import github.com/cockroachdb/pebble/v2",
			"chat/anthropic/a.go:1: chat/anthropic may not import github.com/openai/openai-go/v3",
			"cli/c.go:1: cli may not import github.com/anishathalye/porcupine",
			"dohosttest/d.go:1: pgregory.net/rapid is for tests only",
			"eviction/e.go:1: gonum.org/v1/plotter is of no module on the list of dependencies",
			"examples/counter/c.go:1: examples/counter may not import github.com/anthropics/anthropic-sdk-go",
			"runtime/r.go:1: go.uber.org/goleak is for tests only",
			"runtime/s.go:1: github.com/stretchr/testify/assert is of no module on the list of dependencies",
			"runtime/v.go:1: runtime may not import github.com/anishathalye/porcupine",
		},
	},
	{
		rule: "direct dependencies",
		files: map[string]string{
			"go.mod": `module github.com/dohost/dohost

go 1.26

require github.com/cockroachdb/pebble v1.1.0

require (
	github.com/cockroachdb/pebble/v2 v2.1.7
	github.com/robfig/cron/v3 v3.0.1 // the old one
	github.com/getsentry/sentry-go v0.27.0 // indirect
	gonum.org/v1/plot v0.17.0
)
`,
			"go.work":          "go 1.26\n\nuse .\nuse ./bench\n",
			"objectstore/o.go": `package objectstore; import _ "github.com/cockroachdb/pebble/v2/vfs"`,
			"bench/b.go":       `package main; import _ "gonum.org/v1/plot/vg"`,
			"bench/go.mod": `module github.com/dohost/dohost/bench

require github.com/dohost/dohost v0.0.0

replace github.com/dohost/dohost => ..

require (
	github.com/cockroachdb/pebble/v2 v2.1.7
	github.com/wcharczuk/go-chart v1.0.0
	gonum.org/v1/plot v0.17.0
)
`,
		},
		want: []string{
			"go.mod:5: github.com/cockroachdb/pebble is not on the list of dependencies",
			"go.mod:9: github.com/robfig/cron/v3 is not on the list of dependencies",
			"go.mod:11: no file of this module imports gonum.org/v1/plot",
			"bench/go.mod:8: no file of this module imports github.com/cockroachdb/pebble/v2",
			"bench/go.mod:9: github.com/wcharczuk/go-chart is not on the list of dependencies",
		},
	},
	{
		rule: "direct dependencies",
		files: map[string]string{
			"go.mod": `module github.com/dohost/dohost

require (
	github.com/HdrHistogram/hdrhistogram-go v1.1.2
	github.com/alecthomas/kong v1.17.0
	github.com/anishathalye/porcupine v1.3.1
	github.com/cockroachdb/pebble/v2 v2.1.7
	github.com/coder/websocket v1.8.15
	github.com/google/jsonschema-go v0.4.3
	github.com/netresearch/go-cron v0.9.1
	github.com/oklog/ulid/v2 v2.1.2
	github.com/prometheus/client_golang v1.25.0
	github.com/vmihailenco/msgpack/v5 v5.4.1
	pgregory.net/rapid v1.3.0
)
`,
			"d.go": `package dohost

import (
	_ "github.com/HdrHistogram/hdrhistogram-go"
	_ "github.com/alecthomas/kong"
	_ "github.com/anishathalye/porcupine"
	_ "github.com/cockroachdb/pebble/v2"
	_ "github.com/coder/websocket"
	_ "github.com/google/jsonschema-go/jsonschema"
	_ "github.com/netresearch/go-cron"
	_ "github.com/oklog/ulid/v2"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/vmihailenco/msgpack/v5"
)
`,
			"d_test.go": `package dohost; import _ "pgregory.net/rapid"`,
		},
		want: []string{"go.mod: 9 direct requirements that are not for tests, more than 8"},
	},
	{
		rule: "module versions",
		files: map[string]string{
			"go.work": "use (\n\t.\n\t./bench\n\t./orders\n)\n",
			"go.mod": `module github.com/dohost/dohost

require (
	github.com/cockroachdb/pebble/v2 v2.1.7
	golang.org/x/sys v0.48.0 // indirect
)
`,
			"bench/go.mod": `module github.com/dohost/dohost/bench

require github.com/cockroachdb/pebble/v2 v2.1.7

require golang.org/x/sys v0.47.0 // indirect
`,
			"orders/go.mod": "module example.com/orders\n\nrequire github.com/cockroachdb/pebble/v2 v2.1.6\n",
			"tools/go.mod":  "module github.com/dohost/dohost/tools\n\nrequire golang.org/x/sys v0.1.0\n",
		},
		want: []string{
			"bench/go.mod:5: golang.org/x/sys v0.47.0, but v0.48.0 at go.mod:5",
			"orders/go.mod:3: github.com/cockroachdb/pebble/v2 v2.1.6, but v2.1.7 at go.mod:4",
		},
	},
	{
		rule: "file sizes",
		files: map[string]string{
			"alarm/long.go":      "package alarm\n" + strings.Repeat("\n", 400),
			"alarm/full.go":      "package alarm\n" + strings.Repeat("\n", 399),
			"alarm/long_test.go": "package alarm\n" + strings.Repeat("\n", 400),
		},
		want: []string{"alarm/long.go: 401 lines, more than 400"},
	},
	{
		rule: "function sizes",
		files: map[string]string{
			"alarm/a.go": "package alarm\n" +
				"func (s *slot[T]) long() {" + strings.Repeat("\n", 70) + "}\n" +
				"func full() {" + strings.Repeat("\n", 69) + "}\n",
			"alarm/a_test.go": "package alarm\nfunc long() {" + strings.Repeat("\n", 70) + "}\n",
		},
		want: []string{"alarm/a.go:2: slot.long has 71 lines, more than 70"},
	},
	{
		rule: "package names",
		files: map[string]string{
			"internal/util/a.go":     "package util",
			"runtime/helpers.go":     "package runtime",
			"runtime/types_test.go":  "package runtime_test",
			"runtime/interface.go":   "package runtime",
			"runtime/commonality.go": "package runtime",
		},
		want: []string{
			"internal/util/a.go:1: package util says nothing by its name",
			"runtime/helpers.go: the file says nothing by its name",
			"runtime/types_test.go: the file says nothing by its name",
		},
	},
	{
		rule: "sealed functions",
		files: map[string]string{
			"runtime/a.go": "package runtime\nfunc StateOf(ctx context.Context) *State\nfunc Sealed(ctx context.Context, _ seal.Key) *State\n" +
				"func (s *State) Host(ctx context.Context) *Host\nfunc stateOf(ctx context.Context) *State\n" +
				"func Store(s string, ctx context.Context) (*objectstore.Store, error)\nfunc Open(dir string) *Host",
			"runtime/a_test.go": "package runtime\nfunc HostOf(ctx context.Context) *Host",
			"alarm/a.go":        "package alarm\nfunc New(ctx context.Context) *Host",
		},
		want: []string{
			"runtime/a.go:2: StateOf gives the engine to each caller with a context: want a parameter of type seal.Key",
			"runtime/a.go:6: Store gives the engine to each caller with a context: want a parameter of type seal.Key",
		},
	},
	{
		rule: "functional options",
		files: map[string]string{
			"agent/a.go":      "package agent\nfunc WithRetries() {}\nfunc (a agent) With() {}\nfunc Within() {}\nfunc withDefaults() {}\nfunc (a agent) WithGroup() {}",
			"agent/a_test.go": "package agent\nfunc WithFake() {}",
		},
		want: []string{
			"agent/a.go:2: WithRetries: options are a struct here",
			"agent/a.go:3: With: options are a struct here",
		},
	},
	{
		rule: "package comments",
		files: map[string]string{
			"alarm/a.go":           "package alarm",
			"alarm/b.go":           "// Copyright\n\npackage alarm",
			"eviction/a.go":        "package eviction",
			"eviction/doc.go":      "// Package eviction says who should go.\npackage eviction",
			"internal/x/a_test.go": "package x",
		},
		want: []string{
			"alarm: no file has a package comment",
			"internal/x: no file has a package comment",
		},
	},
	{
		rule: "exported comments",
		files: map[string]string{
			"alarm/a.go": `package alarm

func Set() {}

// Clear clears.
func Clear() {}

func (s *Slot[T]) Due() {}
func (s slot) Due()     {}
func unset()            {}

type Slot[T any] struct{ Attempt int }
type slot struct{}

// Two types, each of which wants a comment.
type (
	One int
	// Two is two.
	Two int
)

// The errors of this package.
var (
	ErrA error
	ErrB error
)

const Max, min = 1, 2

var (
	Bare  int
	Aside int // is beside the point
)

// Store keeps slots.
type Store interface {
	Get()
	// Put puts.
	Put()
	close()
	Slotted
}
`,
			"alarm/a_test.go": "package alarm\nfunc Fake() {}",
		},
		want: []string{
			"alarm/a.go:3: Set is exported and has no comment",
			"alarm/a.go:8: Slot.Due is exported and has no comment",
			"alarm/a.go:12: Slot is exported and has no comment",
			"alarm/a.go:17: One is exported and has no comment",
			"alarm/a.go:28: Max is exported and has no comment",
			"alarm/a.go:31: Bare is exported and has no comment",
			"alarm/a.go:37: Store.Get is exported and has no comment",
		},
	},
	{
		rule: "runnable examples",
		files: map[string]string{
			"pool/p.go":               "package pool",
			"pool/p_test.go":          "package pool_test\nfunc Example() {\n\t// Output: 1\n}",
			"agent/a.go":              "package agent",
			"agent/a_test.go":         "package agent\nfunc Example() {\n\t// Output: 1\n}",
			"chat/c.go":               "package chat",
			"chat/c_test.go":          "package chat_test\nfunc Example() {}\nfunc ExampleAsk() {\n\t// Output: 1\n}",
			"inbox/i.go":              "package inbox",
			"runtime/r.go":            "package runtime",
			"alarm/a.go":              "package alarm",
			"alarm/a_test.go":         "package alarm_test\nfunc Example() {\n\t// Output:\n}",
			"examples/c/c.go":         "package c",
			"tool/main.go":            "package main",
			"web/internal/x/x.go":     "package x",
			"internal/only/a_test.go": "package only",
		},
		want: []string{
			"agent: no func Example with an output in an external test package",
			"alarm: excepted from the packages with a runnable example, but it has one",
			"chat: no func Example with an output in an external test package",
			"inbox: no func Example with an output in an external test package",
		},
	},
	{
		rule: "goroutines",
		files: map[string]string{
			"ARCHITECTURE.md": `# Architecture

| sweeper | runtime/elsewhere.go Run | time | nothing |

## Goroutines

### Of a host and its programs

| name | where | woken by | owns |
|---|---|---|---|
| sweeper | ` + "`runtime/sweep.go sweeper.run`" + ` | time | the wheel |
| helpers | runtime/sweep.go Start, ` + "`runtime/sweep.go hook`" + ` | calls | nothing |
| ghost | ` + "`runtime/gone.go Run`" + ` | nobody | nothing |
| bubble | ` + "`dohosttest/bubble.go bubble`" + ` | a test | nothing |

### Of tests, the simulation and the benchmark

| client | ` + "`dohosttest/deep/client.go Client`" + ` | a test | nothing |
| scheduler | ` + "`alarm/scheduler.go Start`" + ` | an alarm | nothing |

## Later

| other | ` + "`runtime/sweep.go unlisted`" + ` | | |
`,
			"runtime/sweep.go": `package runtime

func (s *sweeper) run() { go s.loop() }
func Start()            { wg.Go(loop) }

var hook = func() { go loop() }

func unlisted() {
	func() { go loop() }()
	in.tasks.Go(loop)
	state.Go(ctx, loop)
}
`,
			"runtime/sweep_test.go": "package runtime\nfunc f() { go f() }",
			"eviction/e.go":         "package eviction\nfunc f() { go f() }",

			"alarm/scheduler.go":        "package alarm\nfunc Start() { go f() }",
			"dohosttest/bubble.go":      "package dohosttest\nfunc bubble() { go f() }",
			"dohosttest/deep/client.go": "package deep\nfunc Client() { go f() }",
		},
		want: []string{
			"eviction/e.go:2: eviction starts no goroutines",
			"runtime/sweep.go:9: no row for `runtime/sweep.go unlisted` in a table under Goroutines in ARCHITECTURE.md",
			"runtime/sweep.go:10: no row for `runtime/sweep.go unlisted` in a table under Goroutines in ARCHITECTURE.md",
			"ARCHITECTURE.md:19: the row of `alarm/scheduler.go Start` belongs under the heading \"Of a host and its programs\"",
			"ARCHITECTURE.md:14: the row of `dohosttest/bubble.go bubble` belongs under the heading \"Of tests, the simulation and the benchmark\"",
			"ARCHITECTURE.md:13: no goroutine starts in `runtime/gone.go Run`",
		},
	},
	{
		rule: "sleeps in tests",
		files: map[string]string{
			"alarm/a_test.go":   `package alarm; import "time"; func f() { time.Sleep(1) }`,
			"alarm/b_test.go":   `package alarm; import clock "time"; var wait = clock.Sleep`,
			"alarm/c_test.go":   `package alarm; import ("testing/synctest"; "time"); func g() { synctest.Wait(); time.Sleep(1) }`,
			"alarm/d_test.go":   `package alarm; func h() { time.Sleep(1) }`,
			"alarm/retry.go":    `package alarm; import "time"; func i() { time.Sleep(1) }`,
			"agent/all_test.go": `package agent; import ("github.com/dohost/dohost/dohosttest"; "time"); func f() { dohosttest.Run(); time.Sleep(1) }`,
		},
		want: []string{
			"alarm/a_test.go:1: time.Sleep in a test outside a synctest bubble",
			"alarm/b_test.go:1: time.Sleep in a test outside a synctest bubble",
		},
	},
	{
		rule: "row writers",
		files: map[string]string{
			"agent/a.go": "package agent\nfunc f() { fiberRows.Put(); fiberRows.Get(); states.Put() }\nvar g = queue.DeleteIf\n" +
				"func h() { x := &fiberRows; x.Put(); y := fiberRows; y.Put() }\nfunc i() { write(&payloads); get(&payloads); get(queue) }\n" +
				"func j(queue []int) { queue = s.queue; s = t{queue: queue} }\nvar fiberRows = 1",
			"agent/a_test.go":    `package agent; func g() { payloads.Delete() }`,
			"agent/rowwriter.go": `package agent; func h() { fiberRows.Put(); queue.Insert() }`,
			"chat/c.go":          `package chat; func f() { queue.Put(); replies.Insert(); callRows.Ensure() }`,
			"chat/replyrow.go":   `package chat; func g() { replies.Put(); callRows.Delete() }`,
		},
		want: []string{
			"agent/a.go:2: fiberRows: only agent/rowwriter.go writes rows of durable work, and other files only read them",
			"agent/a.go:3: queue: only agent/rowwriter.go writes rows of durable work, and other files only read them",
			"agent/a.go:4: fiberRows: only agent/rowwriter.go writes rows of durable work, and other files only read them",
			"agent/a.go:4: fiberRows: only agent/rowwriter.go writes rows of durable work, and other files only read them",
			"agent/a.go:5: payloads: only agent/rowwriter.go writes rows of durable work, and other files only read them",
			"agent/a.go:5: queue: only agent/rowwriter.go writes rows of durable work, and other files only read them",
			"chat/c.go:1: replies: only chat/replyrow.go writes rows of durable work, and other files only read them",
			"chat/c.go:1: callRows: only chat/callwriter.go writes rows of durable work, and other files only read them",
			"chat/replyrow.go:1: callRows: only chat/callwriter.go writes rows of durable work, and other files only read them",
		},
	},
	{
		rule: "reserved names",
		files: map[string]string{
			"agent/a.go": "package agent\nvar a = dohost.Collection[int]{Name: \"dohost.fibers\"}\nvar b = dohost.Collection[int]{Name: \"dohost.new\"}\n" +
				"func f() { c.Name = `dohost.queue` }\nvar d = dohost.Collection[int]{Name: \"mine\"}\nvar e = dohost.Feed{Name: \"dohost.feed\"}",
			"agent/a_test.go": `package agent; var g = dohost.Collection[int]{Name: "dohost.fibers"}`,
			"agent/fibers.go": `package agent; var h = dohost.Collection[int]{Name: "dohost.fibers"}`,
			"root.go":         `package dohost; var i = Collection[int]{Name: "dohost.more"}`,
		},
		want: []string{
			"agent/a.go:2: \"dohost.fibers\": only agent/fibers.go declares this collection",
			"agent/a.go:4: \"dohost.queue\": only agent/queue.go declares this collection",
			"agent/a.go:3: the collection \"dohost.new\" is not listed",
			"root.go:1: the collection \"dohost.more\" is not listed",
		},
	},
	{
		rule: "clocks",
		files: map[string]string{
			"chat/a.go":                `package chat; import "time"; var a = time.Now()`,
			"chat/replystate.go":       `package chat; import "time"; func f(b time.Time) { time.Since(b); time.UnixMilli(1) }`,
			"internal/work/w.go":       `package work; import clock "time"; var c = clock.Now`,
			"internal/work/ww_test.go": `package work; import "time"; var d = time.Now()`,
		},
		want: []string{
			"chat/replystate.go:1: time.Since: the caller passes the time",
			"internal/work/w.go:1: time.Now: the caller passes the time",
		},
	},
	{
		rule: "work policies",
		files: map[string]string{
			"ARCHITECTURE.md": "# A\n\n## Life of a fiber\n\n| a | `agent/a.go f` | b |\n| a | `agent/a.go core.gone` | b |\n\n## Locks\n\n" +
				"| a | `agent/a.go g` | b |\n",
			"agent/a.go": "package agent\nimport \"github.com/dohost/dohost/internal/work\"\nfunc f() { p = work.Policy{} }\n" +
				"func g() { p = &work.Policy{} }\nvar p work.Policy",
			"agent/a_test.go": `package agent; import "github.com/dohost/dohost/internal/work"; func h() { p = work.Policy{} }`,
		},
		want: []string{
			"agent/a.go:4: no row for `agent/a.go g` in the table of policies in ARCHITECTURE.md",
			"ARCHITECTURE.md: no policy is made in `agent/a.go core.gone`",
		},
	},
	{
		rule: "recovery files",
		files: map[string]string{
			"ARCHITECTURE.md": "| step | file | functions |\n|---|---|---|\n| a | `agent/a.go` | `f`, `core.gone`, `core.g` |\n| b | `agent/b.go` | `f` |\n" +
				"| c | `agent/c.go` | `h` |\n| d | `agent/d.go` |\n| e | `agent/e.go` | `f` |\n| f | `agent/f.go` | `f` |\n| g | `agent/g.go` | `f` |\n" +
				"| h | `agent/h.go` | `f` |\n\n| i | `agent/i.go` | `f` |\n\n" +
				"The functions in the table also call functions of these files: `agent/k.go`.\n",
			"agent/a.go":      "package agent\nfunc f() { var c core; c.x.m(c.p); c.y = q; os.n(); c.twice(); f() }\nfunc (c *core) g() { k() }\nfunc h() { q() }",
			"agent/b.go":      "package agent; func f() {}",
			"agent/c.go":      "package agent; func f() {}",
			"agent/c_test.go": "package agent; func h() {}",
			"agent/k.go":      "package agent; func k() {}\nfunc (c *core) m() {}\nfunc (c *core) n() {}\nfunc (c *core) o() {}",
			"agent/l.go":      "package agent; func l() {}\nfunc (c *core) p() {}",
			"agent/q.go":      "package agent; func q() {}\nfunc (c *core) twice() {}",
			"agent/r.go":      "package agent; func (c *core) twice() {}",
			"agent/e.go":      "package agent; func f() {}",
			"agent/f.go":      "package agent; func f() {}",
			"agent/g.go":      "package agent; func f() {}",
			"agent/h.go":      "package agent; func f() {}",
		},
		want: []string{
			"ARCHITECTURE.md: there is no function `agent/a.go core.gone`",
			"ARCHITECTURE.md: there is no function `agent/c.go h`",
			"ARCHITECTURE.md: the row \"| d | `agent/d.go` |\" has no file with functions",
			"ARCHITECTURE.md: the functions of a recovery also call functions of the files `agent/k.go`, `agent/l.go`, and the list has `agent/k.go`",
			"ARCHITECTURE.md: the recovery of a fiber is in 7 files, want 1 to 6",
		},
	},
	{
		rule: "alarm writers",
		files: map[string]string{
			"agent/a.go": "package agent\nfunc f() { c.plan.destroying = true }\nfunc g() { c.plan.keepAlives++ }\nfunc h() { p := &c.plan.continueAt }\n" +
				"func i() { c.rows.arm(); c.obj.SetStartAlarm() }\nfunc j() { c.rows.change(func() { p.keepAlives++; p.destroying = c.plan.destroying }) }",
			"agent/a_test.go":    `package agent; func k() { c.obj.DeleteAlarm() }`,
			"agent/rowwork.go":   `package agent; func l() { rw.rows.armBy(); rw.rows.refresh() }`,
			"agent/rowwriter.go": `package agent; func m() { rs.plan.destroying = true; rs.arm() }`,
			"chat/c.go":          `package chat; func n() { st.SetAlarm() }`,
		},
		want: []string{
			"agent/a.go:2: destroying changes outside of rows.change, which sets the alarm",
			"agent/a.go:3: keepAlives changes outside of rows.change, which sets the alarm",
			"agent/a.go:4: continueAt changes outside of rows.change, which sets the alarm",
			"agent/a.go:5: arm: only agent/rowwriter.go sets the alarm of agents",
			"agent/a.go:5: SetStartAlarm: only agent/rowwriter.go sets the alarm of agents",
			"agent/rowwork.go:1: refresh: only agent/rowwriter.go sets the alarm of agents",
		},
	},
	{
		rule: "unarmed writes",
		files: map[string]string{
			"agent/a.go": "package agent\nfunc f() { put(rs.keepAlarm(ctx)) }\nfunc g() { h := p.armLater; h(ctx) }\n" +
				"func i() { ctx.Value(batchKey{}) }\nfunc j() { k(pause{}); k(pause{rows: rs}) }\nvar l = (*rows).keepAlarm",
			"agent/a_test.go":     `package agent; func m() { rs.keepAlarm(ctx) }`,
			"agent/checkpoint.go": "package agent\nfunc (fs *fibers) updateRunning() { fs.rows.keepAlarm(ctx); p.armLater(ctx) }",
			"agent/rowwriter.go":  `package agent; func n() { rs.keepAlarm(batchKey{}, pause{rs}) }`,
		},
		want: []string{
			"agent/a.go:2: keepAlarm: `agent/a.go f` is not listed, and writes rows without the alarm",
			"agent/a.go:3: armLater: `agent/a.go g` is not listed, and writes rows without the alarm",
			"agent/a.go:4: batchKey: only agent/rowwriter.go makes it",
			"agent/a.go:5: pause: only agent/rowwriter.go makes it",
			"agent/a.go:6: keepAlarm: `agent/a.go` is not listed, and writes rows without the alarm",
			"agent/checkpoint.go:2: armLater: `agent/checkpoint.go fibers.updateRunning` is not listed, and writes rows without the alarm",
		},
	},
	{
		rule: "selector chains",
		files: map[string]string{
			"chat/a.go":      "package chat; import \"os\"\nvar a = b.c.d.e\nvar f = b.c.d().e[0].g()\nfunc h() { (*b.c).d.e.f() }\nvar g = os.b.c.d.e",
			"chat/a_test.go": `package chat; var a = b.c.d.e.f`,
			"chat/b/b.go":    `package b; var a = b.c.d.e.f`,
			"runtime/a.go":   `package runtime; var a = b.c.d.e.f`,
		},
		want: []string{
			"chat/a.go:3: b.c.d().e[0].g reaches through 4 values, the limit is 3: add a method",
			"chat/a.go:4: (*b.c).d.e.f reaches through 4 values, the limit is 3: add a method",
			"runtime/a.go:1: b.c.d.e.f reaches through 4 values, the limit is 3: add a method",
		},
	},
	{
		rule: "fresh contexts",
		files: map[string]string{
			"agent/a.go":         "package agent; import \"context\"\nvar a = context.Background()\nvar b = context." + "TO" + "DO()",
			"agent/a_test.go":    `package agent; import "context"; var a = context.Background()`,
			"runtime/r.go":       `package runtime; import "context"; var a = context.Background()`,
			"cmd/dohost/main.go": `package main; import "context"; var a = context.Background()`,
			"cli/main.go":        `package cli; import "context"; var a = context.Background()`,
			"cli/serve.go":       `package cli; import "context"; var a = context.Background()`,
			"web/w.go":           `package web; import ctx "context"; var a = ctx.WithoutCancel(ctx.Background())`,
		},
		want: []string{
			"agent/a.go:2: context.Background belongs to main, tests and runtime",
			"agent/a.go:3: context." + "TO" + "DO belongs to main, tests and runtime",
			"cli/serve.go:1: context.Background belongs to main, tests and runtime",
			"web/w.go:1: context.Background belongs to main, tests and runtime",
		},
	},
	{
		rule: "loose ends",
		files: map[string]string{
			"agent/a.go":      "package agent\n\n// FIX" + "ME: wrong.\nvar a int // TO" + "DO(me) later",
			"agent/a_test.go": "package agent // XX" + "X",
			"agent/b.go":      "package agent // AUTO" + "DO, TO" + "DOS",
		},
		want: []string{
			"agent/a.go:3: FIX" + "ME: do it, or write down why not",
			"agent/a.go:4: TO" + "DO: do it, or write down why not",
			"agent/a_test.go:1: XX" + "X: do it, or write down why not",
		},
	},
	{
		rule: "skipped tests",
		files: map[string]string{
			"agent/a_test.go": `package agent

import (
	"testing"

	"pgregory.net/rapid"
)

func TestA(t *testing.T) { t.Skip("later") }

func TestB(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { rt.Skip() })
}

func need(tb testing.TB) { tb.SkipNow() }
`,
			"internal/crashtest/c.go": "package crashtest; import \"testing\"\nfunc Need(b *testing.B) { b.Skipf(``) }",
		},
		want: []string{
			"agent/a_test.go:9: t.Skip: a test runs or does not exist",
			"agent/a_test.go:15: tb.SkipNow: a test runs or does not exist",
			"internal/crashtest/c.go:2: b.Skipf: a test runs or does not exist",
		},
	},
	{
		rule: "named tests",
		files: map[string]string{
			"AGENTS.md":       "| order | `TestOrder`, `TestGone` |\n`FuzzKey` and `FuzzLock`; TestProse, `Testing`",
			"ARCHITECTURE.md": "one\n`TestMethod` and `TestNotInATest`",
			"README.md":       "`TestElsewhere`",
			"agent/a.go":      "package agent\nfunc TestNotInATest() {}",
			"agent/a_test.go": "package agent\nfunc TestOrder() {}\nfunc FuzzKey() {}\nfunc (s suite) TestMethod() {}",
		},
		want: []string{
			"AGENTS.md:1: there is no test TestGone",
			"AGENTS.md:2: there is no test FuzzLock",
			"ARCHITECTURE.md:2: there is no test TestMethod",
			"ARCHITECTURE.md:2: there is no test TestNotInATest",
		},
	},
	{
		rule: "test subjects",
		files: map[string]string{
			"agent/a.go": "package agent\nfunc TestFailedRun() {}",
			"agent/a_test.go": `package agent
func TestFailedRunIsRetried() {}
func FuzzBigKey() {}
func BenchmarkEachGet() {}
func TestFeedIsTrimmed() {}
func TestShedEvicts() {}
func TestDeadLetterIsKept() {}
func TestDeadFiberIsKept() {}
func TestRunThatFailedIsRetried() {}
func TestOnewayCall() {}
func TestMain() {}
func testFailed() {}
func (suite) TestFailedMethod() {}`,
		},
		want: []string{
			`agent/a_test.go:2: TestFailedRunIsRetried begins with "Failed": begin the name of a test with its subject`,
			`agent/a_test.go:3: FuzzBigKey begins with "Big": begin the name of a test with its subject`,
			`agent/a_test.go:4: BenchmarkEachGet begins with "Each": begin the name of a test with its subject`,
			`agent/a_test.go:8: TestDeadFiberIsKept begins with "Dead": begin the name of a test with its subject`,
		},
	},
	{
		rule: "error texts",
		files: map[string]string{
			"agent/a.go": `package agent
var ErrGone = errors.New("agent: gone")
var ErrLost, errBusy, errPart = errors.New("lost"), fmt.Errorf("%w: agent: busy", dohost.ErrMisuse), errors.New("does not exist")
func Busy() (int, error) { return 0, errBusy }
func Each() error { return each(func() error { return errors.New("inside") }) }
func Wrap(err error) error { if err == ErrGone { return fmt.Errorf("%w, and %v", ErrGone, err) }; return fmt.Errorf("wrap: %w", err) }
func part() error { return errPart }
func (*Agent[S]) Close() error { return errors.New("agent: closed") }
func (a *Agent[S]) Open() error { return errors.New("open") }
func (hidden) Error() string { return "hidden " + "text" }
func (*busy) Error() string { if x { return fmt.Sprintf("agent: busy %d", 1) }; return fmt.Sprintf("%v", 2) }
func (lease) Append() error { return fmt.Errorf("%w: lost", sharedlog.ErrFenced) }
var errRejected = errors.New("an exception")
func All() iter.Seq2[int, error] { return func(yield func(int, error) bool) { yield(0, errors.New("all")) } }`,
			"agent/a_test.go": `package agent; func Test() error { return errors.New("test") }`,
			"cli/c.go": `package cli; func Run() error { return errors.New("--flag: empty") }
var errEnded = errors.New("ended")
var ErrReported = errors.New("reported")`,
			"d.go": `package dohost; func Open() error { return errors.New("open") }`,
		},
		want: []string{
			`d.go:1: the text of an error is "open": begin it with "dohost: "`,
			`agent/a.go:3: the text of an error is "lost": begin it with "agent: "`,
			`agent/a.go:3: the text of an error is "%w: agent: busy": begin it with "agent: "`,
			`agent/a.go:3: the text of an error is "does not exist": begin it with "agent: "`,
			`agent/a.go:6: the text of an error is "wrap: %w": begin it with "agent: "`,
			`agent/a.go:9: the text of an error is "open": begin it with "agent: "`,
			`agent/a.go:12: the text of an error is "%w: lost": begin it with "agent: "`,
			`agent/a.go:14: the text of an error is "all": begin it with "agent: "`,
			`agent/a.go:10: the text of an error is "hidden ": begin it with "agent: "`,
			`cli/c.go:3: the text of an error is "reported": begin it with "cli: "`,
		},
	},
}

func TestRulesFindPlantedViolations(t *testing.T) {
	unseen := maps.Clone(rules)
	for _, c := range planted {
		delete(unseen, c.rule)
		t.Run(c.rule, func(t *testing.T) {
			fsys := fstest.MapFS{"go.mod": {Data: []byte("module " + modulePath)}}
			for path, text := range c.files {
				fsys[path] = &fstest.MapFile{Data: []byte(text)}
			}
			tree, err := load(fsys)
			if err != nil {
				t.Fatal(err)
			}
			if got := rules[c.rule](tree); !slices.Equal(got, c.want) {
				t.Errorf("found\n%s\nwant\n%s", lines(got), lines(c.want))
			}
		})
	}
	for name := range unseen {
		t.Errorf("nothing is planted for the rule %q", name)
	}
}

// A row of longDecoders that excuses no function is a leftover.
func TestDecodersOfTheListExistAndAreLong(t *testing.T) {
	defer func(before []string) { longDecoders = before }(longDecoders)
	longDecoders = []string{"alarm/a.go decode", "alarm/a.go short", "alarm/a.go gone"}
	tree, err := load(fstest.MapFS{
		"go.mod":     {Data: []byte("module " + modulePath)},
		"alarm/a.go": {Data: []byte("package alarm\nfunc decode() {" + strings.Repeat("\n", 70) + "}\nfunc short() {}\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"alarm/a.go short: excepted as a long decoder, but not long, or not there",
		"alarm/a.go gone: excepted as a long decoder, but not long, or not there",
	}
	if got := funcSizes(tree); !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", lines(got), lines(want))
	}
}

func lines(found []string) string {
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintf(&b, "\t%s\n", f)
	}
	return b.String()
}
