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

// debate is a conversation with a speaker over several processes.
type debate struct {
	*listener
	p      *patient
	kills  int
	onDisk []string // the number of chunks of an interrupted answer that each process found
}

// debates starts a conversation with a speaker of a class.
func debates(t *testing.T, class string) *debate {
	t.Helper()
	dir := t.TempDir()
	d := &debate{listener: newListener(t, class+"/a")}
	d.p = &patient{t: t, bin: as(t, "forum"), data: filepath.Join(dir, "data"), file: filepath.Join(dir, "file")}
	d.p.begin()
	listen(t, d.p.v, d.listener)
	return d
}

// words reads the answer until it has so many words of the run in this process.
func (d *debate) words(n int) {
	for strings.Count(" "+d.text, fmt.Sprintf(" %d.", d.kills)) < n {
		d.hear()
	}
}

// dies kills the process, and connects to the next one.
func (d *debate) dies() {
	d.t.Helper()
	d.kills++
	d.killed()
	d.p.begin()
	listen(d.t, d.p.v, d.listener)
}

var interrupted = regexp.MustCompile(`chat:interrupted.* chunks=(\d+)`)

// killed kills the process, and reads in its log the chunks that it found.
func (d *debate) killed() {
	d.t.Helper()
	d.p.kill()
	for _, m := range interrupted.FindAllStringSubmatch(d.p.v.logged(), -1) {
		d.onDisk = append(d.onDisk, m[1])
	}
}

// catchesUp reads the answer so far.
func (d *debate) catchesUp() {
	for d.caught = false; !d.caught; {
		d.hear()
	}
}

// ended reads the end of an answer.
func (d *debate) ended(request string) ending {
	for {
		if e, ok := d.ends[request]; ok {
			return e
		}
		d.hear()
	}
}

// bill logs the cost of the kills, and expects so many runs of the handler, and so many calls of the model.
func (d *debate) bill(runs, calls int) {
	t := d.t
	t.Helper()
	d.killed() // which checks the store
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

// says expects a transcript. A number stands for so many words, each of them once, in the order of the runs.
func (d *debate) says(want ...string) {
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
		"the hook drops all":       droppedByTheHook,
		"what was kept":            keptForTheHook,
		"body and tools":           bodyAndToolsAfterAKill,
		"without recovery":         killedAndEnded("fragile", "error", "could not recover"),
		"asked while it recovers":  askedWhileItRecovers,
		"another joins":            joinedAfterAKill,
		"two in a row, both asked": killedWithOneThatWaits,
		"the provider goes on":     killedWhileTheProviderGoesOn,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t)
		})
	}
}

// One message, of the same id, and one text.
func killedInTheMiddle(t *testing.T) {
	d := debates(t, "speaker")
	d.ask("one", "count 100", "")
	d.words(4)
	before := d.message
	d.dies()
	d.catchesUp()
	d.p.release()
	if e := d.ended("one"); e.Outcome != "completed" || d.message != before {
		t.Errorf("%+v, %s is %s", e, before, d.message)
	}
	d.says("user:count 100", "assistant: 100 words")
	d.bill(2, 2)
}

func killedBeforeTheFirstWord(t *testing.T) {
	d := debates(t, "speaker")
	d.ask("one", "hold 5", "")
	d.p.happens("model", 1)
	d.dies()
	d.catchesUp()
	d.p.release()
	d.ended("one")
	d.says("user:hold 5", "assistant: 5 words")
	d.bill(2, 2)
}

func killedThreeTimes(t *testing.T) {
	d := debates(t, "speaker")
	d.ask("one", "count 100", "")
	for range 3 {
		d.words(3)
		d.dies()
		d.catchesUp()
	}
	d.p.release()
	d.ended("one")
	d.says("user:count 100", "assistant: 100 words")
	d.bill(4, 4)
}

// The sixth kill is one too many, although each run made progress; the next question is answered.
func killedSixTimes(t *testing.T) {
	d := debates(t, "counted")
	d.ask("one", "count 200", "")
	for i := range 6 {
		d.words(2)
		d.dies()
		if i < 5 {
			d.catchesUp()
		}
	}
	if e := d.ended("one"); e.Outcome != "error" || !strings.Contains(e.Body, "could not recover") {
		t.Errorf("%+v", e)
	}
	if said := len(strings.Fields(transcript(t, d.p.v, d.at)[1])); said < 12 {
		t.Errorf("%d words are left", said)
	}
	d.ask("two", "count 3", "")
	if e := d.ended("two"); e.Outcome != "completed" {
		t.Errorf("%+v", e)
	}
	d.bill(7, 7)
}

func droppedByTheHook(t *testing.T) {
	d := debates(t, "dropper")
	d.ask("one", "count 100", "")
	d.words(4)
	d.dies()
	d.text = "" // which the client drops
	d.ask("one", "count 100", "")
	if e := d.ended("one"); e.Outcome != "aborted" {
		t.Errorf("%+v", e)
	}
	d.says("user:count 100")
	d.bill(1, 1)
}

