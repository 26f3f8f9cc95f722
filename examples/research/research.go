// Package research has agents read a folder of text and count its words, with a fiber for each
// file. It is what the demo runs under chaos: every step adds, so a step that is lost, or done
// twice, changes the sum.
//
//	catalog ──starts──▶ researcher (one for a few files) ──adds──▶ merger (a few, shared)
//	   ▲                   │  a fiber for each file
//	   └────finished───────┘
//
// A step of a fiber reads a piece of the file, calls the mergers, and adds the words to the
// researcher's own rows. The calls come first and carry the step's number, by which a merger
// knows a step that it has seen; the own rows and the fiber's checkpoint are written together
// after them. So a step that is cut off is done again, whole, and counts once.
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

// Config says what is counted, and how.
type Config struct {
	// Files is where the text is.
	Files fs.FS
	// Piece is about how many bytes a step reads.
	Piece int
	// Mergers is the number of merger objects.
	Mergers int
	// Together is how many files a researcher reads.
	Together int
	// KeepAlive is the researchers' heartbeat: how long interrupted fibers may have to wait.
	KeepAlive time.Duration
	// Step is told, on a goroutine that it must not block, that a step of a file of so
	// many bytes is durable.
	Step func(bytes int)
	// Read is told that a step has read so many bytes, which it may do again.
	Read func(bytes int)
	// Seen is told that a merger was sent a step for the second time.
	Seen func()
	// Done is told, again and again, that all files are counted.
	Done func()
}

// Classes are the three classes of the job.
func (c *Config) Classes() []dohost.Class {
	return []dohost.Class{c.catalog(), c.researcher(), c.merger()}
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
		if d.Type().IsRegular() && validPath(path) {
			paths = append(paths, path)
		}
		return nil
	})
	sort.Strings(paths)
	return paths, err
}

// validPath says whether a path can be a fiber's key.
func validPath(path string) bool { return len(path) <= 256 && utf8.ValidString(path) }

// ResearcherName is the researcher that the file at a place of the list belongs to.
func (c *Config) ResearcherName(file int) string { return strconv.Itoa(file / c.Together) }

// ask calls a method that may be repeated, until it has an answer. An evicted callee
// is no failure of the caller's alarm, of which only a few are allowed.
func ask[O, In any](ctx context.Context, s dohost.Stub[O], m func(*O, context.Context, In) (struct{}, error), in In) error {
	return dohost.Retry(ctx, &dohost.RetryOptions{Idempotent: true}, func(ctx context.Context) error {
		_, err := dohost.Call(ctx, s, m, in)
		return err
	})
}
