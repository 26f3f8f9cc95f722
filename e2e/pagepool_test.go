//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// pools has helpers for the tables of a pool.
const pools = panel + `const table = (id) => Array.from(the("#" + id).tBodies[0].rows);
	const rowOf = (id, key) => table(id).find((r) => r.cells[0].textContent === key);
	const cellOf = (id, key, name) => rowOf(id, key)?.querySelector('[data-label="' + name + '"]')?.firstChild.textContent ?? "";
	const has = (id, key, name, text) => until(id + " " + key + " has " + name + " " + text, () => cellOf(id, key, name).includes(text));
	const shows = (text) => until("the role has the text: " + text, () => the("#role").textContent.includes(text));
	const pick = async (key) => { (await until("there is the row " + key, () => rowOf("roles", key))).querySelector("button").click();
		await until("the role is selected", () => the("#role-title").textContent === "Role " + key && !the("#pool").ariaBusy); };
	const narrow = () => { const p = the("#pool"); if (p.scrollWidth > p.clientWidth) throw new Error("the tables are " + p.scrollWidth + " wide of " + p.clientWidth);
		if (document.body.scrollTop) throw new Error("the page has moved by " + document.body.scrollTop); };
`

// poolPages are the same pool on all screens.
type poolPages struct {
	server *pageHost
	name   string
	pages  []*visit
}

func openPool(t *testing.T, h *pageHost, c *chrome, name string, screens ...screen) *poolPages {
	t.Helper()
	p := &poolPages{server: h, name: name}
	for _, s := range screens {
		v := &visit{server: h, chrome: c, screen: s, agent: name, url: "http://" + h.admin + "/#pool/" + name}
		v.open(t)
		p.pages = append(p.pages, v)
	}
	return p
}

// do runs code in each page, and takes pictures.
func (p *poolPages) do(t *testing.T, picture, code string) {
	t.Helper()
	for _, v := range p.pages {
		v.do(t, pools+code+"; narrow()")
		if picture != "" {
			v.picture(t, "pool "+picture)
		}
	}
}

// call calls a method of the pool, and returns the body of the answer.
func (p *poolPages) call(t *testing.T, method string, in any) string {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return p.pages[0].post(t, "http://"+p.server.objects+"/objects/pool/"+p.name+"/"+method, string(body))
}

// start starts a process of dohost for the server, which ends with the test.
func (p *poolPages) start(t *testing.T, bin string, args ...string) {
	t.Helper()
	cmd := exec.Command(bin, append(args[:1:1], append([]string{"--at", p.server.objects, "--pool", p.name}, args[1:]...)...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // its status is that of an interrupted command
	})
}

type object map[string]any

// TestPageShowsAPool has a pool with two roles, and kills the worker of one of them with SIGKILL while it has a task.
func TestPageShowsAPool(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "dohost")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../cmd/dohost").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	h, c := serveHost(t, bin), startChrome(t, tool(t, "chromium", "chromium-browser", "google-chrome"))
	t.Run("two roles", func(t *testing.T) { // the browser ends with the test, the tabs before it
		killAWorker(t, bin, openPool(t, h, c, "build", desktop, nightDesk, phone, dayPhone))
	})
}

