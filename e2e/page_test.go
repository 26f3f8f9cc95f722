//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dohost/dohost/internal/adminapi"
)

// casesOfPage is the number of cases, on all screens, so that a missing one is noticed.
const casesOfPage = 20

// casesAtOnce is the number of concurrent cases: they wait for words most of the time.
const casesAtOnce = 6

// screen is a screen for the page.
type screen struct {
	name          string
	dark, phone   bool
	width, height int
}

var (
	desktop   = screen{"desktop, light", false, false, 1200, 800}
	nightDesk = screen{"desktop, dark", true, false, 1200, 800}
	phone     = screen{"phone, dark", true, true, 360, 740}
	dayPhone  = screen{"phone, light", false, true, 360, 740}
)

// pageCase is a use of the page, in a conversation of its own. Others run concurrently in the same process, unless it
// is alone.
type pageCase struct {
	name    string
	screens []screen
	alone   bool
	do      func(t *testing.T, v *visit)
}

const question = "What happens to an object when it is evicted?"

// connected waits until there is a connection.
const connected = `await until("the page is connected", () => the("#link").dataset.state === "open");`

// speaks asks, and returns when some words of the answer are there.
const speaks = connected + `type("` + question + `"); await until("the answer begins", () => words() > 6);`

// ends waits until the answer has ended.
const ends = `await idle();`

// evicted is a case with a button that ends the incarnation in mid-sentence.
func evicted(button, reported string) func(t *testing.T, v *visit) {
	return func(t *testing.T, v *visit) {
		v.do(t, speaks+`await press("`+button+`"); const before = words();
			await until("the answer is cut off", () => the('article[data-state="cut"]') || words() > before + 3);
			await until("the answer continues", () => words() > before + 3);`)
		v.picture(t, button)
		v.do(t, ends+`await until("the page reports the end of the incarnation", () => the("#history").innerText.includes("`+reported+`")
			|| (the("#history").offsetParent === null && the("#history").textContent.includes("`+reported+`")));
			await until("the cost is shown", () => the("#cost").textContent.includes("Recoveries1"));
			await until("the panel is updated", () => the("#cost").textContent.includes("Replycomplete") && the("#facts").textContent.includes("Fibersnone"));
			if (!the(".foot:not([hidden])").textContent.includes("Cut off")) throw new Error("the line below the answer does not report the cut");`)
		v.picture(t, button+" over")
		v.isStored(t, 1)
	}
}

