package uimessage

import (
	"encoding/json"
	"strings"

	"github.com/dohost/dohost/chat/internal/rawjson"
)

// Deltas joins successive deltas of one text or reasoning into one chunk. The zero Deltas is empty.
type Deltas struct {
	first Chunk
	text  strings.Builder
}

// Begin begins with a chunk, in place of the chunks so far. It does not join a chunk with metadata of its provider, since
// the joined chunk would have the metadata of one chunk alone, and reports whether later deltas may follow the chunk.
func (d *Deltas) Begin(c Chunk) bool {
	d.first = Chunk{}
	d.text.Reset()
	if !joinable(c) {
		return false
	}
	d.first = c
	d.text.WriteString(c.Text("delta"))
	return true
}

// Join adds a delta, and reports whether it continues the chunks so far. Otherwise it has no effect.
func (d *Deltas) Join(c Chunk) bool {
	if d.first.object == nil || !joinable(c) || d.first.Type() != c.Type() || d.first.Text("id") != c.Text("id") {
		return false
	}
	d.text.WriteString(c.Text("delta"))
	return true
}

// JSON returns the joined chunk.
func (d *Deltas) JSON() json.RawMessage {
	return rawjson.MustEncode(d.first.with("delta", d.text.String()))
}

func joinable(c Chunk) bool {
	return (c.Type() == "text-delta" || c.Type() == "reasoning-delta") && c.Member("providerMetadata") == nil
}
