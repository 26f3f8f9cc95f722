package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

func TestLogEscapesControlCharacters(t *testing.T) {
	const path = "/a\u009b31m\u202eb\x7f\x1b[2J\u2028ö漢\U000e0001 \"q\" \\"
	for _, format := range []string{"text", "json"} {
		var b bytes.Buffer
		log, err := newLogger(format, &b)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("request", "path", path)
		line := strings.TrimSuffix(b.String(), "\n")
		if i := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%s: a raw character %q in %s", format, line[i:], line)
		}
		var got struct{ Path string }
		if format == "json" {
			if err := json.Unmarshal(b.Bytes(), &got); err != nil || got.Path != path {
				t.Errorf("%s is %q (%v), want %q", line, got.Path, err, path)
			}
		}
	}
}
