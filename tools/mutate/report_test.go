package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestReportLeavesOutEmptyResults(t *testing.T) {
	sites := []*site{{name: "a:drop:0", pkg: "p"}, {name: "b:drop:0", pkg: "p"}, {name: "c:drop:0", pkg: "p"}, {name: "d:drop:0", pkg: "p"}}
	results := []result{{Verdict: byScenario, Test: "TestA"}, {}, {Verdict: survived}, {Verdict: byTest, Test: "TestD"}}
	var out bytes.Buffer
	total := report(&out, []string{"p"}, sites, results)
	if want := (score{all: 3, scenario: 1, test: 2}); total != want {
		t.Errorf("the total is %+v, want %+v", total, want)
	}
	if text := out.String(); !strings.Contains(text, "survived: c:drop:0") || strings.Contains(text, "b:drop:0") {
		t.Errorf("the survivors are:\n%s", text)
	}
}
