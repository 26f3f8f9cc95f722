package cli

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable returns a text from data as a command prints it: quoted if a character would not be visible in a terminal, or would begin a
// line or a column.
func printable(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	return strconv.Quote(s)
}

// plainWriter writes a text of several lines without control characters of a terminal. Each Write has whole
// characters.
type plainWriter struct{ w io.Writer }

// Write writes.
func (p plainWriter) Write(b []byte) (int, error) {
	if _, err := io.WriteString(p.w, plain(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// plain removes characters that are not printable, except ends of lines and tabs.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, s)
}
