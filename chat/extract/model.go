package extract

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/dohost/dohost/chat"
)

// Model answers from a folder. It is safe for concurrent use.
type Model struct {
	index func() *index // made for the first question: many programs have a Model and never ask it
	pace  time.Duration
}

// Options tunes New. A nil *Options, and the zero Options, mean the defaults.
type Options struct {
	// Pace is the delay per word. Zero means none; negative is an error.
	Pace time.Duration
}

// New reads the .md and .txt files of a folder and its subfolders. It skips files larger than 1 MiB.
//
// Errors: the errors of reading, and one for a folder without text.
func New(fsys fs.FS, o *Options) (*Model, error) {
	m := &Model{}
	if o != nil {
		m.pace = o.Pace
	}
	if m.pace < 0 {
		return nil, fmt.Errorf("extract: Options.Pace is %v: want 0 or more", m.pace)
	}
	files, err := readFolder(fsys)
	m.index = sync.OnceValue(func() *index { return newIndex(files) })
	return m, err
}

// Stream answers the last message of the user, word by word, and then names the quoted passages as source-document
// chunks, one per file, with the file's name and the passage's heading as title.
func (m *Model) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		text, sources := m.answer(question(p))
		id := "answer"
		partial := p.Partial.PlainText()
		rest, continues := strings.CutPrefix(text, partial)
		if !continues { // the files have changed
			rest, id = "\n\n"+text, "again"
		}
		for word := range words(rest) {
			if !m.wait(ctx) || !yield(chat.TextDelta(id, word), nil) {
				return
			}
		}
		if !yield(chat.TextEnd(id), nil) {
			return
		}
		for _, source := range sources {
			if namesFile(p.Partial, source.file) {
				continue
			}
			c, err := chat.NewChunk("source-document", map[string]any{
				"sourceId": source.file, "title": source.title(), "filename": source.file, "mediaType": "text/plain",
			})
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

// wait waits for the delay of one word. It returns false if ctx has ended.
func (m *Model) wait(ctx context.Context) bool {
	if m.pace == 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(m.pace)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// question returns the text of the user's last message.
func question(p *chat.Prompt) (q string) {
	for i := range p.Messages {
		if p.Messages[i].Role == chat.RoleUser {
			q = p.Messages[i].PlainText()
		}
	}
	return q
}

// namesFile reports whether a message already names a file.
func namesFile(m chat.Message, file string) bool {
	for _, p := range m.Parts {
		if p.Type() == "source-document" && p.Text("sourceId") == file {
			return true
		}
	}
	return false
}

// title returns the name of the passage's file, and its heading if it has one.
func (p *passage) title() string {
	if p.heading == "" {
		return p.file
	}
	return p.file + ": " + p.heading
}

// answer returns the text of the answer, and the first passage of each file that it quotes.
func (m *Model) answer(question string) (text string, sources []*passage) {
	x := m.index()
	best := x.search(question, 2)
	if len(best) == 0 {
		return fmt.Sprintf("I found nothing about that in %d files. Ask about something that they contain, such as %q.",
			len(x.files), x.passages[0].heading), nil
	}
	var b strings.Builder
	for i, f := range best {
		if i > 0 && f.score < best[0].score*0.6 {
			break
		}
		if i > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(strings.Join(x.best(f.passage, question), " "))
		if i == 0 || f.file != best[0].file {
			sources = append(sources, f.passage)
		}
	}
	return b.String(), sources
}

// words yields the words of a text, each with the space after it.
func words(s string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for s != "" {
			n := strings.IndexByte(s, ' ')
			if n < 0 {
				n = len(s) - 1
			}
			if !yield(s[:n+1]) {
				return
			}
			s = s[n+1:]
		}
	}
}
