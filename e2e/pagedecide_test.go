//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
)

// TestPageDecides lets an operator decide in the panel of an object, on a page that is served with classes whose tool calls
// wait for approvals and whose operations have unknown outcomes.
func TestPageDecides(t *testing.T) {
	h, c := serveHost(t, buildServer(t)), startChrome(t, tool(t, "chromium", "chromium-browser", "google-chrome"))
	of := func(class, name string, s screen) *visit {
		return &visit{server: h, chrome: c, screen: s, agent: name, url: "http://" + h.admin + "/#" + class + "/" + name}
	}
	for _, s := range []screen{desktop, phone} {
		t.Run("calls, "+s.name, func(t *testing.T) { approveOnce(t, of("ChatAgent", visitors[0]+s.name[:3], s)) })
	}
	for i, s := range []screen{nightDesk, phone} {
		t.Run("calls that run elsewhere, "+s.name, func(t *testing.T) {
			t.Parallel()
			completeCalls(t, of("ChatAgent", visitors[4+i], s))
		})
	}
	for i, s := range []screen{nightDesk, desktop, phone} {
		name := visitors[1+i]
		if i == 0 {
			t.Run("refused decisions, "+s.name, func(t *testing.T) {
				t.Parallel() // with others that remember the same actor
				refuseDecisions(t, of("ChatAgent", name, s))
			})
		}
		t.Run("operations, "+s.name, func(t *testing.T) {
			t.Parallel()
			resolveOperations(t, of("Shop", name, s))
		})
	}
}

// panel has helpers for the panel, which it opens on a phone. newPoll waits until the page shows a poll that has begun after the call: one may
// be in progress, and the third begins after the page has shown the second.
const panel = `const toggle = the("#more");
	if (toggle.offsetParent && toggle.getAttribute("aria-expanded") === "false") toggle.click();
	const row = (list, state) => the("#" + list + ' li[data-state="' + state + '"]');
	const waits = (list, state) => until("a row of " + list + " is " + state, () => row(list, state));
	const act = (action) => the('[data-action="' + action + '"]').click();
	const fill = (name, text) => { const f = the('.decide [name="' + name + '"]'); f.focus(); f.value = text; };
	const send = () => the(".decide").requestSubmit();
	const alerts = (text) => until("the form has the text: " + text, () => the(".decide .error:not([hidden])")?.textContent.includes(text));
	const logged = (text) => until("the audit log has the text: " + text, () => the("#approvals").textContent.includes(text));
	const same = (got, want) => { if (got !== want) throw new Error(JSON.stringify(got) + ", want " + JSON.stringify(want)); };
	const polls = () => performance.getEntriesByType("resource").filter((e) => e.name.includes("/details")).length;
	const newPoll = () => { const n = polls(); return until("the page shows a new poll", () => polls() >= n + 3); };
`

// stamps compares the number of runs of the tool.
func (v *visit) stamps(want int) string {
	return fmt.Sprintf(`const ws = new WebSocket(location.origin.replace("http", "ws") + "/agents/chat-agent/%s?_pk=counter");
		await new Promise((r) => (ws.onopen = r));
		const runs = new Promise((r) => (ws.onmessage = (e) => { const f = JSON.parse(e.data); if (f.type === "rpc") r(f.result); }));
		ws.send(JSON.stringify({type: "rpc", id: "1", method: "stamps", args: []}));
		same(await runs, %d); ws.close();`, v.agent, want)
}

