package cli

import (
	"bytes"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonWriter escapes the characters of JSON that are not printable, as the text log does: C1 controls, and characters
// that reverse the text after them. They occur in strings only. Each Write has whole characters.
type jsonWriter struct{ w io.Writer }

// Write writes in one call.
func (j jsonWriter) Write(b []byte) (int, error) {
	if _, err := j.w.Write(escapeJSON(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

func escapeJSON(b []byte) []byte {
	raw := func(r rune) bool { return r >= 0x7f && r != utf8.RuneError && !unicode.IsPrint(r) }
	if bytes.IndexFunc(b, raw) < 0 {
		return b
	}
	var out []byte
	for _, r := range string(b) {
		if !raw(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}
