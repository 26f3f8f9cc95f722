package chat_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dohost/dohost/chat"
)

// blocks formats messages, a line each.
func blocks(list []chat.ModelMessage) string {
	var b strings.Builder
	for _, m := range list {
		fmt.Fprintf(&b, "%s:", m.Role)
		for _, k := range m.Blocks {
			switch k.Kind {
			case chat.BlockToolCall:
				fmt.Fprintf(&b, " call %s %s(%s)", k.CallID, k.Name, k.JSON)
			case chat.BlockToolResult:
				fmt.Fprintf(&b, " outcome %s %q %v", k.CallID, k.Text, k.Failed)
			case chat.BlockFile:
				data, ok := k.Data()
				fmt.Fprintf(&b, " file %s %s %q %v", k.Name, k.MediaType, data, ok)
			case chat.BlockReasoning:
				fmt.Fprintf(&b, " reasoning %q %s", k.Text, k.Metadata)
			default:
				fmt.Fprintf(&b, " %q", k.Text[:min(len(k.Text), 9)])
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestModelMessages(t *testing.T) {
	const call = `{"type":"tool-add","toolCallId":"c","input":{"n":1},`
	said := `{"type":"text","text":"so far"}`
	for name, c := range map[string]struct {
		before, partial string // parts
		cut             bool
		strategy        chat.Strategy
		want            string
		continues       bool
	}{
		"nothing was said": {want: ""},
		"nothing but a thought": {
			partial: `{"type":"step-start"},{"type":"reasoning","text":"hm"}`, cut: true, want: "",
		},
		"a text was cut off": {
			partial: `{"type":"step-start"},` + said, cut: true,
			want: "assistant: \"so far\"\nuser: \"Your last\"\n", continues: true,
		},
		"a text was cut off, and is prefilled": {
			partial: `{"type":"step-start"},` + said, cut: true, strategy: chat.ContinuePrefill, want: "assistant: \"so far\"\n", continues: true,
		},
		"a text was cut off, and is said again": {
			partial: `{"type":"step-start"},` + said, cut: true, strategy: chat.ContinueRetry,
		},
		"a whole text is gone on with": {
			partial: `{"type":"step-start"},` + said, strategy: chat.ContinueRetry,
			want: "assistant: \"so far\"\nuser: \"Your last\"\n", continues: true,
		},
		"a tool has answered": {
			partial: `{"type":"step-start"},{"type":"reasoning","text":"hm","providerMetadata":{"x":1}},` + said + `,` + call +
				`"state":"output-available","output":{"sum":3}},{"type":"step-start"}`,
			want: "assistant: reasoning \"hm\" {\"x\":1} \"so far\" call c add({\"n\":1})\ntool: outcome c \"{\\\"sum\\\":3}\" false\n",
		},
		"a tool has answered, and the next text was cut off": {
			partial: `{"type":"step-start"},` + call + `"state":"output-available","output":"three"},{"type":"step-start"},` + said,
			cut:     true, strategy: chat.ContinueRetry,
			want: "assistant: call c add({\"n\":1})\ntool: outcome c \"three\" false\n",
		},
		"how a call may have ended": {
			before: call + `"state":"output-error","errorText":"no"},` +
				`{"type":"tool-add","toolCallId":"d","input":"odd","state":"output-denied"},` +
				`{"type":"dynamic-tool","toolName":"sub","toolCallId":"e","state":"input-available"},` +
				`{"type":"tool-add","toolCallId":"f","state":"input-streaming"},` +
				`{"type":"tool-search","toolCallId":"g","state":"output-available","providerExecuted":true},` +
				`{"type":"tool-add","toolCallId":"h","state":"output-available","output":null}`,
			want: "assistant: call c add({\"n\":1}) call d add({}) call e sub({}) call h add({})\n" +
				"tool: outcome c \"no\" true outcome d \"The user denied this call.\" true" +
				" outcome e \"This call was not answered.\" true outcome h \"null\" false\n",
		},
		"files": {
			before: `{"type":"file","mediaType":"image/png","filename":"a.png","url":"data:image/png;base64,QUJD"},` +
				`{"type":"file","mediaType":"image/png","url":"https://x.test/b.png"},{"type":"text","text":""},{"type":"data-own","data":1}`,
			want: "assistant: file a.png image/png \"QUJD\" true file  image/png \"\" false\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &chat.Prompt{Interrupted: c.cut}
			parse := func(id, parts string) (m chat.Message) {
				if err := json.Unmarshal([]byte(`{"id":"`+id+`","role":"assistant","parts":[`+parts+`]}`), &m); err != nil {
					t.Fatal(err)
				}
				return m
			}
			if c.before != "" {
				p.Messages = []chat.Message{parse("before", c.before)}
			}
			p.Partial = parse("partial", c.partial)
			list, continues := p.ModelMessages(c.strategy)
			if got := blocks(list); got != c.want || continues != c.continues {
				t.Errorf("goes on %v:\n%s\ninstead of\n%s", continues, got, c.want)
			}
		})
	}
}
