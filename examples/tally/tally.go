// Package tally counts the words of a folder of text, with one object per file. It
// is what the demo runs under chaos: every step adds, so a step that is lost, or
// done twice, changes the sum.
//
//	catalog ──starts──▶ document (one per file) ──adds──▶ merger (a few, shared)
//	   ▲                   │  ▲
//	   └────finished───────┘  └─ one alarm per step
//
// A step reads a piece of the file, adds its words to the document's own rows, and
// calls the mergers. The calls come first and carry the step's number, by which a
// merger knows a step that it has seen; the document's own rows, its position and its
// next alarm are written together in the last segment of the step. So a step that is
// cut off is done again, whole, and counts once.
package tally

import (
	"context"
	"hash/fnv"
	"io/fs"
	"sort"
	"strconv"

	"github.com/dohost/dohost"
)

// Config says what is counted, and how.
type Config struct {
	// Files is where the text is.
	Files fs.FS
	// Piece is about how many bytes a step reads.
	Piece int
	// Mergers is the number of merger objects.
	Mergers int
	// Step is told, on a goroutine that it must not block, that a step of a file of so
	// many bytes is durable.
	Step func(bytes int)
	// Seen is told that a merger was sent a step for the second time.
	Seen func()
	// Done is told, again and again, that all files are counted.
	Done func()
}

// Classes are the three classes of the job.
func (c *Config) Classes() []dohost.Class {
	return []dohost.Class{c.catalog(), c.document(), c.merger()}
}

// MergerName is the merger that a word belongs to.
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
		if d.Type().IsRegular() && (dohost.ID{Class: string(Documents), Name: path}).Validate() == nil {
			paths = append(paths, path)
		}
		return nil
	})
	sort.Strings(paths)
	return paths, err
}

// ask calls a method that may be repeated, until it has an answer. An evicted callee
// is no failure of the caller's alarm, of which only a few are allowed.
func ask[O, In any](ctx context.Context, s dohost.Stub[O], m func(*O, context.Context, In) (struct{}, error), in In) error {
	return dohost.Retry(ctx, &dohost.RetryOptions{Idempotent: true}, func(ctx context.Context) error {
		_, err := dohost.Call(ctx, s, m, in)
		return err
	})
}
