package uimessage

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dohost/dohost/chat/internal/rawjson"
)

// parseShort parses the short form of a chunk: "text+ a hello" starts, "text. a x" is a delta, "text- a" ends; other
// words are a type, and "call t name" and the like are of tools.
func parseShort(t interface{ Fatal(...any) }, short string) Chunk {
	w := append(strings.SplitN(short, " ", 3), "", "")
	members := map[string]any{}
	kind := w[0]
	switch {
	case strings.HasSuffix(kind, "+"):
		kind = strings.TrimSuffix(kind, "+") + "-start"
		members["id"] = w[1]
	case strings.HasSuffix(kind, "."):
		kind = strings.TrimSuffix(kind, ".") + "-delta"
		members["id"], members["delta"] = w[1], w[2]
	case strings.HasSuffix(kind, "-") || kind == "text-":
		kind = strings.TrimSuffix(kind, "-") + "-end"
		members["id"] = w[1]
	case kind == "call":
		kind = "tool-input-available"
		members["toolCallId"], members["toolName"], members["input"] = w[1], w[2], map[string]any{}
	case kind == "calling":
		kind = "tool-input-start"
		members["toolCallId"], members["toolName"] = w[1], w[2]
	case kind == "result":
		kind = "tool-output-available"
		members["toolCallId"], members["output"] = w[1], w[2]
	case kind == "start" && w[1] != "":
		members["messageId"] = w[1]
	}
	c := MakeChunk(kind)
	for name, v := range members {
		raw, err := rawjson.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		c.set(name, raw)
	}
	return c
}

// formatShort returns the short form of a chunk.
func formatShort(c Chunk) string {
	kind := c.Type()
	for long, end := range map[string]string{"-start": "+", "-delta": ".", "-end": "-"} {
		if base, ok := strings.CutSuffix(kind, long); ok && (base == "text" || base == "reasoning") {
			return strings.TrimSpace(base + end + " " + c.Text("id") + " " + c.Text("delta"))
		}
	}
	switch kind {
	case "tool-input-available":
		return "call " + c.Text("toolCallId") + " " + c.Text("toolName")
	case "tool-input-start":
		return "calling " + c.Text("toolCallId") + " " + c.Text("toolName")
	case "tool-output-available":
		return "result " + c.Text("toolCallId") + " " + c.Text("output")
	case "start":
		return strings.TrimSpace("start " + c.Text("messageId"))
	}
	return kind
}

// mergedLog returns the log of some runs, one after the other.
func mergedLog(t *testing.T, id string, runs ...[]string) (log []string, m Message) {
	acc := newAccumulator(Message{ID: "m", Role: RoleAssistant})
	for _, run := range runs {
		st := newStreamMerger(acc, id)
		for _, s := range run {
			take := func(list []Chunk) {
				for _, c := range list {
					acc.add(c)
					log = append(log, formatShort(c))
				}
			}
			take(st.before(parseShort(t, s)))
			take(st.next(parseShort(t, s)))
		}
	}
	return log, acc.message()
}

