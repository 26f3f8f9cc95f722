package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// mutation is a patch that breaks the module, with the scenarios and tests that must find it.
type mutation struct {
	name      string
	path      string     // of the patch
	what      string     // describes the bug
	scenarios []scenario // and plain tests
	files     []string   // the changed files, slashed and relative to the module
}

// scenario is a test that runs one scenario at every point, or a plain test.
type scenario struct {
	pkg   string // in the form of go test: ./internal/simtest
	run   string // the pattern for -run
	plain bool   // ends no incarnation
}

// args returns the arguments of a test run.
func (s scenario) args() []string {
	if s.plain {
		return []string{"-test.run=" + s.run}
	}
	return []string{"-test.run=" + s.run, "-full"}
}

// readMutations reads the patches with matching names.
func readMutations(root string, wanted *regexp.Regexp) ([]*mutation, error) {
	paths, err := filepath.Glob(filepath.Join(root, "internal", "mutants", "testdata", "*.patch"))
	if err != nil {
		return nil, err
	}
	var ms []*mutation
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".patch")
		if !wanted.MatchString(name) {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		m, err := parseMutation(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		m.name, m.path = name, path
		ms = append(ms, m)
	}
	if len(ms) == 0 {
		return nil, errors.New("no mutation has such a name")
	}
	return ms, nil
}

// parseMutation reads the header of a patch, and the names of the changed files.
func parseMutation(text string) (*mutation, error) {
	m := new(mutation)
	var what []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if file, ok := strings.CutPrefix(line, "+++ b/"); ok {
			m.files = append(m.files, file)
		}
		comment, ok := strings.CutPrefix(line, "# ")
		if !ok {
			continue
		}
		by, atPoints := strings.CutPrefix(comment, "scenario: ")
		by, plain := strings.CutPrefix(by, "test: ")
		if !atPoints && !plain {
			what = append(what, comment)
			continue
		}
		pkg, run, ok := strings.Cut(by, " ")
		if !ok || !strings.HasPrefix(pkg, "./") || run == "" || strings.Contains(run, " ") {
			return nil, fmt.Errorf("%q: want a package, ./like/this, and a pattern for -run", line)
		}
		m.scenarios = append(m.scenarios, scenario{pkg, run, plain})
	}
	m.what = strings.Join(what, " ")
	switch {
	case m.what == "":
		return nil, errors.New("no line says what is wrong")
	case len(m.scenarios) == 0:
		return nil, errors.New("no line names the scenario or test that finds it")
	case len(m.files) == 0:
		return nil, errors.New("it changes nothing")
	}
	return m, nil
}

// moduleRoot returns the nearest folder, from here upwards, that has a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", errors.New("no go.mod in this folder or above it")
		}
		dir = above
	}
}
