package extract

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/dohost/dohost/chat"
)

var folder = fstest.MapFS{
	"guide.md": {Data: []byte("# Eviction\n\nAn object leaves memory when it is idle. Its rows stay on the disk.\nThe next call wakes it. " +
		"Leaving takes no time. Memory is returned to Go. This is the sixth sentence, and it speaks of nothing. Sockets stay open while it is away.\n\n" +
		"```go\nevict := func() {} // eviction in code\n```\n\n## Alarms\n\nAn alarm is `persistent`: it fires [after a restart](x.md).\n\n" +
		"- A list about queues has items.\n- Another about cron has a time zone.\n" +
		"- an item of a sentence, about flags;\n\n" +
		"## What is a fiber?\n\nWork that goes on after the end of its process, and keeps how far it has come.\n\n" +
		"## Events\n\nFibers, fiber after fiber, end: fiber by fiber.\n")},
	"sub/other.txt": {Data: []byte("Chat goes on in mid-sentence, since each chunk is written before it is shown.")},
	"picture.png":   {Data: []byte("eviction eviction eviction")},
	"large.md":      {Data: []byte(strings.Repeat("eviction ", 200_000))},
}

// answerOf returns a model's answer, and the files that it names.
func answerOf(t *testing.T, m *Model, question string, partial chat.Message) (text string, files []string, chunks []chat.Chunk) {
	t.Helper()
	p := &chat.Prompt{Messages: []chat.Message{chat.Text("u", chat.RoleUser, question)}, Partial: partial}
	for c, err := range m.Stream(t.Context(), p) {
		if err != nil {
			t.Fatal(err)
		}
		chunks = append(chunks, c)
		text += c.Text("delta")
		if c.Type() == "source-document" {
			files = append(files, c.Text("sourceId"))
		}
	}
	return text, files, chunks
}

func TestAnswers(t *testing.T) {
	m, err := New(folder, nil)
	if err != nil {
		t.Fatal(err)
	}
	for question, want := range map[string]string{
		"When does an object leave memory?":              "An object leaves memory when it is idle. Its rows stay on the disk. The next call wakes it. Leaving takes no time. Memory is returned to Go.",
		"do sockets stay open while the object is away?": "An object leaves memory when it is idle. Its rows stay on the disk. The next call wakes it. Leaving takes no time. Sockets stay open while it is away.",
		"alarms after restarts":                          "An alarm is persistent: it fires after a restart.",
		"what are fibers": "Work that goes on after the end of its process, and keeps how far it has come.\n\n" +
			"Fibers, fiber after fiber, end: fiber by fiber.",
		"queue":                "A list about queues has items.",
		"how is a chunk shown": "Chat goes on in mid-sentence, since each chunk is written before it is shown.",
		"func in code":         `I found nothing about that in 2 files. Ask about something that they contain, such as "Eviction".`,
		"which flags":          `I found nothing about that in 2 files. Ask about something that they contain, such as "Eviction".`,
		"What is the meaning?": `I found nothing about that in 2 files. Ask about something that they contain, such as "Eviction".`,
	} {
		got, files, _ := answerOf(t, m, question, chat.Message{})
		if got != want {
			t.Errorf("%s\ngot  %s\nwant %s", question, got, want)
		}
		wantFiles := 1
		if strings.HasPrefix(want, "I found nothing") {
			wantFiles = 0
		}
		if len(files) != wantFiles {
			t.Errorf("%s: it names %q", question, files)
		}
	}
}

// The sources of an answer are separate chunks with file and heading as title, and not part of its text.
func TestAnswerNamesItsSources(t *testing.T) {
	m, err := New(folder, nil)
	if err != nil {
		t.Fatal(err)
	}
	for question, want := range map[string]string{
		"what are fibers":      "guide.md: What is a fiber?",
		"how is a chunk shown": "sub/other.txt",
	} {
		text, _, chunks := answerOf(t, m, question, chat.Message{})
		last := chunks[len(chunks)-1]
		if last.Type() != "source-document" || last.Text("title") != want || strings.Contains(text, ".md") {
			t.Errorf("%s: %q, last chunk %s %q, want a source titled %q", question, text, last.Type(), last.Text("title"), want)
		}
	}
}

// A reply interrupted at any chunk resumes with the missing words.
func TestAnswerResumesAtAnyChunk(t *testing.T) {
	m, err := New(folder, nil)
	if err != nil {
		t.Fatal(err)
	}
	const question = "when does an object leave memory"
	whole, _, chunks := answerOf(t, m, question, chat.Message{})
	if len(chunks) < 10 {
		t.Fatalf("%d chunks", len(chunks))
	}
	for cut := 0; cut <= len(whole); cut++ {
		rest, _, _ := answerOf(t, m, question, chat.Text("a", chat.RoleAssistant, whole[:cut]))
		if whole[:cut]+rest != whole {
			t.Fatalf("after %q it goes on with %q", whole[:cut], rest)
		}
	}
	rest, _, _ := answerOf(t, m, question, chat.Text("a", chat.RoleAssistant, "Something else."))
	if rest != "\n\n"+whole {
		t.Errorf("%q", rest)
	}
}

func TestModelErrors(t *testing.T) {
	if _, err := New(fstest.MapFS{"a.png": {}}, nil); err == nil || !strings.Contains(err.Error(), "no text in 0") {
		t.Error(err)
	}
	if _, err := New(folder, &Options{Pace: -1}); err == nil {
		t.Error("a negative pace")
	}
	if _, err := New(broken{}, nil); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
}

type broken struct{}

func (broken) Open(string) (fs.File, error) { return nil, fs.ErrPermission }

// The model does not wait after the consumer has stopped.
func TestModelStopsWhenContextEnds(t *testing.T) {
	m, err := New(folder, &Options{Pace: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for c := range m.Stream(ctx, &chat.Prompt{Messages: []chat.Message{chat.Text("u", chat.RoleUser, "memory")}}) {
		if c.Type() == "text-delta" {
			t.Errorf("%v", c)
		}
	}
}
