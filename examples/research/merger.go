package research

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/dohost/dohost"
)

// Mergers is the class of the shared objects that sum the words of all researchers.
const Mergers dohost.Namespace[Merger] = "merger"

// Merger sums its share of the words of all files.
type Merger struct {
	cfg   *Config
	store *dohost.Storage
}

// Delta contains the words of one step of a file.
type Delta struct {
	File  string
	Step  int
	Words map[string]int
}

const (
	seenPrefix = "seen/"
	wordPrefix = "word/"
)

func (c *Config) merger() dohost.Class {
	return dohost.Bind(Mergers,
		func(_ context.Context, st *dohost.State) (*Merger, error) { return &Merger{c, st.Storage()}, nil },
		&dohost.Handlers[Merger]{OnHTTP: (*Merger).ServeHTTP},
		dohost.Expose("count", (*Merger).Count))
}

// Add adds a step's words, unless it has already added that step. Steps of a file arrive in order.
func (m *Merger) Add(ctx context.Context, d Delta) error {
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		next, _, err := dohost.Get[int](ctx, m.store, seenPrefix+d.File)
		if err != nil {
			return err
		}
		if d.Step < next {
			if m.cfg.Seen != nil {
				m.cfg.Seen()
			}
			return nil
		}
		for w, n := range d.Words {
			if err := dohost.Add(ctx, m.store, wordPrefix+w, n); err != nil {
				return err
			}
		}
		return dohost.Put(ctx, m.store, seenPrefix+d.File, d.Step+1)
	})
}

// Count returns the number of occurrences of a word so far.
func (m *Merger) Count(ctx context.Context, word string) (int, error) {
	n, _, err := dohost.Get[int](ctx, m.store, wordPrefix+word)
	return n, err
}

// Word is a word with its number of occurrences.
type Word struct {
	Word  string
	Count int
}

// wordsPerPiece is the number of words after which the stream is flushed.
const wordsPerPiece = 32

// ServeHTTP streams all words as JSON, one a line, and an empty object at the end.
func (m *Merger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	words, err := dohost.List[int](r.Context(), m.store, &dohost.ListOptions{Prefix: wordPrefix})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	out := json.NewEncoder(w)
	for i, it := range words {
		if out.Encode(Word{it.Key[len(wordPrefix):], it.Value}) != nil {
			return
		}
		if i%wordsPerPiece == wordsPerPiece-1 && http.NewResponseController(w).Flush() != nil {
			return
		}
	}
	_ = out.Encode(Word{})
}
