package chat

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dohost/dohost"
)

const (
	// maxProgressText bounds the text of a progress for operators, in bytes.
	maxProgressText = 100
	// inspectedBatches bounds the batches that an inspection reads for it.
	inspectedBatches = 4
)

// addProgress adds the progress of a request to another agent to the detail of its open call: the end of the text that the log of the caller has. Without
// a log, and so without a client, there is no progress.
func addProgress(v *dohost.Snapshot, r *callRow, d *dohost.Resource) error {
	if !r.shown() {
		return nil
	}
	of := dohost.KeyOf(r.Key)
	var pieces []string // the last one first
	size := 0
	q := &dohost.Query[progressRow]{Start: of, End: of.PrefixEnd(), Reverse: true, Limit: inspectedBatches}
	for row, err := range progressRows.Scan(v, q) {
		if err != nil {
			return err
		}
		if size > maxProgressText {
			break
		}
		for _, raw := range slices.Backward(row.Value.Chunks) {
			if size > maxProgressText {
				break
			}
			piece := progressPiece(raw)
			pieces, size = append(pieces, piece), size+len(piece)
		}
	}
	slices.Reverse(pieces)
	text := strings.Join(strings.Fields(strings.Join(pieces, "")), " ")
	if text == "" {
		return nil
	}
	if cut := len(text) - maxProgressText; cut > 0 {
		for !utf8.RuneStart(text[cut]) {
			cut++
		}
		text = "…" + text[cut:]
	}
	d.Fields["progress"] = text
	d.Text += fmt.Sprintf(", progress %q", text)
	return nil
}

// progressPiece returns the text of a chunk in a progress.
func progressPiece(raw []byte) string {
	var c struct{ Type, Delta, ToolName string }
	switch err := json.Unmarshal(raw, &c); {
	case err != nil:
		return ""
	case c.Type == "text-delta":
		return c.Delta
	case c.Type == "tool-input-available":
		return fmt.Sprintf(" [calls %s] ", clipText(c.ToolName, maxProgressText/2))
	}
	return ""
}
