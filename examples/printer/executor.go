package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

// executor prints jobs. Invariants:
//
//   - A job is open until its report is durable at the desk. A connection begins with all open jobs, so the executor gets each job that
//     it has not reported.
//   - The book has a line for each printed job. The executor reads it before it prints, so a job that was printed before
//     a kill is only reported.
type executor struct {
	desk, calls string // URLs
	book        *book
	delay       time.Duration
}

// follow prints the open jobs, and those that are added, until the connection ends.
func (e *executor) follow(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.desk+"/jobs?open", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the jobs: %s", res.Status)
	}
	return eachEvent(res, func(event, data string) error {
		if event != "enter" {
			return nil
		}
		var row struct{ Value Job }
		if err := json.Unmarshal([]byte(data), &row); err != nil {
			return err
		}
		return e.print(ctx, row.Value)
	})
}

// eachEvent calls do for each event of a stream.
func eachEvent(res *http.Response, do func(event, data string) error) error {
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 4<<20) // a row has at most 2 MiB
	event := ""
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			event = value
		case "data":
			if err := do(event, value); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// print prints a job, unless the book has it, and reports it.
func (e *executor) print(ctx context.Context, j Job) error {
	page, err := e.book.print(j)
	if err != nil {
		return err
	}
	select {
	case <-time.After(e.delay):
	case <-ctx.Done():
		return ctx.Err()
	}
	return post(ctx, e.calls+"/report", Result{j.ID, fmt.Sprintf("on page %d", page)}, new(Job))
}

// post calls a method of the desk, and decodes its result.
func post(ctx context.Context, url string, arg, result any) error {
	body, err := json.Marshal(arg)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, res.Status)
	}
	return json.NewDecoder(res.Body).Decode(result)
}

// book is the printer: a file with a line for each printed job. It takes the place of a device that has a memory of its jobs.
type book struct {
	file  *os.File
	pages map[string]int // by the id of the job
}

func openBook(path string) (*book, error) {
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	b := &book{pages: map[string]int{}}
	for line := range strings.Lines(string(text)) {
		var j Job
		if err := json.Unmarshal([]byte(line), &j); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		b.pages[j.ID] = len(b.pages) + 1
	}
	b.file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return b, err
}

// print prints a job unless it was printed, and returns its page.
func (b *book) print(j Job) (page int, err error) {
	if page, ok := b.pages[j.ID]; ok {
		return page, nil
	}
	line, err := json.Marshal(j)
	if err != nil {
		return 0, err
	}
	if _, err := b.file.Write(append(line, '\n')); err != nil { // one write, which a kill does not divide
		return 0, err
	}
	if err := b.file.Sync(); err != nil {
		return 0, err
	}
	b.pages[j.ID] = len(b.pages) + 1
	return b.pages[j.ID], nil
}

func (b *book) close() { _ = b.file.Close() } // each line is synced
