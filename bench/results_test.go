package main

import (
	"os"
	"testing"
)

// results.md cannot be edited by hand.
func TestResultsAreMadeOfTheirFigures(t *testing.T) {
	r, err := load("results.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("results.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := r.markdown()
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != want {
		t.Error("results.md is not what results.json says: make both by go run ./bench -out bench")
	}
}