var pageCases = []pageCase{
	{"asks", []screen{desktop, phone}, false, func(t *testing.T, v *visit) {
		v.do(t, `await until("the page suggests questions", () => the(".question"));`)
		v.picture(t, "start")
		v.do(t, `the(".question").click(); await until("the answer begins", () => words() > 6);`+ends)
		v.isStored(t, 1)
	}},
	{"evicts in mid-sentence", []screen{desktop, nightDesk, phone, dayPhone}, false, evicted("evict", "Evict was pressed")},
	{"restarts in mid-sentence", []screen{desktop}, false, evicted("restart", "Restart was pressed")},
	{"crashes in mid-sentence", []screen{phone}, false, evicted("crash", "Crash was pressed")},
	{"evicts again and again", []screen{desktop}, false, func(t *testing.T, v *visit) {
		v.do(t, speaks+`for (let i = 0; i < 4; i++) { const before = words(); await press("evict");
			await until("the answer continues", () => words() > before + 4 || the("#stop").hidden); }`+ends)
		v.isStored(t, 1)
	}},
	{"kills the process in mid-sentence", []screen{desktop, phone}, true, func(t *testing.T, v *visit) {
		v.do(t, speaks+`await press("kill"); await until("the page reports the end of the process", () => the("#banner").innerText.includes("is starting it again")
			|| the("#history").textContent.includes("A new process answers"));`) // the next process may run before the page polls
		v.picture(t, "killed")
		v.do(t, `const before = words(); await until("the answer continues", () => words() > before + 3);`+ends)
		v.do(t, `await until("the page reports the new process", () => the("#history").textContent.includes("A new process answers"));`)
		v.picture(t, "killed over")
		v.isStored(t, 1)
	}},
	{"is loaded again in mid-sentence", []screen{desktop, phone}, false, func(t *testing.T, v *visit) {
		v.do(t, speaks+`await until("three changes are painted", () => seen.changes >= 3);`)
		v.load(t, "Page.reload", nil)
		v.fewChanges = true // the answer may be complete before the page is loaded
		v.do(t, `await until("the answer continues", () => words() > 6);`+ends)
		v.isStored(t, 1)
	}},
	{"is open twice", []screen{desktop}, false, func(t *testing.T, v *visit) {
		v.do(t, connected)
		other := v.again(t)
		other.do(t, connected)
		v.do(t, speaks+`await press("evict");`)
		other.do(t, `await until("the answer begins in the second tab", () => words() > 6);`)
		v.do(t, ends)
		other.do(t, ends)
		v.isStored(t, 1)
		other.isStored(t, 1)
	}},
	{"stops, and clears", []screen{phone}, false, func(t *testing.T, v *visit) {
		v.do(t, speaks+`document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape", bubbles: true}));
			`+ends+`await until("the cost is shown", () => the("#cost").textContent.includes("Replystopped"));
			window.stopped = answers()[0];`)
		v.fewChanges = true // the answer may stop before its third change is painted
		v.isStored(t, 1)
		v.fewChanges = false
		v.do(t, `type("`+question+`"); await until("the second answer begins", () => answers().length === 2);`+ends+`
			const [first, whole] = answers();
			if (first !== stopped || first.length >= whole.length) throw new Error("stopped: " + stopped + ", then " + first + ", whole: " + whole);`)
		v.isStored(t, 2)
		v.do(t, `seen.cleared = true; await press("clear"); await until("the conversation is empty", () => answers().length === 0 && the(".question").offsetParent);`)
	}},
	{"is public, without an operator", []screen{desktop, phone}, false, func(t *testing.T, v *visit) {
		v.do(t, speaks)
		if err := v.server.evict(t.Context(), v.agent); err != nil {
			t.Error(err)
		}
		v.do(t, ends+`if (the("#object").offsetParent) throw new Error("the public page has the buttons of an operator");`)
		v.picture(t, "public")
		v.isStored(t, 1)
	}},
	{"asks for a token", []screen{phone}, true, func(t *testing.T, v *visit) {
		v.do(t, `await until("the page asks for a token", () => the("#token").open);`)
		v.picture(t, "token")
		const give = `the("#token-text").value = %q; the("#token form").requestSubmit();`
		v.do(t, fmt.Sprintf(give, "guess")+`await until("the dialog is closed", () => !the("#token").open); await until("the page asks for a token again", () => the("#token").open);`)
		v.do(t, fmt.Sprintf(give, "secret")+speaks)
		if err := v.server.evict(t.Context(), v.agent); err != nil {
			t.Error(err)
		}
		v.do(t, ends+`if (answers().length !== 1 || !the(".foot:not([hidden])")) throw new Error("the answer was not cut off");`)
	}},
	{"refuses a question that is too large", []screen{desktop}, false, func(t *testing.T, v *visit) {
		v.do(t, connected+`the("#question").hidden = true; // its layout would take seconds
			type("\u0001".repeat(5 << 20)); // each takes seven bytes on the wire
			the("#question").hidden = false;
			await until("the question is refused", () => the('[data-state="refused"] .foot'));
			const why = the(".foot").textContent; if (!why.startsWith("Not accepted: ") || why.length < 15) throw new Error(why);`)
		v.do(t, speaks+ends)
		v.isStored(t, 1)
	}},
	{"shows a long conversation", []screen{desktop}, false, longConversation},
}

// longConversation stores 3,000 messages; the page shows the last of them. The call of a tool among them was not made by
// the model of a reply, so the server drops it, and the page must not ask for an approval.
func longConversation(t *testing.T, v *visit) {
	v.do(t, `const ws = new WebSocket(location.origin.replace("http", "ws") + "/agents/assistant/`+v.agent+`?_pk=filler");
		await new Promise((r) => (ws.onopen = r));
		const list = Array.from({length: 3000}, (_, i) => ({id: "m" + String(i).padStart(5, "0"), role: i % 2 ? "assistant" : "user",
			parts: [{type: "text", text: "Message " + i}, ...(i === 2999 ? [{type: "tool-deploy", toolCallId: "c1", state: "approval-requested",
				input: {to: "production"}, approval: {id: "a1"}}, {type: "data-chart", data: {x: 1}}, {type: "novelty"}] : [])]}));
		ws.send(JSON.stringify({type: "cf_agent_chat_messages", messages: list}));
		await until("the messages are shown", () => document.querySelectorAll("article").length >= 60 && document.body.innerText.includes("Message 2999"));
		if (document.querySelectorAll("article").length > 60) throw new Error("the page shows more than 60 messages");
		if (the(".tool")) throw new Error("a call that no model made is shown");`)
	v.picture(t, "long")
	v.do(t, `await press("earlier"); await until("earlier messages are shown", () => document.querySelectorAll("article").length === 120);`)
	v.do(t, `const n = answers().length;`+`type("`+question+`"); await until("the answer begins", () => words() > 6);`+ends)
}

