package research

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// Researchers is the class of the agents that read files.
const Researchers dohost.Namespace[Researcher] = "research"

// reading is a fiber that reads one file.
const reading agent.FiberKind[place] = "reading"

// Researcher is an agent that reads a few files, with a fiber for each.
type Researcher struct {
	*agent.Agent[Progress]
	cfg *Config
}

// Progress is a researcher's state, which its clients share.
type Progress struct {
	Files int `json:"files"` // files given to it
	Read  int `json:"read"`  // files read completely
}

// place is a fiber's position in its file: its checkpoint.
type place struct {
	Path   string
	Step   int
	Offset int64
	Done   bool
}

const ownPrefix = "own/"

func (c *Config) researcher() dohost.Class {
	return agent.Bind(Researchers,
		func(_ context.Context, a *agent.Agent[Progress]) (*Researcher, error) { return &Researcher{a, c}, nil },
		&agent.Handlers[Researcher, Progress]{Options: agent.Options{KeepAlive: c.KeepAlive}},
		agent.Callable("totals", dohost.NoArg((*Researcher).Totals)),
		// Evictions without progress count as retries, and here there are many.
		agent.OnFiber(reading, (*Researcher).read, &agent.KindOptions{MaxRetries: math.MaxInt}))
}

// Start starts a fiber that reads a file, unless there is one already.
func (r *Researcher) Start(ctx context.Context, path string) error {
	s, err := agent.StartFiber(ctx, r, reading, place{Path: path}, &agent.FiberOptions{Key: path})
	if err != nil || !s.Accepted {
		return err
	}
	return r.UpdateState(ctx, func(p *Progress) error { p.Files++; return nil })
}

// read is the fiber's method. It continues from the checkpoint, in every incarnation.
func (r *Researcher) read(ctx context.Context, f *agent.Fiber[place]) error {
	at := f.Checkpoint()
	for !at.Done {
		next, err := r.step(ctx, f, at)
		if err != nil {
			return err
		}
		at = next
	}
	if err := ask(ctx, Catalogs.Get(r.Object(), CatalogName), (*Catalog).finished, at.Path); err != nil {
		return err
	}
	return r.UpdateState(ctx, func(p *Progress) error { p.Read++; return nil })
}

// step reads a piece, sends its words to the mergers, adds them to the researcher's own rows, and advances the
// checkpoint.
func (r *Researcher) step(ctx context.Context, f *agent.Fiber[place], at place) (place, error) {
	p, err := dohost.AwaitValue(ctx, func(context.Context) (piece, error) { return r.cfg.readPiece(at) })
	if err != nil {
		return at, err
	}
	if err := r.merge(ctx, at, p.words); err != nil {
		return at, err
	}
	size := int(p.next - at.Offset)
	next := place{Path: at.Path, Step: at.Step + 1, Offset: p.next, Done: p.done}
	// All of these writes commit or none: an eviction discards uncommitted writes, and the Transaction rolls
	// back earlier ones after an error.
	return next, dohost.Transaction(ctx, func(ctx context.Context) error {
		for prefix, n := range byPrefix(p.words) {
			if err := dohost.Add(ctx, r.Storage(), ownPrefix+prefix, n); err != nil {
				return err
			}
		}
		if err := f.SetCheckpoint(ctx, next); err != nil {
			return err
		}
		return r.Object().Emit(ctx, func(err error) {
			if err == nil && r.cfg.Step != nil {
				r.cfg.Step(size)
			}
		})
	})
}

// piece is the result of reading a piece.
type piece struct {
	words map[string]int
	next  int64
	done  bool
}

// readPiece reads the piece at a place.
func (c *Config) readPiece(at place) (p piece, err error) {
	f, err := c.Files.Open(at.Path)
	if err != nil {
		return p, err
	}
	defer f.Close()
	r, ok := f.(io.ReaderAt)
	if !ok {
		data, err := io.ReadAll(f)
		if err != nil {
			return p, fmt.Errorf("read %s: %w", at.Path, err)
		}
		r = bytes.NewReader(data)
	}
	p.words, p.next, p.done, err = readPiece(r, at.Offset, c.Piece)
	if err == nil && c.Read != nil {
		c.Read(int(p.next - at.Offset))
	}
	return p, err
}

// merge sends each merger its share of the words.
func (r *Researcher) merge(ctx context.Context, at place, words map[string]int) error {
	shares := map[string]map[string]int{}
	for w, n := range words {
		name := r.cfg.MergerName(w)
		if shares[name] == nil {
			shares[name] = map[string]int{}
		}
		shares[name][w] = n
	}
	for i := range r.cfg.Mergers {
		share := shares[mergerName(i)]
		if share == nil {
			continue
		}
		delta := Delta{File: at.Path, Step: at.Step, Words: share}
		if err := ask(ctx, Mergers.Get(r.Object(), mergerName(i)), (*Merger).Add, delta); err != nil {
			return err
		}
	}
	return nil
}

// byPrefix sums words by their first two letters.
func byPrefix(words map[string]int) map[string]int {
	sums := map[string]int{}
	for w, n := range words {
		sums[w[:min(2, len(w))]] += n
	}
	return sums
}

// Totals returns the researcher's own counts by the first two letters.
func (r *Researcher) Totals(ctx context.Context) (map[string]int, error) {
	sums := map[string]int{}
	for it, err := range dohost.All[int](ctx, r.Storage(), &dohost.ListOptions{Prefix: ownPrefix}) {
		if err != nil {
			return nil, err
		}
		sums[it.Key[len(ownPrefix):]] = it.Value
	}
	return sums, nil
}
