package providertest

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/chat"
)

// partsOfEveryKind has one part of each kind, and each state of a tool call, as JSON.
var partsOfEveryKind = map[string]string{
	"text":               `{"type":"text","text":"Hello."}`,
	"empty text":         `{"type":"text","text":""}`,
	"blank text":         `{"type":"text","text":" \n"}`,
	"text without text":  `{"type":"text"}`,
	"reasoning":          `{"type":"reasoning","text":"Hm."}`,
	"signed reasoning":   `{"type":"reasoning","text":"Hm.","providerMetadata":{"anthropic":{"signature":"s"}}}`,
	"redacted reasoning": `{"type":"reasoning","text":"","providerMetadata":{"anthropic":{"redactedData":"s"}}}`,
	"odd reasoning":      `{"type":"reasoning","text":"Hm.","providerMetadata":[]}`,
	"image":              `{"type":"file","mediaType":"image/png","url":"https://x.test/a.png"}`,
	"inline image":       `{"type":"file","mediaType":"image/png","url":"data:image/png;base64,AAAA"}`,
	"pdf":                `{"type":"file","mediaType":"application/pdf","url":"https://x.test/a.pdf","filename":"a.pdf"}`,
	"inline pdf":         `{"type":"file","mediaType":"application/pdf","url":"data:application/pdf;base64,AAAA"}`,
	"odd file":           `{"type":"file","mediaType":"video/x-odd","url":"https://x.test/a"}`,
	"file without url":   `{"type":"file"}`,
	"source":             `{"type":"source-url","sourceId":"s","url":"https://x.test/"}`,
	"document":           `{"type":"source-document","sourceId":"s","mediaType":"text/plain","title":"t"}`,
	"data":               `{"type":"data-odd","id":"d","data":{"a":1}}`,
	"step":               `{"type":"step-start"}`,
	"unknown":            `{"type":"odd"}`,
	"input-streaming":    `{"type":"tool-f","toolCallId":"c","state":"input-streaming"}`,
	"input-available":    `{"type":"tool-f","toolCallId":"c","state":"input-available","input":{}}`,
	"approval-requested": `{"type":"tool-f","toolCallId":"c","state":"approval-requested","input":{},"approval":{"id":"a"}}`,
	"approval-responded": `{"type":"tool-f","toolCallId":"c","state":"approval-responded","input":{},"approval":{"id":"a","approved":true}}`,
	"output-available":   `{"type":"tool-f","toolCallId":"c","state":"output-available","input":{},"output":{"b":2}}`,
	"output-error":       `{"type":"tool-f","toolCallId":"c","state":"output-error","input":"odd","errorText":"no"}`,
	"output-denied":      `{"type":"tool-f","toolCallId":"c","state":"output-denied","input":{}}`,
	"dynamic call":       `{"type":"dynamic-tool","toolName":"f","toolCallId":"c","state":"output-available","input":{},"output":null}`,
	"call by nobody":     `{"type":"tool-","state":"output-available"}`,
	"provider's call":    `{"type":"tool-f","toolCallId":"c","state":"output-available","input":{},"output":1,"providerExecuted":true}`,
}

// Parts sends a model messages of each role with a part of each kind: within the conversation, at its end, and as the
// partial. The model may refuse a file of the user; it has to answer everything else, and must not panic.
func Parts(t *testing.T, make New) {
	for name, part := range partsOfEveryKind {
		for _, role := range []chat.Role{chat.RoleSystem, chat.RoleUser, chat.RoleAssistant} {
			t.Run(fmt.Sprintf("%s of the %s", name, role), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var with chat.Message
					if err := json.Unmarshal(fmt.Appendf(nil, `{"id":"m","role":%q,"parts":[%s]}`, role, part), &with); err != nil {
						t.Fatal(err)
					}
					last, inside, partial := prompt(), prompt(), prompt()
					last.Messages = append(last.Messages, with)
					inside.Messages = append([]chat.Message{with}, inside.Messages...)
					if role == chat.RoleAssistant {
						partial.Partial = with
					}
					for _, p := range []*chat.Prompt{last, inside, partial} {
						m, err := make(Config{Double: &Double{}, Key: Key})
						if err != nil {
							t.Fatal(err)
						}
						_, err = answerTextTo(t.Context(), m, p)
						if mayRefuse := role == chat.RoleUser && p == last; err != nil && !mayRefuse {
							t.Errorf("%d messages: %v", len(p.Messages), err)
						}
						time.Sleep(time.Minute)
					}
				})
			})
		}
	}
}