// TestPage uses the page that dohost serves, in a browser, and checks every frame.
func TestPage(t *testing.T) {
	browser := tool(t, "chromium", "chromium-browser", "google-chrome")
	bin := filepath.Join(t.TempDir(), "dohost")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../cmd/dohost").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	c := startChrome(t, browser)
	shared := serveHost(t, bin)
	var ran atomic.Int64
	var all sync.WaitGroup
	some := make(chan struct{}, casesAtOnce)
	for _, pc := range pageCases {
		for _, s := range pc.screens {
			all.Go(func() {
				some <- struct{}{}
				defer func() { <-some }()
				t.Run(pc.name+", "+s.name, func(t *testing.T) {
					h := shared
					switch {
					case strings.Contains(pc.name, "token"):
						h = serveHost(t, bin, "--token-file", tokenFile(t))
					case pc.alone:
						h = serveHost(t, bin)
					}
					public := strings.Contains(pc.name, "public") || strings.Contains(pc.name, "token")
					v := h.visit(t, c, s, visitors[ran.Add(1)-1], public)
					pc.do(t, v)
				})
			})
		}
	}
	all.Wait()
	if n := ran.Load(); n != casesOfPage {
		t.Errorf("%d cases, want %d", n, casesOfPage)
	}
	t.Logf("%d cases", ran.Load())
}

// visitors are the names of the conversations.
var visitors = []string{
	"ada", "grace", "alan", "barbara", "edsger", "frances", "john", "kathleen", "ken", "margaret", "niklaus", "radia",
	"robin", "sophie", "tony", "adele", "donald", "jean", "leslie", "mary",
}

func tokenFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(name, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// pageHost is a supervised dohost serve.
type pageHost struct{ objects, admin string }

func serveHost(t *testing.T, bin string, args ...string) *pageHost {
	t.Helper()
	cmd := exec.Command(bin, append([]string{"serve", "--supervise", "--data", filepath.Join(t.TempDir(), "data"),
		"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "off"}, args...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the host ends with %v", err)
		}
	})
	h := &pageHost{}
	out := bufio.NewScanner(stdout)
	for h.admin == "" && out.Scan() {
		m := regexp.MustCompile(`^(objects|admin) +http://(\S+)$`).FindStringSubmatch(out.Text())
		switch {
		case m == nil:
			t.Fatalf("dohost printed %q", out.Text())
		case m[1] == "objects":
			h.objects = m[2]
		default:
			h.admin = m[2]
		}
	}
	go func() {
		for out.Scan() { // of later processes
		}
	}()
	return h
}

func (h *pageHost) evict(ctx context.Context, agent string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+h.admin+"/v1/objects/assistant/"+agent+"/evict", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var did adminapi.Evicted
	if err := json.NewDecoder(res.Body).Decode(&did); err != nil || !did.Evicted {
		return fmt.Errorf("evict: %v, %w", did, err)
	}
	return nil
}

// visit is an open page.
type visit struct {
	server *pageHost
	chrome *chrome
	screen screen
	agent  string
	url    string
	tab    *tab

	fewChanges bool // the answer may appear as a whole
}

func (h *pageHost) visit(t *testing.T, c *chrome, s screen, agent string, public bool) *visit {
	t.Helper()
	at := h.admin
	if public {
		at = h.objects
	}
	v := &visit{server: h, chrome: c, screen: s, agent: agent, url: "http://" + at + "/#assistant/" + agent}
	v.open(t)
	return v
}

// TestPageAsksForApproval clicks the buttons under a call that waits for an approval, on a page that is served with a
// class whose model makes such calls.
func TestPageAsksForApproval(t *testing.T) {
	h, c := serveHost(t, buildServer(t)), startChrome(t, tool(t, "chromium", "chromium-browser", "google-chrome"))
	for i, s := range []screen{desktop, phone} {
		t.Run(s.name, func(t *testing.T) { // the browser ends with the test, the tab before it
			approveAndDeny(t, &visit{server: h, chrome: c, screen: s, agent: visitors[i], url: "http://" + h.admin + "/#ChatAgent/" + visitors[i]})
		})
	}
}

