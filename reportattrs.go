package dohost

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
)

// maxReportText bounds a text of a report, in bytes: reports wait for the disk and for the Listener.
const maxReportText = 4 << 10

const truncationMark = "…"

// truncatedText returns a text of at most so many bytes. A truncated text is a copy.
func truncatedText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-len(truncationMark)], "") + truncationMark
}

// truncatedAttrs returns a copy of attrs with strings and texts of errors of at most maxReportText bytes each.
func truncatedAttrs(attrs []slog.Attr) []slog.Attr {
	short := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		short[i] = slog.Attr{Key: a.Key, Value: truncatedValue(a.Value)}
	}
	return short
}

func truncatedValue(v slog.Value) slog.Value {
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(truncatedText(v.String(), maxReportText))
	case slog.KindGroup:
		return slog.GroupValue(truncatedAttrs(v.Group())...)
	case slog.KindAny:
		if err, ok := v.Any().(error); ok {
			// Sprint recovers a panic of the method Error.
			if text := fmt.Sprint(err); len(text) > maxReportText {
				return slog.AnyValue(errors.New(truncatedText(text, maxReportText)))
			}
		}
	}
	return v
}
