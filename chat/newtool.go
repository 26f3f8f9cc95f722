package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/ledger"
)

// ToolOptions tunes NewTool. A nil *ToolOptions, and the zero ToolOptions, mean the defaults. The fields are as in [Tool],
// with typed inputs.
type ToolOptions[In, Out any] struct {
	// Parameters is the JSON schema of the input. Nil means the schema of In. Otherwise In need not be a struct:
	// [json.RawMessage] gets the input unchanged.
	Parameters json.RawMessage
	Policy     ledger.Policy
	Find       func(ctx context.Context, in In) (Out, ledger.Answer, error)
	Timeout    time.Duration
	// KeepLate is as in [Tool].
	KeepLate bool
	// Approve reports whether a call needs an approval; see If of [Approval]. Nil means that no call needs one. [Always] is for
	// all calls.
	Approve func(ctx context.Context, in In) (bool, error)
	// ApproveWithin is Within of [Approval].
	ApproveWithin time.Duration
	// External is for a tool with a run that hands off the call. Out is any, and run returns nil, unless [External].Async is
	// set.
	External *External
	// Output is as in [Tool]. It is for a tool with External: the results of run have the type Out.
	Output *Output
}

// Always is the Approve of a tool if all calls need an approval.
func Always[In any](context.Context, In) (bool, error) { return true, nil }

// NewTool makes a server tool with typed input and output. The model receives the JSON schema of In, which must be a struct:
// the names come from its JSON, a field with omitempty or omitzero is optional, and the tag jsonschema describes a field. If
// the input of a call does not match the schema, the model gets an error as the result: no approval is requested, and run is
// not called. Make a tool once, and not for each reply: its schema is computed by reflection.
//
// [Answer] returns an error for a tool if its In has no schema.
func NewTool[In, Out any](
	name, description string, run func(ctx context.Context, in In) (Out, error), o *ToolOptions[In, Out],
) Tool {
	if o == nil {
		o = &ToolOptions[In, Out]{}
	}
	t := Tool{
		ToolSpec: ToolSpec{Name: name, Description: description}, Policy: o.Policy, Timeout: o.Timeout, KeepLate: o.KeepLate,
		External: o.External, Output: o.Output,
	}
	var resolved *jsonschema.Resolved
	var err error
	t.Parameters, resolved, err = inputSchema[In](o.Parameters)
	switch {
	case err != nil:
	case run == nil:
		err = errors.New("the function is nil")
	case o.Approve == nil && o.ApproveWithin != 0:
		err = errors.New("ApproveWithin is for tools with Approve")
	}
	if err != nil {
		t.err = err
		return t
	}
	t.valid = func(input json.RawMessage) error {
		_, err := decodeInput[In](resolved, input)
		return err
	}
	t.Run = func(ctx context.Context, input json.RawMessage) (any, error) {
		in, err := decodeInput[In](resolved, input)
		if err != nil {
			return nil, ledger.NoEffect(err)
		}
		return run(ctx, in)
	}
	if o.Find != nil {
		t.Find = func(ctx context.Context, input json.RawMessage) (any, ledger.Answer, error) {
			in, err := decodeInput[In](resolved, input)
			if err != nil {
				return nil, ledger.AnswerUnknown, err
			}
			return o.Find(ctx, in)
		}
	}
	if o.Approve != nil {
		t.Approve = &Approval{Within: o.ApproveWithin}
		t.Approve.If = func(ctx context.Context, input json.RawMessage) (bool, error) {
			in, err := decodeInput[In](resolved, input)
			if err != nil {
				return false, err
			}
			return o.Approve(ctx, in)
		}
	}
	return t
}

// inputSchema returns the schema of the inputs of a tool: own, or that of In.
func inputSchema[In any](own json.RawMessage) (raw json.RawMessage, resolved *jsonschema.Resolved, err error) {
	if own != nil {
		schema := &jsonschema.Schema{}
		if err = json.Unmarshal(own, schema); err == nil {
			resolved, err = schema.Resolve(nil)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("the Parameters: %w", err)
		}
		return own, resolved, nil
	}
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		return nil, nil, err
	}
	if schema.Type != "object" {
		return nil, nil, fmt.Errorf("the input is of type %T, want a struct", *new(In))
	}
	if raw, err = rawjson.Encode(schema); err != nil {
		return nil, nil, err
	}
	resolved, err = schema.Resolve(nil)
	return raw, resolved, err
}

// decodeInput decodes the input of a call, and compares it with the schema.
func decodeInput[In any](schema *jsonschema.Resolved, input json.RawMessage) (In, error) {
	return decodeValue[In](schema, input, "the input", "the parameters of the tool")
}

// decodeValue decodes a value that a model made, and compares it with the schema. name and want describe both in errors.
func decodeValue[T any](schema *jsonschema.Resolved, data []byte, name, want string) (v T, err error) {
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return v, fmt.Errorf("%s is not JSON: %w", name, err)
	}
	if err := schema.Validate(value); err != nil {
		return v, fmt.Errorf("%s does not match %s: %w", name, want, err)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return v, fmt.Errorf("%s does not match %s: %w", name, want, err)
	}
	return v, nil
}
