package main

import (
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
)

// directCount is the expected result. It shares no code with the objects, not even the definition of a word.
type directCount struct {
	words map[string]int
	total int
}

var demoWord = regexp.MustCompile(`[A-Za-z]+`)

// demoWordLimit is the number of letters after which a word is cut off.
const demoWordLimit = 64

func countDirectly(files fs.FS) (*directCount, error) {
	c := &directCount{words: map[string]int{}}
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		for _, w := range demoWord.FindAll(text, -1) {
			c.words[string(w[:min(len(w), demoWordLimit)])]++
			c.total++
		}
		return nil
	})
	return c, err
}

// compare describes how a result differs, or returns "" if it does not.
func (c *directCount) compare(r *demoResult) string {
	own := 0
	for _, n := range r.Own {
		own += n
	}
	if own != c.total {
		return fmt.Sprintf("the documents' own rows add up to %d words, want %d", own, c.total)
	}
	for _, w := range slices.Sorted(maps.Keys(c.words)) {
		if r.Words[w] != c.words[w] {
			return fmt.Sprintf("the mergers have %d times %q, want %d", r.Words[w], w, c.words[w])
		}
	}
	if len(r.Words) != len(c.words) {
		return fmt.Sprintf("the mergers have %d different words, want %d", len(r.Words), len(c.words))
	}
	return ""
}