// approveOnce approves a call after the page was loaded again. The form outlives polls.
func approveOnce(t *testing.T, v *visit) {
	v.open(t)
	v.do(t, connected+panel+`localStorage.removeItem("dohost.actor");
		type("stamp 5"); await waits("calls", "approval");
		await until("the call is announced", () => the("#said").textContent.includes("The tool call stamp waits for approval"));`)
	v.load(t, "Page.reload", nil)
	v.do(t, connected+panel+`await waits("calls", "approval");
		act("approve"); same(document.activeElement.name, "actor");
		send(); await alerts("Enter your name");
		fill("actor", "Ada <b>Lovelace</b>"); fill("reason", "checked the <i>amount</i>");
		document.activeElement.setSelectionRange(2, 4);
		await newPoll();
		const f = document.activeElement;
		same([f.name, f.value, f.selectionStart, f.selectionEnd].join(), "reason,checked the <i>amount</i>,2,4");`)
	v.picture(t, "approve form")
	v.do(t, panel+`const {details} = await (await fetch("/v1/objects/ChatAgent/`+v.agent+`/details?kind=call")).json();
		performance.clearResourceTimings();
		send(); await waits("calls", "completed");
		await until("the answer begins", () => words() >= 5); await idle();
		await logged("stamp approved by Ada <b>Lovelace</b>"); await logged("checked the <i>amount</i>");
		same(the("#approvals li").dataset.kind, "approved"); // the newest event is the first
		const sent = performance.getEntriesByType("resource").filter((e) => e.name.includes("/operate?"));
		same(sent.map((e) => new URL(e.name).searchParams.get("digest")).join(), details[0].digest);
		if (the("#object b, #object i, .decide, [data-action]")) throw new Error(the("#object").innerHTML);
		same(localStorage.getItem("dohost.actor"), "Ada <b>Lovelace</b>");
		await until("the decision is announced", () => the("#said").textContent.includes("stamp approved by Ada <b>Lovelace</b>"));
		`+v.stamps(1))
	v.picture(t, "approved in the panel")
	v.wantLog(t, "approved Ada <b>Lovelace</b> checked the <i>amount</i>", "requested")
}

// refuseDecisions opens forms with decisions that the object refuses: one about another input, and one after another operator's.
func refuseDecisions(t *testing.T, v *visit) {
	v.open(t)
	v.do(t, connected+panel+`localStorage.setItem("dohost.actor", "mia");
		type("stamp 5"); await waits("calls", "approval");
		act("approve"); same(document.activeElement.name, "reason");
		the(".decide [name=reason]").dispatchEvent(new KeyboardEvent("keydown", {key: "Escape", bubbles: true}));
		same(document.activeElement.dataset.action, "approve"); if (the(".decide")) throw new Error("Escape has not closed the form");
		act("approve");
		window.real = window.fetch;
		window.fetch = async (path, o) => { const res = await real(path, o);
			if (!String(path).includes("/details")) return res;
			return new Response((await res.text()).replace(/"digest":"[0-9a-f]{64}"/g, '"digest":"' + "1".repeat(64) + '"')); };
		await alerts("The input of the call has changed since you opened this form");
		the(".decide button.quiet").click(); act("approve");
		send(); await alerts("the decision is about another input of the call");
		same(the(".decide [role=alert]").hidden, false);`)
	v.picture(t, "another input")
	v.do(t, panel+`window.fetch = real; the(".decide button.quiet").click(); await newPoll(); act("approve");`)
	deny := "/operate?action=deny&kind=call&actor=kim&id=" + v.details(t, "call")[0].ID
	if got := v.post(t, "http://"+v.server.admin+"/v1/objects/ChatAgent/"+v.agent+deny, ""); !strings.Contains(got, `"done":true`) {
		t.Errorf("deny: %s", got)
	}
	v.do(t, panel+`await alerts("The item is denied now: this decision comes too late");
		send(); await alerts("the call does not wait for an approval any more");
		await logged("stamp approved by mia, too late: no effect");
		await until("the call was refused", () => the('.tool[data-state="output-denied"]')); await idle();
		`+v.stamps(0))
	v.picture(t, "too late")
	v.wantLog(t, "approved mia  true", "denied kim", "requested")
}

// completeCalls ends one call that another party runs with a result, and another one with an error.
func completeCalls(t *testing.T, v *visit) {
	v.open(t)
	v.do(t, connected+panel+`localStorage.setItem("dohost.actor", "mia");
		type("print 5"); await waits("calls", "external");
		same(the("#more").dataset.count, ""); // no call waits for an operator
		act("complete"); same(document.activeElement.name, "result");
		send(); await alerts("Enter the result, as JSON"); fill("result", "printed"); send(); await alerts("The result is not JSON");
		fill("result", '"printed by hand"'); fill("reason", "saw it");`)
	v.picture(t, "enter the result")
	v.do(t, connected+panel+`send(); await waits("calls", "completed"); await logged("print completed by mia");
		await until("the reply continues", () => words() >= 5); await idle();
		type("print 7"); await waits("calls", "external");
		act("fail"); send(); await alerts("Enter the text of the error"); fill("result", "no paper"); send();
		await waits("calls", "failed"); await logged("print ended with an error by mia"); await idle();
		if (the("[data-action]")) throw new Error("a call still has buttons");`)
	v.picture(t, "completed by an operator")
	v.wantLog(t, "failed mia", "completed mia saw it")
}

