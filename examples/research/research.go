// Package research contains agents that read a folder of text and count its words, with a fiber for each file.
// The demo runs it under chaos: every step adds to a sum, so a lost or repeated step changes the sum.
//
//	catalog ──starts──▶ researcher (one for a few files) ──adds──▶ merger (a few, shared)
//	   ▲                   │  a fiber for each file
//	   └────finished───────┘
//
// A step of a fiber reads a piece of the file, calls the mergers, and adds the words to the researcher's own
// rows. The calls come first and carry the step's number, so a merger recognizes a repeated step; the
// researcher's rows and the fiber's checkpoint are written together after the calls. So a step that is cut off
// runs again, completely, and counts once.
package research

import (
	"context"
	"hash/fnv"
	"io/fs"
	"sort"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/dohost/dohost"
)

// Config configures the job.
type Config struct {
	// Files contains the text.
	Files fs.FS
	// Piece is the approximate number of bytes that a step reads.
	Piece int
	// Mergers is the number of merger objects.
	Mergers int
	// Together is the number of files per researcher.
	Together int
	// KeepAlive is the researchers' heartbeat: the maximum wait of an interrupted fiber.
	KeepAlive time.Duration
	// Step is called when a step is durable, on a goroutine that it must not block. bytes is the size of the piece that the step has read.
	Step func(bytes int)
	// Read is called when a step has read a piece of a file. bytes is its size. An interrupted step reads the piece again.
	Read func(bytes int)
	// Seen is called when a merger gets a step for the second time.
	Seen func()
	// Done is called repeatedly once all files are counted.
	Done func()
}

// Classes returns the three classes of the job.
func (c *Config) Classes() []dohost.Class {
	return []dohost.Class{c.catalog(), c.researcher(), c.merger()}
}

// MergerName returns the name of a word's merger.
func (c *Config) MergerName(word string) string {
	h := fnv.New32a()
	h.Write([]byte(word))
	return mergerName(int(h.Sum32() % uint32(c.Mergers)))
}

func mergerName(i int) string { return strconv.Itoa(i) }

// Paths lists the regular files, in order.
func (c *Config) Paths() ([]string, error) {
	var paths []string
	err := fs.WalkDir(c.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Type().IsRegular() && validPath(path) {
			paths = append(paths, path)
		}
		return nil
	})
	sort.Strings(paths)
	return paths, err
}

// validPath reports whether a path can be a fiber's key.
func validPath(path string) bool { return len(path) <= 256 && utf8.ValidString(path) }

// ResearcherName returns the name of the researcher of a file, by its index in Paths.
func (c *Config) ResearcherName(file int) string { return strconv.Itoa(file / c.Together) }

// ask repeats an idempotent call until it is answered. An evicted callee must not use up one of the caller's
// few alarm attempts.
func ask[O, In any](ctx context.Context, s dohost.Stub[O], m func(*O, context.Context, In) error, in In) error {
	return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
		return dohost.CallNoResult(ctx, s, m, in)
	})
}