func TestStreamMerge(t *testing.T) {
	lines := func(s string) []string { return strings.Split(s, "; ") }
	cases := []struct {
		name, first, second, want string
	}{
		{"one run", "start; start-step; text+ a; text. a hi; text- a; finish-step; finish", "",
			"start m; start-step; text+ a; text. a hi; text- a; finish-step; finish"},
		{"a start of its own id", "start x; text. a hi", "", "start m; text+ a; text. a hi"},
		{"no start", "text. a hi", "", "start m; text+ a; text. a hi"},
		{"a text continues", "start; text+ a; text. a he", "start; text+ b; text. b llo; text- b",
			"start m; text+ a; text. a he; text. a llo; text- a"},
		{"under the same id", "start; text+ a; text. a he", "start; text+ a; text. a llo; text- a; text+ a; text. a x",
			"start m; text+ a; text. a he; text. a llo; text- a; text+ a; text. a x"},
		{"a step continues", "start; start-step; text+ a; text. a he", "start; start-step; text+ b; text. b y; text- b; finish-step; finish",
			"start m; start-step; text+ a; text. a he; text. a y; text- a; finish-step; finish"},
		{"a second text is another", "start; text+ a; text. a he", "text+ b; text. b y; text- b; text+ c; text. c z",
			"start m; text+ a; text. a he; text. a y; text- a; text+ c; text. c z"},
		{"half a thought", "start; reasoning+ r; reasoning. r hm", "reasoning+ r; reasoning. r so; text. a x",
			"start m; reasoning+ r; reasoning. r hm; reasoning- r; reasoning+ r; reasoning. r so; text+ a; text. a x"},
		{"a call is repeated", "start; call t f; result t 1", "start; calling t f; call t f; result t 2; call u f",
			"start m; call t f; result t 1; call u f"},
		{"a result of nothing", "result t 1; text- a; finish-step", "", "start m"},
		{"nothing was said", "", "start; text. a x", "start m; text+ a; text. a x"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			runs := [][]string{}
			for _, r := range []string{c.first, c.second} {
				if r != "" {
					runs = append(runs, lines(r))
				}
			}
			log, _ := mergedLog(t, "m", runs...)
			if got := strings.Join(log, "; "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// A reply that continues a message of the clients: no id, and the call before the result of an older call.
func TestStreamMergeToAMessage(t *testing.T) {
	old := Message{ID: "m", Role: RoleAssistant, Parts: []Part{
		newPart("tool-f").with("toolCallId", "t").with("state", ApprovalResponded).with("input", json.RawMessage("{}")),
	}}
	acc := newAccumulator(old)
	var log []string
	for range 2 {
		st := newStreamMerger(acc, "")
		for _, s := range []string{"result t 1", "text. a x"} {
			for _, list := range []func(Chunk) []Chunk{st.before, st.next} {
				for _, c := range list(parseShort(t, s)) {
					acc.add(c)
					log = append(log, formatShort(c))
				}
			}
		}
	}
	if got, want := strings.Join(log, "; "), "start; call t f; result t 1; text+ a; text. a x; text. a x"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if m := acc.message(); len(m.Parts) != 2 || m.Parts[0].Text("state") != OutputAvailable {
		t.Errorf("%s", rawjson.MustEncode(m))
	}
}

// TestStreamMergeLetsTextsGrow interrupts random streams anywhere and continues with others: the text only grows, there is
// one start, and each end has a beginning.
func TestStreamMergeLetsTextsGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.SampledFrom([]string{"a", "b"})
		step := rapid.OneOf(
			rapid.SampledFrom([]string{"start", "start-step", "finish-step", "finish"}),
			rapid.Map(id, func(id string) string { return "text+ " + id }),
			rapid.Map(id, func(id string) string { return "text. " + id + " w" }),
			rapid.Map(id, func(id string) string { return "text- " + id }),
			rapid.Map(id, func(id string) string { return "reasoning. " + id + " r" }),
			rapid.Map(id, func(id string) string { return "reasoning- " + id }),
			rapid.Map(id, func(id string) string { return "call " + id + " f" }),
			rapid.Map(id, func(id string) string { return "result " + id + " 1" }),
		)
		acc := newAccumulator(Message{ID: "m", Role: RoleAssistant})
		open := map[string]bool{}
		results := map[string]int{}
		previous, starts, texts := "", 0, []string{}
		for range rapid.IntRange(1, 4).Draw(t, "runs") {
			st := newStreamMerger(acc, "m")
			for n, s := range rapid.SliceOfN(step, 0, 12).Draw(t, "run") {
				if strings.HasPrefix(s, "text. ") {
					s = fmt.Sprintf("%s%d-%d ", s, starts, n)
					previous += strings.SplitN(s, " ", 3)[2]
				}
				take := func(list []Chunk) {
					for _, c := range list {
						kind, part, _ := cutLast(c.Type(), "-")
						key := kind + c.Text("id")
						switch {
						case c.Type() == "start":
							starts++
						case c.Type() == "finish-step":
							clear(open) // like the hook
						case kind != "text" && kind != "reasoning":
						case part == "start" && open[key], part != "start" && !open[key]:
							t.Fatalf("%s at %q", formatShort(c), s)
						default:
							open[key] = part != "end"
						}
						if c.Type() == "tool-output-available" {
							results[c.Text("toolCallId")]++
						}
						acc.add(c)
					}
				}
				take(st.before(parseShort(t, s)))
				take(st.next(parseShort(t, s)))
				m := acc.message()
				for i, p := range m.Parts {
					text := p.Text("text")
					if i < len(texts) && !strings.HasPrefix(text, texts[i]) {
						t.Fatalf("part %d was %q, is %q", i, texts[i], text)
					}
				}
				texts = texts[:0]
				for _, p := range m.Parts {
					texts = append(texts, p.Text("text"))
				}
			}
		}
		m := acc.message()
		if got := m.PlainText(); len(got) != len(previous) {
			t.Fatalf("%q was said, %q is there", previous, got)
		}
		if starts > 1 {
			t.Fatalf("%d starts", starts)
		}
		for id, n := range results {
			if n > 1 {
				t.Fatalf("call %s has %d results", id, n)
			}
		}
	})
}

func TestToolCallsThatAreAbandoned(t *testing.T) {
	part := func(state, name string) Part {
		p := newPart("tool-"+name).with("toolCallId", name).with("state", state)
		return p
	}
	runs := CallRuns{
		Client:   func(p Part) bool { return ToolName(p) == "client" },
		External: func(id string) bool { return strings.HasPrefix(id, "external") },
		Begun:    func(id string) bool { return id == "begun" },
		Approved: func(id string) bool { return id == "repeated" },
	}
	m := Message{ID: "m", Role: RoleAssistant, Parts: []Part{
		part(InputStreaming, "half"), part(InputAvailable, "server"), part(InputAvailable, "client"), part(InputAvailable, "repeated"),
		part(ApprovalRequested, "asked"), part(ApprovalResponded, "allowed"), part(ApprovalResponded, "begun"), part(OutputAvailable, "done"),
		part(InputAvailable, "provider").with("providerExecuted", json.RawMessage("true")), newPart("text").with("text", "x"),
	}}
	add, waits := abandonedCalls(&m, runs)
	var got []string
	for _, c := range add {
		got = append(got, c.Type()+" "+c.Text("toolCallId"))
	}
	if want := "tool-input-error half,tool-output-error server,tool-output-error begun"; strings.Join(got, ",") != want || !waits {
		t.Errorf("%v, waits %t", got, waits)
	}
	m.Parts = []Part{part(InputAvailable, "server")}
	if _, waits := abandonedCalls(&m, runs); waits {
		t.Error("a server's call is not waited for")
	}
	m.Parts = []Part{part(ApprovalResponded, "external approved")}
	if add, waits := abandonedCalls(&m, runs); len(add) > 0 || !waits {
		t.Errorf("an external call: %d results, waits %t", len(add), waits)
	}
}

// A reply that was stopped before its first chunk stays without chunks.
func TestStreamMergerFinishWithoutChunks(t *testing.T) {
	if got := newStreamMerger(newAccumulator(Message{}), "m").finish(false); len(got) > 0 {
		t.Errorf("%v", got)
	}
}
