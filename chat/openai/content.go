package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/internal/provider"
)

// content is the kind of a block in the API.
type content int

const (
	unknown content = iota
	plainText
	image
	document
)

func kindOf(b *chat.Block) content {
	switch {
	case b.Kind == chat.BlockText:
		return plainText
	case b.Kind != chat.BlockFile:
		return unknown
	case strings.HasPrefix(b.MediaType, "image/"):
		return image
	case b.MediaType == "application/pdf":
		if _, ok := b.Data(); ok {
			return document
		}
	}
	return unknown
}

func fileName(b *chat.Block) string {
	if b.Name == "" {
		return "file.pdf"
	}
	return b.Name
}

// texts returns the texts of a message, one after the other.
func texts(m *chat.ModelMessage) string {
	var s strings.Builder
	for _, b := range m.Blocks {
		if b.Kind == chat.BlockText {
			s.WriteString(b.Text)
		}
	}
	return s.String()
}

// schema returns the schema of a tool's input. OpenAI requires one even for a tool without input.
func schema(t chat.ToolSpec) (s map[string]any, err error) {
	if len(t.Parameters) == 0 {
		return map[string]any{"type": "object", "properties": map[string]any{}}, nil
	}
	if err := json.Unmarshal(t.Parameters, &s); err != nil {
		return nil, fmt.Errorf("openai: the parameters of the tool %q are not a JSON schema: %w", t.Name, err)
	}
	return s, nil
}

// outputName is the name of the schema of an answer, which OpenAI requires.
const outputName = "answer"

// strict reports whether OpenAI can generate answers that match a schema in any case.
func strict(o provider.Output) bool { return o.Closed && o.Complete }
