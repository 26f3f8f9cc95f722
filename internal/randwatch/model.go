package randwatch

import (
	"fmt"
	"strings"

	"github.com/dohost/dohost"
)

// model is the object's content as the programs know it. It is a value in the object's storage.
type model struct {
	Serial  int // of its versions
	Next    int // the number of the last note
	Notes   map[string]noteAt
	End     dohost.Position     // of the feed of the notes, after its last change
	Streams map[string][]string // the words of each generation, by sink and name
}

// noteAt is a note with its version. It has no text.
type noteAt struct {
	Note    note
	Version uint64
}

// note is a row that is watched.
type note struct {
	ID     string
	Number int // selects the text
	Size   int // of the text
	Rank   int // its place in byRank; 0: none
	Tags   []string
	Hidden bool
	Text   string `json:"-"`
}

// The indexes of the notes.
const (
	byRank = "rank"
	byTag  = "tag"
)

// keep is the number of changes that the feed of the notes keeps.
const keep = 25

var (
	feed  = dohost.Feed{Name: "notes", Values: true, Before: true, Keep: keep}
	notes = dohost.Collection[note]{
		Name: "notes", Feed: &feed,
		Key: func(n note) string { return n.ID },
		Indexes: []dohost.Index[note]{
			{Name: byRank, Of: func(n note) dohost.Key {
				if n.Rank == 0 {
					return ""
				}
				return dohost.KeyOf(n.Rank)
			}},
			{Name: byTag, Each: func(n note) (keys []dohost.Key) {
				for _, tag := range n.Tags {
					keys = append(keys, dohost.KeyOf(tag)+dohost.KeyOf(n.Rank))
				}
				return keys
			}},
		},
	}
)

func newModel() *model { return &model{Notes: map[string]noteAt{}, Streams: map[string][]string{}} }

// sizes are the sizes of texts. A page of a watch has 256 KiB.
var sizes = []int{0, 100, 50 << 10, 100 << 10, 130 << 10, 130 << 10}

// newNote returns a note that k and n select.
func (m *model) newNote(k, n int) note {
	m.Next++
	return note{
		ID: fmt.Sprint("n", k), Number: m.Next, Size: sizes[n%len(sizes)], Rank: n / 6 % 4, Tags: tagsOf(n / 24), Hidden: n%5 == 0,
	}.withText()
}

// tagsOf returns none to three tags, which n selects.
func tagsOf(n int) (tags []string) {
	for i, tag := range []string{"x", "y", "z"} {
		if n>>i&1 == 1 {
			tags = append(tags, tag)
		}
	}
	return tags
}

// withText returns the note with its text.
func (n note) withText() note {
	n.Text = ""
	if n.Size > 0 {
		n.Text = strings.Repeat(fmt.Sprint(n.Number, " "), n.Size/4)
	}
	return n
}

// describe describes a note of a version. A text is described by its beginning and its length.
func describe(n note, version uint64) string {
	return fmt.Sprintf("%s at version %d: number %d, rank %d, tags %q, hidden %t, text %.5q of %d", n.ID, version, n.Number, n.Rank, n.Tags, n.Hidden, n.Text, len(n.Text))
}

func (n noteAt) String() string { return describe(n.Note.withText(), n.Version) }
