package research

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/dohost/dohost"
)

// Mergers is the class of the shared objects that add up what researchers send.
const Mergers dohost.Namespace[Merger] = "merger"

// Merger adds up the words of all files that are its share.
type Merger struct {
	cfg   *Config
	store *dohost.Storage
}

// Delta is what one step of a file found.
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
		dohost.Expose("count", (*Merger).Count),
		dohost.OnHTTP((*Merger).ServeHTTP))
}

// Add adds a step's words, unless it has seen that step. Steps of a file come
// in order.
func (m *Merger) Add(ctx context.Context, d Delta) (struct{}, error) {
	return struct{}{}, dohost.Transaction(ctx, func(ctx context.Context) error {
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

// Count returns how often a word was seen so far.
func (m *Merger) Count(ctx context.Context, word string) (int, error) {
	n, _, err := dohost.Get[int](ctx, m.store, wordPrefix+word)
	return n, err
}

// Word is a word and how often it was seen.
type Word struct {
	Word  string
	Count int
}

// Pieces of the stream: words are sent so many at a time.
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
