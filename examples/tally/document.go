package tally

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/dohost/dohost"
)

// Documents is the class of the objects that read a file each.
const Documents dohost.Namespace[Document] = "document"

// Document counts the words of one file, a piece at a time.
type Document struct {
	cfg   *Config
	state *dohost.State
}

// progress is how far a document has come.
type progress struct {
	Step   int
	Offset int64
	Done   bool
}

const (
	progressKey = "progress"
	ownPrefix   = "own/"
)

func (c *Config) document() dohost.Class {
	return dohost.Bind(Documents,
		func(_ context.Context, st *dohost.State) (*Document, error) { return &Document{c, st}, nil },
		dohost.OnAlarm((*Document).step),
		dohost.Expose("totals", (*Document).Totals))
}

// Start begins to count, unless that has begun already.
func (d *Document) Start(ctx context.Context, _ struct{}) (struct{}, error) {
	_, begun, err := dohost.Get[progress](ctx, d.state.Storage(), progressKey)
	if err != nil || begun {
		return struct{}{}, err
	}
	if err := dohost.Put(ctx, d.state.Storage(), progressKey, progress{}); err != nil {
		return struct{}{}, err
	}
	return struct{}{}, d.state.SetAlarm(ctx, time.Now())
}

// step counts the next piece of the file, or tells the catalog that there is none.
func (d *Document) step(ctx context.Context, _ dohost.AlarmInfo) error {
	store := d.state.Storage()
	at, _, err := dohost.Get[progress](ctx, store, progressKey)
	if err != nil {
		return err
	}
	if at.Done {
		return ask(ctx, Catalogs.Get(d.state, CatalogName), (*Catalog).finished, d.state.ID().Name)
	}
	words, next, done, err := d.read(at.Offset)
	if err != nil {
		return err
	}
	if err := d.merge(ctx, at.Step, words); err != nil {
		return err
	}
	read := int(next - at.Offset)
	// All of it happens, or none: an eviction takes back what has not been handed over,
	// and the Transaction what came before an error.
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		for prefix, n := range byPrefix(words) {
			if err := dohost.Add(ctx, store, ownPrefix+prefix, n); err != nil {
				return err
			}
		}
		if err := dohost.Put(ctx, store, progressKey, progress{Step: at.Step + 1, Offset: next, Done: done}); err != nil {
			return err
		}
		if err := d.state.Emit(ctx, func(err error) {
			if err == nil && d.cfg.Step != nil {
				d.cfg.Step(read)
			}
		}); err != nil {
			return err
		}
		return d.state.SetAlarm(ctx, time.Now())
	})
}

// read counts the piece at offset.
func (d *Document) read(offset int64) (words map[string]int, next int64, done bool, err error) {
	f, err := d.cfg.Files.Open(d.state.ID().Name)
	if err != nil {
		return nil, 0, false, err
	}
	defer f.Close()
	r, ok := f.(io.ReaderAt)
	if !ok {
		data, err := io.ReadAll(f)
		if err != nil {
			return nil, 0, false, fmt.Errorf("read %s: %w", d.state.ID().Name, err)
		}
		r = bytes.NewReader(data)
	}
	return readPiece(r, offset, d.cfg.Piece)
}

// merge sends each merger the words that are its.
func (d *Document) merge(ctx context.Context, step int, words map[string]int) error {
	shares := map[string]map[string]int{}
	for w, n := range words {
		name := d.cfg.MergerName(w)
		if shares[name] == nil {
			shares[name] = map[string]int{}
		}
		shares[name][w] = n
	}
	for i := range d.cfg.Mergers {
		share := shares[mergerName(i)]
		if share == nil {
			continue
		}
		delta := Delta{Document: d.state.ID().Name, Step: step, Words: share}
		if err := ask(ctx, Mergers.Get(d.state, mergerName(i)), (*Merger).Add, delta); err != nil {
			return err
		}
	}
	return nil
}

// byPrefix adds up words by their first two letters.
func byPrefix(words map[string]int) map[string]int {
	sums := map[string]int{}
	for w, n := range words {
		sums[w[:min(2, len(w))]] += n
	}
	return sums
}

// Totals returns the document's own counts by the first two letters.
func (d *Document) Totals(ctx context.Context, _ struct{}) (map[string]int, error) {
	sums := map[string]int{}
	for it, err := range dohost.All[int](ctx, d.state.Storage(), &dohost.ListOptions{Prefix: ownPrefix}) {
		if err != nil {
			return nil, err
		}
		sums[it.Key[len(ownPrefix):]] = it.Value
	}
	return sums, nil
}
