package dohost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
)

// Report passes an event of a service built on this package to the host's [Listener]. The report is an output, as with
// [State.Emit]: it leaves when everything committed before is durable, in order with the object's other outputs. It
// does not leave if the writes of the event are rolled back, or are lost with the end of the incarnation. The host
// calls the Listener for the reports in their order. No output waits for that call, so a caller may get its answer
// before the Listener gets the report. A context of this incarnation without the turn is sufficient; with another
// context Report does nothing.
//
// Report truncates strings, and the texts of errors, to 4 KiB. A truncated text ends with "…"; a truncated error has
// only its text.
func (s *State) Report(ctx context.Context, event string, attrs ...slog.Attr) {
	attrs = truncatedAttrs(attrs)
	_ = s.rt().EmitOutput(ctx, 0, func(err error) { // the error is the end of the incarnation, which reports nothing
		if err == nil {
			s.rt().Host().Report(s.ID(), event, attrs...)
		}
	})
}

// maxReportText bounds a text of a report, in bytes: reports wait for the disk and for the Listener.
const maxReportText = 4 << 10

const truncationMark = "…"

// truncatedText returns a text of at most limit bytes. A truncated text is a copy.
func truncatedText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-len(truncationMark)], "") + truncationMark
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