// resolveOperations resolves two charges with an unknown outcome, while another operator resolves a third one. Looking at them
// does not wake the shop.
func resolveOperations(t *testing.T, v *visit) {
	charge := func(order, want string) {
		t.Helper()
		body := fmt.Sprintf(`{"Order":%q,"Cents":4200}`, order)
		if got := v.post(t, "http://"+v.server.objects+"/objects/Shop/"+v.agent+"/charge", body); !strings.Contains(got, want) {
			t.Errorf("charge: %s, want %s", got, want)
		}
	}
	for _, number := range []string{"6-", "7-", "8-"} {
		charge(number+v.agent, "unknown")
	}
	var orders []string // charges of the same millisecond are in the order of their ids
	for _, d := range v.details(t, "operation") {
		var args struct{ Order string }
		if err := json.Unmarshal([]byte(d.Fields["args"]), &args); err != nil {
			t.Fatal(err)
		}
		orders = append(orders, args.Order)
	}
	if len(orders) != 3 {
		t.Fatalf("the charges are %q", orders)
	}
	other, first, second := orders[0], orders[1], orders[2]
	admin := "http://" + v.server.admin + "/v1/objects/Shop/" + v.agent
	v.post(t, admin+"/evict?mode=fence", "")
	v.open(t)
	v.do(t, panel+`await until("the panel has the charges", () => document.querySelectorAll("#operations li[data-waits]").length === 3);
		await newPoll(); same(the("#object").dataset.state, "cold");
		same(Array.from(document.querySelectorAll("#operations .input"), (n) => JSON.parse(n.textContent).Order).join(), "`+other+","+first+","+second+`");
		localStorage.setItem("dohost.actor", "mia");`)
	v.picture(t, "unknown")
	// The first row moves to the end, and the form in the second one stays.
	v.do(t, panel+`document.querySelectorAll("#operations [data-action=done]")[1].click(); window.lost = false;
		the(".decide").addEventListener("focusout", () => (lost = true)); fill("result", "kept");`)
	v.post(t, admin+"/operate?action=done&kind=operation&id="+v.details(t, "operation")[0].ID, `"by another operator"`)
	v.do(t, panel+`await until("the first charge is the last one", () => the("#operations li:last-child").textContent.includes("by another operator"));
		same(document.activeElement.value, "kept"); same(lost, false);
		the(".decide button.quiet").click(); act("done"); same(document.activeElement.name, "result");
		send(); await alerts("Enter the result, as JSON"); fill("result", "r_1"); send(); await alerts("The result is not JSON");
		fill("result", "17"); send(); await alerts("the result does not suit the kind");`)
	v.picture(t, "took effect")
	v.do(t, panel+`fill("result", '"found in the book"'); send();
		await until("a row has the result", () => the("#operations").textContent.includes('"found in the book"'));`)
	charge(first, `"found in the book"`)
	v.do(t, panel+`act("not-done"); if (!the(".decide p").textContent.includes("makes another call")) throw new Error("the form does not have the consequence");`)
	v.picture(t, "no effect")
	v.do(t, panel+`send(); await waits("operations", "failed"); if (the("[data-action]")) throw new Error("an operation is still unknown");`)
	charge(second, `"call 2 of `+second+`"`)
	v.do(t, panel+`await until("all are completed", () => document.querySelectorAll('#operations li[data-state="completed"]').length === 3);`)
	v.do(t, panel+`await until("the page has the rate of false unknowns", () => the("#outcomes").textContent ===
		"charge (AtMostOnce): 3 unknown so far, 3 resolved, 1 without an effect: 33 % false unknowns");`)
	v.picture(t, "resolved")
}

// post sends a request, and returns the body of the response.
func (v *visit) post(t *testing.T, url, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// details returns the items of a kind of the object.
func (v *visit) details(t *testing.T, kind string) []dohost.Resource {
	t.Helper()
	_, object, _ := strings.Cut(v.url, "#")
	res, err := http.Get("http://" + v.server.admin + "/v1/objects/" + object + "/details?kind=" + kind)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var list adminapi.DetailList
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	return list.Details
}

// wantLog compares the audit log, the newest event first: each with its action, actor, reason and lateness.
func (v *visit) wantLog(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, d := range v.details(t, "approval") {
		got = append(got, strings.TrimSpace(strings.Join([]string{d.State, d.Fields["actor"], d.Fields["reason"], d.Fields["late"]}, " ")))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the audit log is %q, want %q", got, want)
	}
}
