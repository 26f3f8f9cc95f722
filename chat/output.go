package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
)

// Output describes the results of a [Tool].
type Output struct {
	// Schema is a JSON schema, at most 64 KiB. It must not be recursive. A reference in it is a pointer to another place in it, such as
	// #/$defs/name.
	Schema json.RawMessage

	// err is set by OutputOf.
	err error
}

// maxOutputSchema bounds the schema of an output, in bytes: the row of an open call contains it.
const maxOutputSchema = 64 << 10

// ErrInvalidOutput is the error of a result that does not match the [Output] of its tool. The text of an error that wraps it names the
// place in the result.
var ErrInvalidOutput = errors.New("chat: the output does not match the schema of the tool")

// OutputOf returns the Output with the JSON schema of T: see [NewTool]. Make it once, and not for each reply: the schema is computed by
// reflection. [Answer] returns an error for a T without a schema.
func OutputOf[T any]() *Output {
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		return &Output{err: err}
	}
	o := &Output{}
	o.Schema, o.err = rawjson.Encode(schema)
	return o
}

// check returns an error for an Output that no result can be compared with.
func (o *Output) check() error {
	switch {
	case o == nil:
		return nil
	case o.err != nil:
		return fmt.Errorf("the output has no schema: %w", o.err)
	case len(o.Schema) > maxOutputSchema:
		return fmt.Errorf("the schema of the output has %d bytes, the limit is %d", len(o.Schema), maxOutputSchema)
	}
	if err := checkSchemaParts(o.Schema); err != nil {
		return fmt.Errorf("the schema of the output: %w", err)
	}
	if _, err := resolveSchema(o.Schema); err != nil {
		return fmt.Errorf("the schema of the output: %w", err)
	}
	return nil
}

// schema returns the schema for the row of a call; empty if there is none.
func (o *Output) schema() string {
	if o == nil {
		return ""
	}
	return string(o.Schema)
}

func decodeSchema(raw []byte) (*jsonschema.Schema, error) {
	var schema jsonschema.Schema
	err := json.Unmarshal(raw, &schema)
	return &schema, err
}

func resolveSchema(raw []byte) (*jsonschema.Resolved, error) {
	schema, err := decodeSchema(raw)
	if err != nil {
		return nil, err
	}
	return schema.Resolve(nil)
}

// checkOutput returns an error that wraps ErrInvalidOutput for an output that does not match a schema. An empty schema matches
// all.
func checkOutput(schema string, output json.RawMessage) error {
	if schema == "" {
		return nil
	}
	resolved, err := resolveSchema([]byte(schema))
	if err != nil { // Tool.check has resolved it
		return err
	}
	var value any
	if err := json.Unmarshal(rawjson.OrNull(output), &value); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidOutput, err)
	}
	if err := resolved.Validate(value); err != nil {
		return fmt.Errorf("%w: %s", ErrInvalidOutput, clipText(err.Error(), maxMismatch))
	}
	return nil
}

// maxMismatch bounds the text of a validation, which may contain the output, in bytes.
const maxMismatch = 2 << 10

// unusableText returns the error that the model receives for a call that another party has ended with an invalid output.
func unusableText(err error) string {
	return "The call was done, but its result is not usable: " + strings.TrimPrefix(err.Error(), "chat: ")
}

// withoutInvalidOutput replaces a result that does not match the schema of the call by an error for the model, and returns the mismatch. An
// approval and an error have no output.
func (r *callRow) withoutInvalidOutput(f *uimessage.ToolAnswer) error {
	if f.Approved != nil || f.State == uimessage.OutputError {
		return nil
	}
	err := checkOutput(r.Schema, f.Output)
	if err != nil {
		f.State, f.Output, f.ErrorText = uimessage.OutputError, nil, unusableText(err)
	}
	return err
}

// checkResult returns an error if the result of Run does not match Output.
func (t *Tool) checkResult(out any) error {
	if t.Output == nil {
		return nil
	}
	raw, err := encodeOutput(out)
	if err != nil {
		return err
	}
	return checkOutput(t.Output.schema(), raw)
}

// encodeOutput encodes the output of a tool. A [json.RawMessage] may contain bytes that are not UTF-8, which clients cannot
// receive.
func encodeOutput(out any) (json.RawMessage, error) {
	raw, err := rawjson.Encode(out)
	raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	if err == nil && rawjson.Nesting(raw) >= uimessage.MaxNesting {
		err = errNesting
	}
	return raw, err
}

// resultChunk returns the chunk with the result of a call: its output, or the text of its error.
func resultChunk(call string, out json.RawMessage, failed error) Chunk {
	if failed != nil {
		return uimessage.MakeChunk("tool-output-error", "toolCallId", call, "errorText", clipText(failed.Error(), maxToolError))
	}
	return uimessage.MakeChunk("tool-output-available", "toolCallId", call, "output", out)
}

// sendResult sends the result of a call.
func (a *answerRun) sendResult(ctx context.Context, p Part, out any, failed error) error {
	raw, err := encodeOutput(out)
	if err == nil {
		err = failed
	}
	return a.l.sendInTurn(ctx, resultChunk(p.Text("toolCallId"), raw, err))
}