func killAWorker(t *testing.T, bin string, p *poolPages) {
	p.do(t, "empty", `await until("the pool is empty", () => the("#pool-state").textContent.includes("no roles yet"))`)
	p.call(t, "declare", object{"role": "reviewer", "managed": false})
	pid := filepath.Join(t.TempDir(), "pid")
	p.start(t, bin, "daemon", "--role", "builder", "--", "sh", "-c", `echo $PPID > `+pid+`.new; mv `+pid+`.new `+pid+`; exec sleep 1000`)
	p.do(t, "", `await has("roles", "builder", "State", "offline"); await has("roles", "reviewer", "Kind", "attached")`)
	p.call(t, "post", object{"role": "builder", "text": "build the change 12", "key": "build-12"})
	p.call(t, "post", object{"role": "reviewer", "text": "review it"})
	p.do(t, "busy", `await has("roles", "builder", "State", "busy"); await pick("builder");
		await has("tasks", "1", "State", "running"); await has("tasks", "1", "Fence", "1"); await has("tasks", "1", "Attempts", "1 of 5");
		await has("tasks", "1", "Lease", "for ");
		await until("the worker has the task", () => table("workers")[0]?.querySelector('[data-label="Task"]').textContent === "1");
		const conn = table("workers")[0].cells[0].textContent; await has("tasks", "1", "Worker", conn); await has("workers", conn, "Kind", "managed");
		await shows("1 of 5 in succession"); await shows("number 1, requested"); await shows("a task was posted")`)
	p.do(t, "content", `rowOf("tasks", "1").querySelector("button").click(); await until("the text is there", () => the("#content").textContent.includes("build the change 12"));
		same(document.activeElement.id, "content-title"); the("#content-title").scrollIntoView()`)
	killWorker(t, pid)
	p.do(t, "killed", `await has("tasks", "1", "State", "pending"); await has("roles", "builder", "State", "restart requested");
		await shows("number 2, requested"); await shows("signal: killed"); await shows("a daemon gets it in"); await shows("A task is pending, and the pool has requested a restart");
		same(cellOf("tasks", "1", "Lease"), ""); same(cellOf("tasks", "1", "Worker"), "");
		await until("the restart is in the list of events", () => the("#history").textContent.includes("Role builder: restart 2 requested"));
		await until("the restart is announced", () => the("#said").textContent.includes("Role builder: restart 2 requested"));
		the("#pool").scrollTop = 0`)
	p.do(t, "", `await has("roles", "builder", "State", "busy"); await has("tasks", "1", "Fence", "2"); await shows("2 of 5 in succession")`)
}

