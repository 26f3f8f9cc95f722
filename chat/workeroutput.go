package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/dohost/dohost/chat/internal/rawjson"
)

// OutputError is the error of a [Worker] if the last answer of its model is not valid. Err names the field.
type OutputError struct {
	Output string // the answer
	Err    error
}

// Error returns the text of Err.
func (e *OutputError) Error() string {
	return "chat: the answer of the model is not valid: " + e.Err.Error()
}

// Unwrap returns Err.
func (e *OutputError) Unwrap() error { return e.Err }

// outputSchema is the schema of the answers of a worker; without members for plain text.
type outputSchema[Out any] struct {
	text     string
	resolved *jsonschema.Resolved
	err      error
}

func newOutputSchema[Out any]() (s outputSchema[Out]) {
	if _, ok := any(*new(Out)).(string); ok {
		return s
	}
	schema, err := jsonschema.For[Out](nil)
	if err == nil {
		s.resolved, err = schema.Resolve(nil)
	}
	if err == nil {
		var raw []byte
		raw, err = rawjson.Encode(schema)
		s.text = string(raw)
	}
	if err != nil {
		s.err = fmt.Errorf("the output type %T has no JSON schema: %w", *new(Out), err)
	}
	return s
}

// prompt returns the instructions with the schema.
func (s *outputSchema[Out]) prompt(instructions string) string {
	if s.resolved == nil {
		return instructions
	}
	if instructions != "" {
		instructions += "\n\n"
	}
	return instructions + "End with an answer that is one JSON value and nothing else. It must match this JSON schema:\n" + s.text
}

// raw returns the schema, or nil.
func (s *outputSchema[Out]) raw() json.RawMessage {
	if s.resolved == nil {
		return nil
	}
	return json.RawMessage(s.text)
}

var errNoAnswer = errors.New("it is empty")

// decode decodes an answer.
func (s *outputSchema[Out]) decode(text string) (out Out, err error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return out, errNoAnswer
	case s.resolved == nil:
		return any(text).(Out), nil
	}
	return decodeValue[Out](s.resolved, []byte(unfenced(text)), "it", "the schema")
}

// unfenced returns the contents of a text that is one code block of Markdown: many models put JSON into one.
func unfenced(text string) string {
	inner, ok := strings.CutPrefix(text, "```")
	if !ok {
		return text
	}
	inner, ok = strings.CutSuffix(strings.TrimPrefix(inner, "json"), "```")
	if !ok {
		return text
	}
	return inner
}
