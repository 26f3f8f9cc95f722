package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// book is the printer: a file with a line for each printed job. It takes the place of a device that has a memory of its jobs. One process
// at a time has a book.
type book struct {
	file  *os.File
	size  int64          // of the complete lines
	pages map[string]int // by the id of the job
}

// openBook opens a book, and makes it unless it exists. The end of a process may have cut off the last line: that job was not printed.
func openBook(path string) (*book, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	b := &book{file: file, pages: map[string]int{}}
	if err := b.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return b, nil
}

func (b *book) read() error {
	if err := lock(b.file); err != nil {
		return fmt.Errorf("another executor has the book: %w", err)
	}
	text, err := io.ReadAll(b.file)
	if err != nil {
		return err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	for line := range bytes.Lines(text) {
		var j Job
		if err := json.Unmarshal(line, &j); err != nil {
			return err
		}
		b.pages[j.ID] = len(b.pages) + 1
	}
	b.size = int64(len(text))
	return b.file.Truncate(b.size)
}

// print prints a job unless it was printed, and returns its page. After an error the job is not printed.
func (b *book) print(j Job) (page int, err error) {
	if page, ok := b.pages[j.ID]; ok {
		return page, nil
	}
	line, err := json.Marshal(j)
	if err != nil {
		return 0, err
	}
	line = append(line, '\n')
	if _, err = b.file.Write(line); err == nil {
		err = b.file.Sync()
	}
	if err != nil {
		return 0, errors.Join(err, b.file.Truncate(b.size))
	}
	b.size += int64(len(line))
	b.pages[j.ID] = len(b.pages) + 1
	return b.pages[j.ID], nil
}

func (b *book) close() { _ = b.file.Close() } // each line is synced
