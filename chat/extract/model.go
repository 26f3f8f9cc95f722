package extract

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"strings"
	"time"

	"github.com/dohost/dohost/chat"
)

// Model answers from a folder. Any goroutine.
type Model struct {
	x    *index
	pace time.Duration
}

// Options tunes New. A nil *Options, and the zero Options, mean the defaults.
type Options struct {
	// Pace is how long a word takes. Zero means none; negative is an error.
	Pace time.Duration
}

// New reads the .md and .txt files of a folder, and of those in it, of at most 1 MiB each.
//
// Errors: those of reading, and one for a folder without text.
func New(fsys fs.FS, o *Options) (*Model, error) {
	m := &Model{}
	if o != nil {
		m.pace = o.Pace
	}
	if m.pace < 0 {
		return nil, fmt.Errorf("extract: Options.Pace is %v", m.pace)
	}
	var err error
	m.x, err = newIndex(fsys)
	return m, err
}

// Stream answers what the user has said last, word by word, and names the files that it has that from, in
// the text and as source-document chunks.
func (m *Model) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		text, files := m.answer(question(p))
		id := "answer"
		said := p.Partial.PlainText()
		rest, goesOn := strings.CutPrefix(text, said)
		if !goesOn { // the files are others than they were
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
		for _, file := range files {
			if has(p.Partial, file) {
				continue
			}
			c, err := chat.NewChunk("source-document", map[string]any{
				"sourceId": file, "title": file, "filename": file, "mediaType": "text/plain",
			})
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

// wait waits as long as a word takes, and is false if nobody wants it any more.
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

// question is what the user has said last.
func question(p *chat.Prompt) (q string) {
	for i := range p.Messages {
		if p.Messages[i].Role == chat.User {
			q = p.Messages[i].PlainText()
		}
	}
	return q
}

// has says that a message names a file already.
func has(m chat.Message, file string) bool {
	for _, p := range m.Parts {
		if p.Type() == "source-document" && p.Text("sourceId") == file {
			return true
		}
	}
	return false
}

// answer is what the files say to a question, and which.
func (m *Model) answer(question string) (text string, files []string) {
	best := m.x.search(question, 2)
	if len(best) == 0 {
		return fmt.Sprintf("I have found nothing about that in %d files. Ask about something that stands in them, such as %q.",
			len(m.x.files), m.x.passages[0].heading), nil
	}
	var b strings.Builder
	for i, f := range best {
		if i > 0 && f.worth < best[0].worth*0.6 {
			break
		}
		if i > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(strings.Join(m.x.best(f.passage, question), " "))
		fmt.Fprintf(&b, " (%s)", f.file)
		if i == 0 || f.file != best[0].file {
			files = append(files, f.file)
		}
	}
	return b.String(), files
}

// words are the words of a text, each with what is behind it.
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