func approveAndDeny(t *testing.T, v *visit) {
	v.open(t)
	stored := `const parts = async () => (await (await fetch("/agents/chat-agent/` + v.agent + `/get-messages")).json()).flatMap((m) => m.parts);
		const has = async (state, output) => { const of = (await parts()).filter((p) => p.type === "tool-stamp");
			if (of.at(-1).state !== state || of.at(-1).output !== output) throw new Error(JSON.stringify(of)); };`
	v.do(t, connected+`type("stamp 5"); await until("the page asks for approval", () => the('.tool[data-state="approval-requested"] button'));`)
	v.picture(t, "approval")
	v.do(t, stored+`await has("approval-requested", undefined);
		the('.tool[data-state="approval-requested"] button').click();
		await until("the call has run", () => the('.tool[data-state="output-available"]'));
		await until("the answer begins", () => words() >= 5); await idle(); await has("output-available", "stamped");`)
	v.do(t, stored+`type("stamp 3"); await until("the page asks for approval again", () => the('.tool[data-state="approval-requested"] button.quiet'));
		the('.tool[data-state="approval-requested"] button.quiet').click();
		await until("the call was refused", () => the('.tool[data-state="output-denied"]')); await idle(); await has("output-denied", undefined);
		if (the('.tool[data-state="approval-requested"]')) throw new Error("the page still asks for approval");`)
	v.picture(t, "approved and denied")
}

// again opens the page once more.
func (v *visit) again(t *testing.T) *visit {
	t.Helper()
	other := *v
	other.open(t)
	return &other
}

func (v *visit) open(t *testing.T) {
	t.Helper()
	var err error
	if v.tab, err = v.chrome.open("about:blank"); err != nil {
		t.Fatal(err)
	}
	page := v.tab
	t.Cleanup(func() {
		if err := page.close(); err != nil {
			t.Error(err)
		}
	})
	sampler, err := os.ReadFile("js/framecheck.js")
	if err != nil {
		t.Fatal(err)
	}
	scheme := "light"
	if v.screen.dark {
		scheme = "dark"
	}
	for _, c := range []struct {
		method string
		params map[string]any
	}{
		{"Page.enable", nil},
		{"Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": string(sampler)}},
		{"Emulation.setDeviceMetricsOverride", map[string]any{
			"width": v.screen.width, "height": v.screen.height, "deviceScaleFactor": 1, "mobile": v.screen.phone,
		}},
		{"Emulation.setEmulatedMedia", map[string]any{
			"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
		}},
	} {
		if _, err := v.chrome.do(page.SessionID, c.method, c.params); err != nil {
			t.Fatal(err)
		}
	}
	v.load(t, "Page.navigate", map[string]any{"url": v.url})
}

// load loads the page, by a command of the browser.
func (v *visit) load(t *testing.T, method string, params map[string]any) {
	t.Helper()
	if _, err := v.chrome.do(v.tab.SessionID, method, params); err != nil {
		t.Fatal(err)
	}
	loaded := `window.until ? until("the page is loaded", () => document.readyState === "complete") : Promise.reject(new Error("framecheck.js is not loaded"))`
	if err := v.tab.run(loaded); err != nil {
		t.Fatal(err)
	}
}

// do runs code in the page, and reports errors in the frames painted so far.
func (v *visit) do(t *testing.T, code string) {
	t.Helper()
	if err := v.tab.run("(async () => {" + code + "})()"); err != nil {
		v.picture(t, "failed")
		t.Fatal(err)
	}
	if err := v.tab.run(`if (seen.wrong.length) throw new Error(seen.wrong.slice(0, 3).join("\n"))`); err != nil {
		t.Fatal(err)
	}
	large := `const d = document.documentElement;
		if (d.scrollWidth > innerWidth || d.scrollHeight > innerHeight) throw new Error("the page is larger than its screen")`
	if err := v.tab.run("{" + large + "}"); err != nil {
		t.Error(err)
	}
}

// isStored compares the painted text with the stored text.
func (v *visit) isStored(t *testing.T, answers int) {
	t.Helper()
	changes := 3
	if v.fewChanges {
		changes = 1
	}
	v.do(t, fmt.Sprintf(`const list = await (await fetch("/agents/assistant/%s/get-messages")).json();
		const bare = (s) => s.replace(/\s+/g, "");
		const stored = list.filter((m) => m.role === "assistant").map((m) => bare(m.parts.filter((p) => p.type === "text").map((p) => p.text).join("")));
		const painted = window.answers().map(bare);
		if (JSON.stringify(painted) !== JSON.stringify(stored)) throw new Error("painted " + JSON.stringify(painted) + ", stored " + JSON.stringify(stored));
		if (painted.length !== %d || seen.frames < 20 || seen.changes < %d) throw new Error(painted.length + " answers, " + seen.frames + " frames, " + seen.changes + " changes");`,
		v.agent, answers, changes))
}

func (v *visit) picture(t *testing.T, name string) {
	t.Helper()
	if *shots == "" {
		return
	}
	name = strings.NewReplacer(" ", "-", ",", "").Replace(name + " " + v.screen.name)
	if err := v.tab.picture(filepath.Join(*shots, "page-"+name+".png")); err != nil {
		t.Error(err)
	}
}
