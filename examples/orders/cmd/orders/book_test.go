//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"os"
)

// book reads the bank's book from its file. It shares no code with the bank or with the ledger.
type book struct {
	path     string
	read     int // bytes
	entries  map[string][]bookEntry
	declined int
}

// bookEntry is a charge.
type bookEntry struct{ receipt, key string }

// update reads the lines that the bank has added.
func (b *book) update() error {
	text, err := os.ReadFile(b.path)
	if err != nil {
		return err
	}
	end := bytes.LastIndexByte(text, '\n') + 1
	for line := range bytes.Lines(text[b.read:end]) {
		var e map[string]any
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		order, _ := e["order"].(string)
		key, _ := e["key"].(string)
		if receipt, ok := e["receipt"].(string); ok {
			b.entries[order] = append(b.entries[order], bookEntry{receipt, key})
		} else {
			b.declined++
		}
	}
	b.read = end
	return nil
}
