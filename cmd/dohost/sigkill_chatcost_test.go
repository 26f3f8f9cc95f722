//go:build unix

package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// killedChat is a conversation with a countingAgent over several processes.
type killedChat struct {
	*chatClient
	p      *fiberTest
	kills  int
	onDisk []string // the number of chunks of an interrupted answer that each process found
}

// newKilledChat starts a conversation with an agent of a class.
func newKilledChat(t *testing.T, class string) *killedChat {
	t.Helper()
	dir := t.TempDir()
	d := &killedChat{chatClient: newChatClient(t, class+"/a")}
	d.p = &fiberTest{t: t, bin: programAs(t, "forum"), data: filepath.Join(dir, "data"), file: filepath.Join(dir, "file")}
	d.p.startProcess()
	connectClient(t, d.p.v, d.chatClient)
	return d
}

// readWords reads the answer until it has n words of the run in this process.
func (d *killedChat) readWords(n int) {
	for strings.Count(" "+d.text, fmt.Sprintf(" %d.", d.kills)) < n {
		d.receive()
	}
}

// killAndResume kills the process, and connects to the next one.
func (d *killedChat) killAndResume() {
	d.t.Helper()
	d.kills++
	d.kill()
	d.p.startProcess()
	connectClient(d.t, d.p.v, d.chatClient)
}

var interrupted = regexp.MustCompile(`chat:interrupted.* chunks=(\d+)`)

// kill kills the process, and reads in its log the chunks that it found.
func (d *killedChat) kill() {
	d.t.Helper()
	d.p.kill()
	for _, m := range interrupted.FindAllStringSubmatch(d.p.v.logged(), -1) {
		d.onDisk = append(d.onDisk, m[1])
	}
}

// readResumed reads the answer so far.
func (d *killedChat) readResumed() {
	for d.resumed = false; !d.resumed; {
		d.receive()
	}
}

// waitEnd reads the end of an answer.
func (d *killedChat) waitEnd(request string) ending {
	for {
		if e, ok := d.ends[request]; ok {
			return e
		}
		d.receive()
	}
}

// wantCost logs the cost of the kills. runs is the expected number of runs of the handler, and calls the expected number of calls of the model.
func (d *killedChat) wantCost(runs, calls int) {
	t := d.t
	t.Helper()
	d.kill() // which checks the store
	n, models := 0, d.p.lines("model")["model"]
	for _, times := range d.p.lines("run of ") {
		n += times
	}
	t.Logf("%d kills, %d runs of the handler, %d calls of the model, chunks on the disk at the kills: %s, shown again by %d frames",
		d.kills, n, models, d.onDisk, d.replayed)
	if n != runs || models != calls {
		t.Errorf("%d runs, %d calls of the model, want %d, %d: %v", n, models, runs, calls, d.p.lines(""))
	}
}

