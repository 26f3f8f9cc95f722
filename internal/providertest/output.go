package providertest

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/dohost/dohost/chat"
)

// outputSchema returns the schema of the answer in the body of a request, and the name of the field that has it.
func outputSchema(body []byte) (field string, schema json.RawMessage) {
	type format struct {
		Schema json.RawMessage `json:"schema"`
	}
	var q struct {
		ResponseFormat struct {
			JSONSchema format `json:"json_schema"`
		} `json:"response_format"`
		Text struct {
			Format format `json:"format"`
		} `json:"text"`
		OutputConfig struct {
			Format format `json:"format"`
		} `json:"output_config"`
	}
	if json.Unmarshal(body, &q) != nil {
		return "", nil
	}
	for field, f := range map[string]format{
		"response_format": q.ResponseFormat.JSONSchema, "text.format": q.Text.Format, "output_config.format": q.OutputConfig.Format,
	} {
		if f.Schema != nil {
			return field, f.Schema
		}
	}
	return "", nil
}

// The schemas of answers. Only in the first one all members are required; in the open one a member has no type.
const (
	completeSchema = `{"type":"object","additionalProperties":false,"required":["n"],"properties":{"n":{"type":"integer","minimum":0}}}`
	optionalSchema = `{"type":"object","additionalProperties":false,"properties":{"n":{"type":["null","array"],"items":{"type":"string"}}}}`
	openSchema     = `{"type":"object","additionalProperties":false,"required":["n"],"properties":{"n":{}}}`
	listSchema     = `{"type":"array","items":{"type":"string"}}`
)

// Output expects the requests of a model to have the schema of the answer, except that of a list. open is set if the provider accepts a schema
// that has values without a type, and withTools if it accepts one together with tools. A model that is refused asks again without the schema, and
// then without asking for it any more.
func Output(t *testing.T, make New, open, withTools bool) {
	t.Helper()
	tools := []chat.ToolSpec{{Name: "look", Parameters: json.RawMessage(`{"type":"object"}`)}}
	for name, test := range map[string]struct {
		output string
		tools  []chat.ToolSpec
		want   bool
		strict bool
	}{
		"complete": {output: completeSchema, want: true, strict: true},
		"optional": {output: optionalSchema, want: true},
		"open":     {output: openSchema, want: open},
		"list":     {output: listSchema},
		"text":     {},
		"tools":    {output: completeSchema, tools: tools, want: withTools, strict: withTools},
	} {
		t.Run(name, func(t *testing.T) {
			d := &Double{}
			m := streamed(t, make, d, test.output, test.tools)
			asked := d.Generations()[0].Asked
			field, schema := outputSchema(asked)
			if (schema != nil) != test.want || strings.Contains(string(schema), "minimum") {
				t.Errorf("the schema of the request is %q: %s", field, schema)
			}
			if isStrict := strings.Contains(string(asked), `"strict":true`); isStrict != (test.strict && open) {
				t.Errorf("strict is %v: %s", isStrict, asked)
			}
			d.RefuseOutput = true
			for range 2 {
				ask(t, m, test.output, test.tools)
			}
			refused := 0
			if test.want {
				refused = 1
			}
			if len(d.Generations()) != 3 || len(d.Refused()) != refused {
				t.Errorf("%d requests are answered, %q are refused", len(d.Generations()), d.Refused())
			}
		})
	}
}

// streamed returns a model that has answered a prompt.
func streamed(t *testing.T, make New, d *Double, output string, tools []chat.ToolSpec) chat.Model {
	t.Helper()
	m, err := make(Config{Double: d, Key: Key})
	if err != nil {
		t.Fatal(err)
	}
	ask(t, m, output, tools)
	return m
}

// ask asks a model for an answer that matches a schema.
func ask(t *testing.T, m chat.Model, output string, tools []chat.ToolSpec) {
	t.Helper()
	p := &chat.Prompt{
		Messages: []chat.Message{chat.Text("m", chat.RoleUser, "Count.")}, Tools: tools,
		SaveCheckpoint: func(context.Context, any) error { return nil },
	}
	if output != "" {
		p.Output = json.RawMessage(output)
	}
	for _, err := range m.Stream(t.Context(), p) {
		if err != nil {
			t.Fatal(err)
		}
	}
}
