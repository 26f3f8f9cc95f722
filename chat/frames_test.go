package chat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// frames is a script of frames that one client sends in order.
type frames []string

// requestText returns the frame of a request with a body.
func requestText(id, body string) string {
	raw, err := json.Marshal(map[string]any{"type": "cf_agent_use_chat_request", "id": id, "init": map[string]any{"method": "POST", "body": body}})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// repeated returns a list of n messages or parts, each formatted with its number.
func repeated(n int, format string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// scripts returns scripts that once took too long, took too much memory, or ended an incarnation or the process.
func scripts() map[string]frames {
	parts := 3_000 // a quadratic number of steps exceeds the bound of play
	if pointtest.Full() {
		parts = 9_000
	}
	const stores = `{"type":"cf_agent_chat_messages","messages":[%s]}`
	many := repeated(parts, `{"id":"a%d","role":"assistant","parts":[{"type":"text","text":"a"}]}`)
	others := repeated(parts, `{"id":"b%d","role":"assistant","parts":[{"type":"text","text":"a"}]}`)
	deep := strings.Repeat("[", 9_900) + strings.Repeat("]", 9_900)
	texts := repeated(parts, `{"type":"text","text":"%d"}`)
	call := `{"type":"tool-stamp","toolCallId":"%d","state":"approval-responded","input":{},"approval":{"approved":true}}`
	question := `{"id":"u","role":"user","parts":[{"type":"text","text":"hi"}]}`
	return map[string]frames{
		"texts that are all the same": {fmt.Sprintf(stores, many), fmt.Sprintf(stores, others)},
		"the same as a request":       {requestText("1", `{"messages":[`+many+`]}`), requestText("2", `{"messages":[`+others+`]}`)},
		"a message with many texts, gone on with": {
			requestText("1", `{"messages":[`+question+`]}`),
			requestText("2", `{"messages":[`+question+`,{"id":"a","role":"assistant","parts":[`+texts+`]}]}`)},
		"a message with many calls": {
			fmt.Sprintf(stores, `{"id":"a","role":"assistant","parts":[`+repeated(parts, call)+`]}`),
			requestText("1", `{"messages":[`+question+`,{"id":"a","role":"assistant","parts":[`+repeated(parts, call)+`]}]}`)},
		"one message many times": {fmt.Sprintf(stores, repeated(parts, `{"id":"a","role":"assistant","parts":[{"type":"text","text":"%d"}]}`))},
		"deep output":            {requestText("1", `{"messages":[`+question+`]}`), `{"type":"cf_agent_tool_result","toolCallId":"call-1","output":` + deep + `}`},
		"deep message":           {fmt.Sprintf(stores, `{"id":"a","role":"user","parts":[{"type":"data-x","data":`+deep+`}]}`)},
		"deep text as input": {fmt.Sprintf(stores, `{"id":"a","role":"assistant","parts":[{"type":"tool-x","toolCallId":"1","state":"input-available","input":`+
			fmt.Sprintf("%q", deep)+`}]}`)},
		"system with a file": {requestText("1", `{"messages":[{"id":"s","role":"system","parts":[{"type":"file","mediaType":"image/png","url":"https://x.test/"}]},`+question+`]}`)},
		"control characters": {fmt.Sprintf(stores, `{"id":"\u001b]0;x\u0007\n","role":"user","parts":[{"type":"text","text":"x"}]}`)},
		"many messages of the user": {
			requestText("1", `{"messages":[`+question+`]}`), requestText("2", `{"messages":[`+repeated(parts, `{"id":"u%d","role":"user","parts":[]}`)+`]}`),
			requestText("3", `{"messages":[`+repeated(parts, `{"id":"v%d","role":"user","parts":[]}`)+`]}`)},
		"many tools": {requestText("1", `{"messages":[`+question+`],"clientTools":[`+repeated(999, `{"name":"t%d"}`)+`]}`),
			`{"type":"cf_agent_tool_result","toolCallId":"call-1","output":1,"autoContinue":true,"clientTools":[` + repeated(999, `{"name":"t%d"}`) + `]}`},
		"ends": {`{"type":"cf_agent_chat_request_cancel","id":"1"}`, `{"type":"cf_agent_chat_clear"}`,
			`{"type":"cf_agent_stream_resume_request","probeId":"p"}`, `{"type":"cf_agent_stream_resume_ack","id":"1"}`,
			`{"type":"cf_agent_tool_approval","toolCallId":"call-1","approved":true,"autoContinue":true}`},
		"no JSON": {`{"type":"cf_agent_chat_messages","messages":[{]}`, `{"type":"cf_agent_tool_result"`, requestText("1", "[]"), requestText("", "{}")},
	}
}

// play sends a script from one client. A frame may take at most n log n steps; n is the number of bytes sent so far,
// which bounds the stored data. No frame may end the incarnation.
func (fs frames) play(t *testing.T) {
	steps := 0
	chat.CountSteps(t, func(n int) { steps += n })
	m := &toolModel{countingState: &countingState{words: 1}, tool: "ask", runs: map[string]int{}}
	runWithHost(t, toolModelClassOf(m, true, chat.Options{Policy: chat.PolicyMerge}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ws.SetReadLimit(-1)
		ended := false
		h.Client(func(ctx context.Context) error {
			for {
				if _, _, err := r.ws.Read(ctx); err != nil {
					ended = websocket.CloseStatus(err) == dohost.CloseRestart
					return nil
				}
			}
		})
		n := 2_000 // for the model's words
		for i, f := range fs {
			n += len(f)
			steps = 0
			if err := r.ws.Write(ctx, websocket.MessageText, []byte(f)); err != nil {
				return // a previous frame was refused
			}
			h.Advance(10 * time.Second)
			if most := float64(n) * math.Log2(float64(n)); float64(steps) > most || ended {
				t.Fatalf("frame %d, %.60q, takes %d steps, for %d bytes; it ends the incarnation: %t", i, f, steps, n, ended)
			}
		}
		_ = r.ws.CloseNow() // it may be closed already
	})
}

func TestFrameWorkIsBoundedByItsSize(t *testing.T) {
	for name, fs := range scripts() {
		t.Run(name, fs.play)
	}
}

// TestReportOfRefusedFrameTruncatesTheID sends a frame whose id is refused only after its nesting. The rune at the limit has
// three bytes.
func TestReportOfRefusedFrameTruncatesTheID(t *testing.T) {
	var reports []string
	o := &dohosttest.Options{
		Classes: []dohost.Class{countingClass(&countingState{}, chat.Options{})},
		Options: dohost.Options{Listener: dohost.Listener{Service: func(_ dohost.ID, event string, attrs ...slog.Attr) {
			reports = append(reports, event+" "+attrs[0].String())
		}}},
	}
	dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		id, deep := strings.Repeat("x", 511), strings.Repeat("[", 200)+strings.Repeat("]", 200)
		r.sendFrame(t.Context(), map[string]any{"type": "cf_agent_use_chat_request", "id": id + "€€", "z": json.RawMessage(deep)})
		h.Advance(time.Second)
		if want := "chat:refused request=" + id; len(reports) != 1 || reports[0] != want {
			t.Errorf("reported %q, want %q", reports, want)
		}
		r.close()
	})
}

func FuzzFrames(f *testing.F) {
	for _, fs := range scripts() {
		script := []byte(strings.Join(fs, "\n"))
		if len(script) < 50_000 { // larger scripts have their own test
			f.Add(script)
		}
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		var fs frames
		for line := range bytes.Lines(script) {
			if fs = append(fs, string(bytes.TrimSpace(line))); len(fs) == 8 {
				break
			}
		}
		fs.play(t)
	})
}