// killWorker kills the process whose id is in a file.
func killWorker(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// image is a name that runs code if a page takes it for HTML.
const image = "<img/src=x/onerror=window.hacked=1>"

// TestPageShowsAHostilePool has a client that writes HTML, control characters and large texts wherever it may, and more tasks than a page
// has.
func TestPageShowsAHostilePool(t *testing.T) {
	h, c := serveHost(t, buildServer(t)), startChrome(t, tool(t, "chromium", "chromium-browser", "google-chrome"))
	t.Run("texts", func(t *testing.T) { showHostileTexts(t, openPool(t, h, c, "hostile", desktop, phone)) })
}

func showHostileTexts(t *testing.T, p *poolPages) {
	hostile := "\u202e\u0007\x1b[31m" + image + strings.Repeat("x", 80)
	p.call(t, "join", object{"role": image, "conn": image, "name": hostile})
	if got := p.call(t, "post", object{"role": image, "text": strings.Repeat("x", 1<<20)}); !strings.Contains(got, "invalid: text has 1048576 bytes") {
		t.Errorf("a text of 1 MiB: %s", got)
	}
	for range 120 {
		p.call(t, "post", object{"role": image, "text": image + strings.Repeat("x", 60<<10)})
	}
	p.call(t, "claim", object{"role": image, "conn": image})
	p.call(t, "start", object{"task": "1", "conn": image, "fence": 1})
	p.call(t, "renew", object{"task": "1", "conn": image, "fence": 1, "progress": hostile + strings.Repeat("y", 800)})
	p.call(t, "fail", object{"task": "1", "conn": image, "fence": 1, "error": hostile})
	q := strconv.Quote(image)
	p.do(t, "hostile", fmt.Sprintf(`await has("roles", %[1]s, "Kind", "attached"); await shows("Role " + %[1]s); await until("there is a page of tasks", () => table("tasks").length === 50 && table("tasks")[0].cells[0].textContent === "2");
		same(cellOf("workers", %[1]s, "Name").includes("\u202e") || cellOf("workers", %[1]s, "Name").includes("\x07"), false);
		same(document.querySelectorAll("main img, main b").length, 0); same(window.hacked, undefined); same(the("#post-send").textContent, "Post to the role " + %[1]s);
		the("#role-title").scrollIntoView()`, q))
	p.do(t, "", `const first = table("tasks")[0].cells[0].textContent; the("#tasks-next").focus(); the("#tasks-next").click();
		await until("the second page is there", () => table("tasks")[0].cells[0].textContent === "52" && table("tasks").length === 50 && the("#tasks-page").textContent === "Page 2");
		same(document.activeElement.id, "tasks-next"); the("#tasks-next").click();
		await until("the third page is there", () => table("tasks").length === 20 && the("#tasks-next").hidden); the("#tasks-first").click();
		await until("the first page is there", () => table("tasks")[0].cells[0].textContent === first);
		const s = the("#task-state"); s.value = "failed"; s.dispatchEvent(new Event("change"));
		await until("only the failed task is there", () => table("tasks").length === 1); same(cellOf("tasks", "1", "Notes").includes("<img/src=x"), true)`)
	p.do(t, "hostile content", `rowOf("tasks", "1").querySelector("button").click(); await until("the text is there", () => the("#content").textContent.includes("<img/src=x"));
		if (the("#content").textContent.length > 20000) throw new Error("the content has " + the("#content").textContent.length + " characters");
		same(document.querySelectorAll("main img").length, 0); same(window.hacked, undefined)`)
	p.do(t, "", `window.real = window.fetch; const large = "<img src=x onerror=window.hacked=1>" + "z".repeat(1 << 20);
		window.fetch = async (path, o) => { const res = await real(path, o); if (!String(path).includes("/details")) return res;
			const list = await res.json(); for (const d of list.details) for (const k of Object.keys(d.fields ?? {})) if (k !== "since") d.fields[k] = large; return new Response(JSON.stringify(list)); };
		await until("the large text is there", () => the("#workers").textContent.includes("<img src=x")); same(document.querySelectorAll("main img").length, 0); same(window.hacked, undefined);
		if (the("#pool").textContent.length > 60000) throw new Error("the page has " + the("#pool").textContent.length + " characters"); window.fetch = real`)
	p.pages[0].do(t, pools+`const s = the("#task-state"); s.value = ""; s.dispatchEvent(new Event("change")); await until("there is a button", () => rowOf("tasks", "2"));
		s.value = "failed"; s.dispatchEvent(new Event("change")); (await until("the failed task has a button", () => rowOf("tasks", "1")?.querySelector("td button"))).click();
		await until("it is pending again", () => table("tasks").length === 0 && the("#tasks-page").textContent.includes("No tasks")); await until("it is announced", () => the("#said").textContent.includes("task 1 is pending again"))`)
}

// TestPagePostsATask posts tasks to roles of a pool, with an answer that is lost and a text that the pool refuses.
func TestPagePostsATask(t *testing.T) {
	h, c := serveHost(t, buildServer(t)), startChrome(t, tool(t, "chromium", "chromium-browser", "google-chrome"))
	for _, s := range []screen{desktop, phone} {
		t.Run(s.name, func(t *testing.T) { postTasks(t, openPool(t, h, c, "posts-"+strconv.FormatBool(s.phone), s)) })
	}
}

func postTasks(t *testing.T, p *poolPages) {
	p.call(t, "declare", object{"role": "builder", "managed": true})
	p.call(t, "declare", object{"role": "reviewer", "managed": false})
	const form = `const text = the("#post-text"); const submit = () => the("#post-send").click();
		const write = (t) => { text.focus(); text.value = t; text.dispatchEvent(new Event("input", {bubbles: true})); };
		const refuses = (t) => until("the form has the error: " + t, () => the("#post-error").checkVisibility() && the("#post-error").textContent.includes(t));
		const tasks = () => table("tasks").map((r) => r.cells[0].textContent).join();
		const posted = (want) => until("there are the tasks " + want, () => tasks() === want && text.value === "" && the("#post-error").hidden);
		const readTask = async (id) => { rowOf("tasks", id).querySelector("button").click();
			await until("the content of " + id + " is there", () => the("#content-title").textContent === "Task " + id && !the("#content").hidden); return the("#content-text pre").textContent; };`
	p.do(t, "", form+`await pick("reviewer"); same(the("#post-send").textContent, "Post to the role reviewer");
		submit(); await refuses("Enter the text of the task"); same(document.activeElement, text); same(tasks(), "");
		write("review\n<b>12</b>"); same(the("#post-error").hidden, true); text.setSelectionRange(2, 4); await newPoll();
		same([document.activeElement === text, text.value, text.selectionStart, text.selectionEnd].join(), "true,review\n<b>12</b>,2,4");
		the("#post").scrollIntoView()`)
	p.do(t, "post", `await until("the form is on the screen", () => the("#post-send").checkVisibility())`)
	p.do(t, "", form+`submit(); await posted("1"); await has("tasks", "1", "State", "pending"); same(await readTask("1"), "review\n<b>12</b>");
		await until("it is announced", () => the("#said").textContent.includes("A task is posted to the role reviewer"))`)
	p.do(t, "", form+`window.real = window.fetch; window.fetch = async (path, o) => { const res = await real(path, o);
			if (String(path).includes("action=post")) throw new TypeError("the connection is lost"); return res; };
		write("once only"); submit(); await refuses("The pool may have the task or not: the connection is lost"); same(text.value, "once only");
		await until("the pool has the task", () => tasks() === "1,2"); the("#post").scrollIntoView()`)
	p.do(t, "post failed", `await until("the alert is on the screen", () => the("#post-error").checkVisibility())`)
	p.do(t, "", form+`window.fetch = (path, o) => String(path).includes("action=post") ? Promise.reject(new TypeError("no network")) : real(path, o);
		await pick("builder"); submit(); await refuses("The pool may have the task or not: no network"); window.fetch = real; await pick("reviewer");
		submit(); await posted("1,2"); same(await readTask("2"), "once only");
		write("x".repeat(70000)); submit(); await refuses("The task is not posted: pool: invalid: text has 70000 bytes"); same(text.value.length, 70000);
		await pick("builder"); same(the("#post-error").hidden, true); same(the("#post-send").textContent, "Post to the role builder");
		write("build it"); submit(); submit(); await posted("3"); await has("roles", "builder", "State", "restart requested")`)
}

// evictPool ends the incarnation of a pool.
func (h *pageHost) evictPool(t *testing.T, p *poolPages) {
	t.Helper()
	if got := p.pages[0].post(t, "http://"+h.admin+"/v1/objects/pool/"+p.name+"/evict", ""); !strings.Contains(got, `"evicted":true`) {
		t.Fatalf("evict: %s", got)
	}
}

// TestPageResetsARole has a role whose restarts have led to no worker. The server's pools have one restart in succession.
func TestPageResetsARole(t *testing.T) {
	h, c := serveHost(t, buildServer(t)), startChrome(t, tool(t, "chromium", "chromium-browser", "google-chrome"))
	t.Run("one role", func(t *testing.T) { resetARole(t, openPool(t, h, c, "failing", phone, nightDesk)) })
	t.Run("not in memory", func(t *testing.T) { staysCold(t, openPool(t, h, c, "quiet", desktop)) })
}

// staysCold refreshes a pool without a schedule, which no request wakes.
func staysCold(t *testing.T, p *poolPages) {
	p.call(t, "declare", object{"role": "builder", "managed": true})
	p.do(t, "", `await has("roles", "builder", "State", "offline")`)
	p.server.evictPool(t, p)
	p.do(t, "", `await until("the pool has left memory", () => the("#object").dataset.state === "cold"); await newPoll(); await newPoll();
		same(the("#object").dataset.state, "cold"); same(cellOf("roles", "builder", "Kind"), "managed")`)
}

func resetARole(t *testing.T, p *poolPages) {
	p.call(t, "declare", object{"role": "builder", "managed": true})
	p.call(t, "post", object{"role": "builder", "text": "x"})
	p.call(t, "take", object{"daemon": "d", "role": "builder", "number": 1})
	p.do(t, "", `await has("roles", "builder", "State", "starting"); await shows("by the daemon d")`)
	p.call(t, "exited", object{"role": "builder", "number": 1, "reason": "exit status 7"})
	p.do(t, "failed", `await has("roles", "builder", "State", "failed"); await shows("exit status 7"); await shows("1 of 1 in succession"); await shows("requests no further restart");
		await until("it is announced", () => the("#said").textContent.includes("Role builder is failed"))`)
	p.pages[0].do(t, pools+`the("#reset").click(); await has("roles", "builder", "State", "restart requested"); await until("the button is gone", () => the("#reset").hidden);
		same(document.activeElement.id, "role-title"); await until("it is announced", () => the("#said").textContent.includes("role builder has all of its restarts again"))`)
	p.pages[1].do(t, pools+`await has("roles", "builder", "State", "restart requested");
		the("#reset").hidden = false; the("#reset").click(); await until("the alert is there", () => the("#pool-error").textContent.includes("nothing to reset"))`)
	p.pages[1].picture(t, "pool alert")
}
