package uimessage

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/dohost/dohost/chat/internal/rawjson"
)

// accumulator builds a message from the chunks of its stream. Live chunks and logged ones build the same message.
//
// It ignores chunks that it does not know, or that do not fit, since a provider may repeat chunks. A tool call never
// returns to an earlier state: see [toolRank].
type accumulator struct {
	msg Message
	// open are the unfinished texts and reasonings, by type and id.
	open          map[string]*openPart
	streamedCalls map[string]bool // calls made by the chunks, in this message or again
	calls         map[string]int  // the parts of calls, by id
	data          map[string]int  // the parts of data with an id, by type and id
	chunks        uint64          // number of chunks added
	inStep        bool
	finished      bool
}

// openPart is a part with its text still outside the message.
type openPart struct {
	index int // in msg.Parts
	text  strings.Builder
}

// newAccumulator continues a message, which may have no parts yet.
func newAccumulator(m Message) *accumulator {
	a := &accumulator{
		msg: Message{ID: m.ID, Role: m.Role, Metadata: m.Metadata, more: m.more}, open: map[string]*openPart{},
		streamedCalls: map[string]bool{}, calls: map[string]int{}, data: map[string]int{},
	}
	a.msg = a.msg.Clone()
	for _, p := range m.Parts {
		a.push(p.clone())
	}
	return a
}

// call returns the part of a call.
func (a *accumulator) call(id string) (p Part, ok bool) {
	i, ok := a.calls[id]
	if !ok {
		return Part{}, false
	}
	return a.msg.Parts[i], true
}

// message returns the message built so far.
func (a *accumulator) message() Message {
	for _, g := range a.open {
		a.writeText(g)
	}
	return a.msg.Clone()
}

// openIDs returns the ids of the open texts, or reasonings, in the order of their parts.
func (a *accumulator) openIDs(kind string) (ids []string) {
	for key := range a.open {
		if k, id, _ := strings.Cut(key, " "); k == kind {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(x, y string) int { return a.open[kind+" "+x].index - a.open[kind+" "+y].index })
	return ids
}

func (a *accumulator) writeText(g *openPart) { a.msg.Parts[g.index].set("text", g.text.String()) }

// add adds a chunk, and reports whether that changed the message.
func (a *accumulator) add(c Chunk) bool {
	a.chunks++
	kind, step, _ := cutLast(c.Type(), "-")
	switch t := c.Type(); {
	case kind == "text" || kind == "reasoning":
		return a.addText(kind, step, c)
	case strings.HasPrefix(t, "tool-"):
		return a.addTool(c)
	case t == "start-step":
		a.inStep = true
		a.push(newPart("step-start"))
	case t == "finish-step":
		return a.finishStep()
	case t == "file":
		a.push(newPart("file").copyFrom(c, "mediaType", "url", "filename", "providerMetadata"))
	case t == "source-url":
		a.push(newPart(t).copyFrom(c, "sourceId", "url", "title", "providerMetadata"))
	case t == "source-document":
		a.push(newPart(t).copyFrom(c, "sourceId", "mediaType", "title", "filename", "providerMetadata"))
	case strings.HasPrefix(t, "data-"):
		return a.addData(c)
	case t == "start":
		if id := c.Text("messageId"); id != "" {
			a.msg.ID = id
		}
		return a.addMetadata(c) || c.Text("messageId") != ""
	case t == "finish" || t == "message-metadata":
		a.finished = a.finished || t == "finish"
		return a.addMetadata(c)
	default:
		return false
	}
	return true
}

// cutLast cuts s at its last sep.
func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// push appends a part. If several parts have one id, the index keeps the first.
func (a *accumulator) push(p Part) {
	index, id := a.calls, p.Text("toolCallId")
	if key, ok := dataKey(p.object); ok {
		index, id = a.data, key
	} else if !IsCall(p) {
		index = nil
	}
	if _, ok := index[id]; !ok && index != nil {
		index[id] = len(a.msg.Parts)
	}
	a.msg.Parts = append(a.msg.Parts, p)
}

// dataKey returns the key of a data part with an id.
func dataKey(o object) (key string, ok bool) {
	id := o.Member("id")
	return o.Type() + " " + string(id), id != nil && strings.HasPrefix(o.Type(), "data-")
}

// copyFrom copies members of a chunk to a part that is not shared yet.
func (p Part) copyFrom(c Chunk, names ...string) Part {
	p.copyMembers(c.object, names...)
	return p
}

// addText adds to a text or a reasoning. A delta without a start begins a part, and the end of the step ends a part
// without an end.
func (a *accumulator) addText(kind, step string, c Chunk) bool {
	key := kind + " " + c.Text("id")
	g := a.open[key]
	if g == nil {
		if step != "start" && step != "delta" {
			return false
		}
		g = &openPart{index: len(a.msg.Parts)}
		a.open[key] = g
		a.push(newPart(kind).with("text", "").with("state", "streaming"))
	} else if step == "start" {
		return false
	}
	p := a.msg.Parts[g.index]
	p.copyMembers(c.object, "providerMetadata")
	switch step {
	case "delta":
		g.text.WriteString(c.Text("delta"))
	case "end":
		a.endPart(key, g)
	}
	return true
}

func (a *accumulator) endPart(key string, g *openPart) {
	a.writeText(g)
	a.msg.Parts[g.index].set("state", "done")
	delete(a.open, key)
}

func (a *accumulator) finishStep() (changed bool) {
	a.inStep = false
	for key, g := range a.open {
		a.endPart(key, g)
		changed = true
	}
	return changed
}

// addData adds data of the program's own, or replaces data of the same type and id.
func (a *accumulator) addData(c Chunk) bool {
	if c.is("transient") {
		return false
	}
	if key, ok := dataKey(c.object); ok {
		if i, ok := a.data[key]; ok {
			a.msg.Parts[i].set("data", rawjson.OrNull(c.Member("data")))
			return true
		}
	}
	a.push(newPart(c.Type()).copyFrom(c, "id", "data"))
	return true
}

// addMetadata merges the message's metadata with a chunk's.
func (a *accumulator) addMetadata(c Chunk) bool {
	meta := c.Member("messageMetadata")
	if reason := c.Member("finishReason"); reason != nil && c.Type() == "finish" {
		own, err := rawjson.Encode(map[string]json.RawMessage{"finishReason": reason})
		if err == nil {
			meta = rawjson.Merge(own, meta)
		}
	}
	if meta == nil || string(meta) == "null" {
		return false
	}
	a.msg.Metadata = rawjson.Merge(a.msg.Metadata, meta)
	return true
}
