package extract

import (
	"cmp"
	"fmt"
	"io/fs"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// passage is a paragraph or a list item of a file.
type passage struct {
	file      string
	heading   string
	sentences []string
	terms     map[string]int // occurrences of each term; those in the heading count twice
	size      int            // of all terms
}

// index is the search index of a folder.
type index struct {
	files             []string
	passages          []passage
	documentFrequency map[string]int // number of passages with a term
	size              float64        // average number of terms of a passage
}

const (
	// maxFile bounds files, in bytes: larger files are not read.
	maxFile = 1 << 20
	// maxSentences bounds the sentences quoted from a passage.
	maxSentences = 5
)

// file is a file of the folder.
type file struct{ name, text string }

// readFolder reads the files, and returns an error if they have no passage.
func readFolder(fsys fs.FS) (files []file, err error) {
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !slices.Contains([]string{".md", ".txt"}, strings.ToLower(path.Ext(name))) {
			return err
		}
		info, err := d.Info()
		if err != nil || info.Size() > maxFile {
			return err
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		files = append(files, file{name, string(text)})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("extract: %w", err)
	}
	if !slices.ContainsFunc(files, func(f file) bool { return len(passagesOf(f.name, f.text)) > 0 }) {
		return nil, fmt.Errorf("extract: no text in %d .md and .txt files of at most %d bytes", len(files), maxFile)
	}
	return files, nil
}

// newIndex returns the index of files that have a passage.
func newIndex(files []file) *index {
	x := &index{documentFrequency: map[string]int{}}
	for _, f := range files {
		x.files = append(x.files, f.name)
		x.passages = append(x.passages, passagesOf(f.name, f.text)...)
	}
	total := 0
	for i := range x.passages {
		p := &x.passages[i]
		total += p.size
		for t := range p.terms {
			x.documentFrequency[t]++
		}
	}
	x.size = float64(total) / float64(len(x.passages))
	return x
}

// passagesOf returns the paragraphs of a text, without its code and tables.
func passagesOf(file, text string) (all []passage) {
	heading, fenced := "", false
	var lines []string
	flush := func() {
		if p, ok := newPassage(file, heading, strings.Join(lines, " ")); ok {
			all = append(all, p)
		}
		lines = lines[:0]
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		trimmed := strings.TrimSpace(line)
		item := strings.HasPrefix(trimmed, "- ") || strings.HasPrefix(trimmed, "* ")
		switch {
		case strings.HasPrefix(trimmed, "```"):
			flush()
			fenced = !fenced
		case fenced:
		case strings.HasPrefix(trimmed, "#"):
			flush()
			heading = plain(strings.TrimLeft(trimmed, "# "))
		case trimmed == "", strings.HasPrefix(trimmed, "|"), strings.HasPrefix(line, "    ") && len(lines) == 0:
			flush()
		default:
			if item {
				flush()
				trimmed = trimmed[2:]
			}
			lines = append(lines, trimmed)
		}
	}
	flush()
	return all
}

func newPassage(file, heading, text string) (p passage, ok bool) {
	text = plain(text)
	p = passage{file: file, heading: heading, sentences: sentencesOf(text), terms: map[string]int{}}
	for _, t := range termsOf(text) {
		p.terms[t]++
		p.size++
	}
	for _, t := range termsOf(heading) {
		p.terms[t] += 2
		p.size += 2
	}
	whole := !strings.HasSuffix(text, ";") && !strings.HasSuffix(text, ",") // else part of a sentence
	return p, whole && len(p.sentences) > 0 && p.size > 4
}

var (
	link   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	markup = strings.NewReplacer("`", "", "**", "", "__", "")
	ends   = regexp.MustCompile(`[.!?](\s+|$)`)
)

// plain returns a line without its markup.
func plain(s string) string {
	return strings.Join(strings.Fields(markup.Replace(link.ReplaceAllString(s, "$1"))), " ")
}

func sentencesOf(text string) (all []string) {
	for text != "" {
		at := ends.FindStringIndex(text)
		if at == nil {
			return append(all, text)
		}
		all, text = append(all, strings.TrimSpace(text[:at[1]])), text[at[1]:]
	}
	return all
}

// termsOf returns the search terms of a text: its words without common words and endings.
func termsOf(s string) (terms []string) {
	for _, w := range strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if len(w) < 2 || stopWords[w] {
			continue
		}
		for _, end := range []string{"ing", "ed", "es", "s"} {
			if stem, ok := strings.CutSuffix(w, end); ok && len(stem) > 2 {
				w = stem
				break
			}
		}
		terms = append(terms, strings.TrimSuffix(w, "e"))
	}
	return terms
}

var stopWords = func() map[string]bool {
	all := map[string]bool{}
	for w := range strings.FieldsSeq(`a about an and any are as at be been before but by can could do does for from had has have
		how i if in into is it its me more my no not of on or our shall should so some than that the their them then there
		these they this those to us was we were what when where which while who whose why will with would you your`) {
		all[w] = true
	}
	return all
}()

// found is a passage with its score for a question.
type found struct {
	*passage
	score float64
}

// search returns the n passages with the highest scores for a question.
func (x *index) search(question string, n int) (best []found) {
	terms := termsOf(question)
	for i := range x.passages {
		p := &x.passages[i]
		w := x.score(p.terms, p.size, terms)
		if sameTerms(termsOf(p.heading), terms) {
			w *= 2 // the heading asks the same question
		}
		if w > 0 {
			best = append(best, found{p, w})
		}
	}
	slices.SortStableFunc(best, func(a, b found) int { return cmp.Compare(b.score, a.score) })
	return best[:min(n, len(best))]
}

// sameTerms reports whether two lists have the same terms.
func sameTerms(a, b []string) bool {
	notIn := func(list []string) func(string) bool {
		return func(t string) bool { return !slices.Contains(list, t) }
	}
	return !slices.ContainsFunc(a, notIn(b)) && !slices.ContainsFunc(b, notIn(a))
}

// score returns the BM25 score of a text's terms for the terms of a question.
func (x *index) score(has map[string]int, size int, asked []string) (w float64) {
	const k, b = 1.2, 0.75
	for i, t := range asked {
		tf := float64(has[t])
		if tf == 0 || slices.Contains(asked[:i], t) {
			continue
		}
		n := float64(x.documentFrequency[t])
		idf := math.Log(1 + (float64(len(x.passages))-n+0.5)/(n+0.5))
		w += idf * tf * (k + 1) / (tf + k*(1-b+b*float64(size)/x.size))
	}
	return w
}

// best returns the sentences of a passage with the highest scores for a question, in their order.
func (x *index) best(p *passage, question string) (quoted []string) {
	if len(p.sentences) <= maxSentences {
		return p.sentences
	}
	asked := termsOf(question)
	order := make([]int, len(p.sentences))
	worth := make([]float64, len(p.sentences))
	for i, s := range p.sentences {
		has := map[string]int{}
		terms := termsOf(s)
		for _, t := range terms {
			has[t]++
		}
		order[i], worth[i] = i, x.score(has, len(terms), asked)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(worth[b], worth[a]) })
	order = order[:maxSentences]
	slices.Sort(order)
	for _, i := range order {
		quoted = append(quoted, p.sentences[i])
	}
	return quoted
}