// The hook gets the checkpoint of the run, and the request's id.
func keptForTheHook(t *testing.T) {
	d := debates(t, "speaker")
	d.ask("one", "count 50", "")
	d.words(2)
	d.dies()
	d.p.release()
	d.ended("one")
	const cut = `cut one, attempt 1, with "kept by one"`
	if d.p.lines("cut")[cut] != 1 {
		t.Errorf("%v", d.p.lines("cut"))
	}
	d.bill(2, 2)
}

// Body and tools are those of the request, also in the continuation after a tool result and another kill.
func bodyAndToolsAfterAKill(t *testing.T) {
	d := debates(t, "speaker")
	d.ask("one", "ask 50", `,"clientTools":[{"name":"ask"}],"city":"Bern"`)
	d.ended("one")
	d.dies()
	d.say(map[string]any{"type": "cf_agent_tool_result", "toolCallId": d.call, "toolName": "ask", "output": "yes", "autoContinue": true})
	for len(strings.Fields(d.text)) < 1 {
		d.hear()
	}
	going := d.of
	d.dies()
	d.p.release()
	d.ended(going)
	for _, run := range []string{"one, attempt 0", going + ", attempt 0", going + ", attempt 1"} {
		line := "run of " + run + `, body {"city":"Bern"}, tools [{"name":"ask"}]`
		if d.p.lines("run")[line] != 1 {
			t.Errorf("%q is not among %v", line, d.p.lines("run"))
		}
	}
	d.says("user:ask 50", "assistant: 50 words")
	d.bill(3, 3)
}

// The text so far stays, and clients get the outcome.
func killedAndEnded(class, outcome, why string) func(t *testing.T) {
	return func(t *testing.T) {
		d := debates(t, class)
		d.ask("one", "count 100", "")
		d.words(4)
		d.dies()
		d.ask("one", "count 100", "") // this request may have been lost
		if e := d.ended("one"); e.Outcome != outcome || !strings.Contains(e.Body, why) {
			t.Errorf("%+v", e)
		}
		if lines := transcript(t, d.p.v, d.at); len(lines) != 2 || len(strings.Fields(lines[1])) < 4 {
			t.Errorf("%q", lines)
		}
		d.bill(1, 1)
	}
}

// A request during recovery is answered afterwards, and each answer has its own messages alone.
func askedWhileItRecovers(t *testing.T) {
	d := debates(t, "speaker")
	d.ask("one", "hold 6", "")
	d.p.happens("model", 1)
	d.dies()
	d.p.happens("model", 2)
	d.ask("two", "count 3", "")
	d.catchesUp()
	d.p.release()
	one, two := d.ended("one"), d.ended("two")
	if !slices.Equal(one.MessageIDs, []string{"u-one"}) || !slices.Equal(two.MessageIDs, []string{"u-two"}) || d.recovering == 0 {
		t.Errorf("%+v, %+v; told %d times that it recovers", one, two, d.recovering)
	}
	d.says("user:hold 6", "assistant: 6 words", "user:count 3", "assistant: 3 words")
	d.bill(3, 3)
}

func joinedAfterAKill(t *testing.T) {
	d := debates(t, "speaker")
	d.ask("one", "count 100", "")
	d.words(4)
	d.dies()
	late := newListener(t, d.at)
	listen(t, d.p.v, late)
	for !late.caught {
		late.hear()
	}
	d.p.release()
	d.ended("one")
	for late.done == "" {
		late.hear()
	}
	if late.text != d.text || late.message != d.message {
		t.Errorf("%q of %s, and %q of %s", late.text, late.message, d.text, d.message)
	}
	d.bill(2, 2)
}

// A waiting request is answered after the interrupted one.
func killedWithOneThatWaits(t *testing.T) {
	d := debates(t, "speaker")
	d.ask("one", "count 50", "")
	d.words(2)
	d.ask("two", "count 3", "")
	for len(transcript(t, d.p.v, d.at)) < 2 { // it is stored, together with the request
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	d.dies()
	d.p.release()
	d.ended("one")
	d.ended("two")
	d.says("user:count 50", "assistant: 50 words", "user:count 3", "assistant: 3 words")
	d.bill(3, 3)
}

// An answer that the provider continues is fetched, and not requested again.
func killedWhileTheProviderGoesOn(t *testing.T) {
	d := debates(t, "speaker")
	d.ask("one", "fetch 50", "")
	d.words(2)
	d.dies()
	d.p.release()
	d.ended("one")
	d.says("user:fetch 50", "assistant: 50 words")
	if d.p.lines("fetched")["fetched what was kept by one"] != 1 {
		t.Errorf("%v", d.p.lines(""))
	}
	d.bill(2, 1)
}