// wantTranscript expects a transcript. In place of the text of a reply it has the number of words: each of them once, in the order of the runs.
func (d *killedChat) wantTranscript(want ...string) {
	t := d.t
	t.Helper()
	got := transcript(t, d.p.v, d.at)
	if len(got) != len(want) {
		t.Fatalf("%q, want %q", got, want)
	}
	for i := range got {
		if text, ok := strings.CutPrefix(got[i], "assistant:"); ok {
			got[i] = fmt.Sprintf("assistant: %d words", len(strings.Fields(text)))
			run := 0
			for at, word := range strings.Fields(text) {
				var in, n int
				if _, err := fmt.Sscanf(word, "%d.%d", &in, &n); err != nil || n != at || in < run {
					t.Errorf("word %d of %q", at, text)
				}
				run = in
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestChatRecoveryCostAfterSIGKILL kills the process during an answer, and logs the cost.
func TestChatRecoveryCostAfterSIGKILL(t *testing.T) {
	for name, run := range map[string]func(t *testing.T){
		"in the middle":            killedInTheMiddle,
		"before the first word":    killedBeforeTheFirstWord,
		"three times":              killedThreeTimes,
		"six times, counted":       killedSixTimes,
		"the hook stops":           killedAndEnded("stopper", "aborted", ""),
		"the hook drops all":       discardedByHook,
		"checkpoint for the hook":  checkpointForHook,
		"body and tools":           bodyAndToolsAfterAKill,
		"without recovery":         killedAndEnded("fragile", "error", "could not recover"),
		"asked while it recovers":  askedDuringRecovery,
		"another joins":            joinedAfterAKill,
		"two in a row, both asked": killedWithQueuedRequest,
		"the provider continues":   killedDuringStoredAnswer,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t)
		})
	}
}

// killedInTheMiddle requires one message, with the same id, and one text.
func killedInTheMiddle(t *testing.T) {
	d := newKilledChat(t, "speaker")
	d.ask("one", "count 100", "")
	d.readWords(4)
	before := d.message
	d.killAndResume()
	d.readResumed()
	d.p.release()
	if e := d.waitEnd("one"); e.Outcome != "completed" || d.message != before {
		t.Errorf("%+v, %s is %s", e, before, d.message)
	}
	d.wantTranscript("user:count 100", "assistant: 100 words")
	d.wantCost(2, 2)
}

func killedBeforeTheFirstWord(t *testing.T) {
	d := newKilledChat(t, "speaker")
	d.ask("one", "hold 5", "")
	d.p.waitLine("model", 1)
	d.killAndResume()
	d.readResumed()
	d.p.release()
	d.waitEnd("one")
	d.wantTranscript("user:hold 5", "assistant: 5 words")
	d.wantCost(2, 2)
}

func killedThreeTimes(t *testing.T) {
	d := newKilledChat(t, "speaker")
	d.ask("one", "count 100", "")
	for range 3 {
		d.readWords(3)
		d.killAndResume()
		d.readResumed()
	}
	d.p.release()
	d.waitEnd("one")
	d.wantTranscript("user:count 100", "assistant: 100 words")
	d.wantCost(4, 4)
}

// The sixth kill is one too many, although each run made progress; the next question is answered.
func killedSixTimes(t *testing.T) {
	d := newKilledChat(t, "counted")
	d.ask("one", "count 200", "")
	for i := range 6 {
		d.readWords(2)
		d.killAndResume()
		if i < 5 {
			d.readResumed()
		}
	}
	if e := d.waitEnd("one"); e.Outcome != "error" || !strings.Contains(e.Body, "could not recover") {
		t.Errorf("%+v", e)
	}
	if words := len(strings.Fields(transcript(t, d.p.v, d.at)[1])); words < 12 {
		t.Errorf("%d words are left", words)
	}
	d.ask("two", "count 3", "")
	if e := d.waitEnd("two"); e.Outcome != "completed" {
		t.Errorf("%+v", e)
	}
	d.wantCost(7, 7)
}

func discardedByHook(t *testing.T) {
	d := newKilledChat(t, "dropper")
	d.ask("one", "count 100", "")
	d.readWords(4)
	d.killAndResume()
	d.text = "" // which the client drops
	d.ask("one", "count 100", "")
	if e := d.waitEnd("one"); e.Outcome != "aborted" {
		t.Errorf("%+v", e)
	}
	d.wantTranscript("user:count 100")
	d.wantCost(1, 1)
}

// The hook gets the checkpoint of the run, and the request's id.
func checkpointForHook(t *testing.T) {
	d := newKilledChat(t, "speaker")
	d.ask("one", "count 50", "")
	d.readWords(2)
	d.killAndResume()
	d.p.release()
	d.waitEnd("one")
	const cut = `cut one, attempt 1, with "kept by one"`
	if d.p.lines("cut")[cut] != 1 {
		t.Errorf("%v", d.p.lines("cut"))
	}
	d.wantCost(2, 2)
}

// Body and tools are those of the request, also in the continuation after a tool result and another kill.
func bodyAndToolsAfterAKill(t *testing.T) {
	d := newKilledChat(t, "speaker")
	d.ask("one", "ask 50", `,"clientTools":[{"name":"ask"}],"city":"Bern"`)
	d.waitEnd("one")
	d.killAndResume()
	d.send(map[string]any{"type": "cf_agent_tool_result", "toolCallId": d.call, "toolName": "ask", "output": "yes", "autoContinue": true})
	for len(strings.Fields(d.text)) < 1 {
		d.receive()
	}
	going := d.of
	d.killAndResume()
	d.p.release()
	d.waitEnd(going)
	for _, run := range []string{"one, attempt 0", going + ", attempt 0", going + ", attempt 1"} {
		line := "run of " + run + `, body {"city":"Bern"}, tools [{"name":"ask"}]`
		if d.p.lines("run")[line] != 1 {
			t.Errorf("%q is not among %v", line, d.p.lines("run"))
		}
	}
	d.wantTranscript("user:ask 50", "assistant: 50 words")
	d.wantCost(3, 3)
}

// The text so far stays, and clients get the outcome.
func killedAndEnded(class, status, why string) func(t *testing.T) {
	return func(t *testing.T) {
		d := newKilledChat(t, class)
		d.ask("one", "count 100", "")
		d.readWords(4)
		d.killAndResume()
		d.ask("one", "count 100", "") // this request may have been lost
		if e := d.waitEnd("one"); e.Outcome != status || !strings.Contains(e.Body, why) {
			t.Errorf("%+v", e)
		}
		if lines := transcript(t, d.p.v, d.at); len(lines) != 2 || len(strings.Fields(lines[1])) < 4 {
			t.Errorf("%q", lines)
		}
		d.wantCost(1, 1)
	}
}

// A request during recovery is answered afterwards, and each answer has its own messages alone.
func askedDuringRecovery(t *testing.T) {
	d := newKilledChat(t, "speaker")
	d.ask("one", "hold 6", "")
	for d.next < 2 { // the chunks before the first word: otherwise the second run sends them, which ends the recovery
		d.receive()
	}
	d.p.waitLine("model", 1)
	d.killAndResume()
	d.p.waitLine("model", 2)
	d.ask("two", "count 3", "")
	d.readResumed()
	d.p.release()
	one, two := d.waitEnd("one"), d.waitEnd("two")
	if !slices.Equal(one.MessageIDs, []string{"u-one"}) || !slices.Equal(two.MessageIDs, []string{"u-two"}) || d.recovering == 0 {
		t.Errorf("%+v, %+v; told %d times that it recovers", one, two, d.recovering)
	}
	d.wantTranscript("user:hold 6", "assistant: 6 words", "user:count 3", "assistant: 3 words")
	d.wantCost(3, 3)
}

func joinedAfterAKill(t *testing.T) {
	d := newKilledChat(t, "speaker")
	d.ask("one", "count 100", "")
	d.readWords(4)
	d.killAndResume()
	late := newChatClient(t, d.at)
	connectClient(t, d.p.v, late)
	for !late.resumed {
		late.receive()
	}
	d.p.release()
	d.waitEnd("one")
	for late.done == "" {
		late.receive()
	}
	if late.text != d.text || late.message != d.message {
		t.Errorf("%q of %s, and %q of %s", late.text, late.message, d.text, d.message)
	}
	d.wantCost(2, 2)
}

// A waiting request is answered after the interrupted one.
func killedWithQueuedRequest(t *testing.T) {
	d := newKilledChat(t, "speaker")
	d.ask("one", "count 50", "")
	d.readWords(2)
	d.ask("two", "count 3", "")
	for len(transcript(t, d.p.v, d.at)) < 2 { // it is stored, together with the request
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	d.killAndResume()
	d.p.release()
	d.waitEnd("one")
	d.waitEnd("two")
	d.wantTranscript("user:count 50", "assistant: 50 words", "user:count 3", "assistant: 3 words")
	d.wantCost(3, 3)
}

// An answer that the provider continues is fetched, and not requested again.
func killedDuringStoredAnswer(t *testing.T) {
	d := newKilledChat(t, "speaker")
	d.ask("one", "fetch 50", "")
	d.readWords(2)
	d.killAndResume()
	d.p.release()
	d.waitEnd("one")
	d.wantTranscript("user:fetch 50", "assistant: 50 words")
	if d.p.lines("fetched")["fetched the stored answer kept by one"] != 1 {
		t.Errorf("%v", d.p.lines(""))
	}
	d.wantCost(2, 1)
}
