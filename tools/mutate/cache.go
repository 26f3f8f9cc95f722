package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"sync"
)

//go:embed equivalent.txt
var equivalentText string

// equivalents returns the reasons of equivalent mutations by name. Each must name a site.
func equivalents(text string, sites []*site) (map[string]string, error) {
	names := map[string]bool{}
	for _, s := range sites {
		names[s.name] = true
	}
	reasons := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, _ := strings.Cut(line, " ")
		if !names[name] || reason == "" {
			return nil, fmt.Errorf("equivalent.txt: %q: want the name of a mutation and a reason", line)
		}
		reasons[name] = reason
	}
	return reasons, nil
}

// cache keeps results in a file, so that a run can be continued. The methods get and put may be
// called from any goroutine.
type cache struct {
	mu      sync.Mutex // guards the rest
	file    *os.File   // nil if no file was requested
	results map[string]result
}

// openCache reads the results in a file, if it exists. With again, it leaves out the mutations that no test has found.
func openCache(name string, again bool) (*cache, error) {
	c := &cache{results: map[string]result{}}
	if name == "" {
		return c, nil
	}
	var err error
	if c.file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666); err != nil {
		return nil, err
	}
	for lines := json.NewDecoder(c.file); ; {
		var r result
		switch err := lines.Decode(&r); {
		case errors.Is(err, io.EOF):
			maps.DeleteFunc(c.results, func(_ string, r result) bool { return again && r.Test == "" })
			return c, nil
		case err != nil:
			return nil, errors.Join(fmt.Errorf("%s: %w", name, err), c.close())
		}
		c.results[r.Name+" "+r.Hash] = r
	}
}

func (c *cache) close() error {
	if c.file == nil {
		return nil
	}
	return c.file.Close()
}

// get returns the result of a mutation of an unchanged function.
func (c *cache) get(s *site) (result, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.results[s.name+" "+s.hash]
	return r, ok
}

// put keeps a result.
func (c *cache) put(r result) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.results[r.Name+" "+r.Hash] = r
	if c.file == nil {
		return nil
	}
	return json.NewEncoder(c.file).Encode(r)
}
