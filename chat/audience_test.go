package chat

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// testConn is a connection with a name. Two values with one name are the same connection.
type testConn struct{ name *string }

func connNamed(name string) testConn { return testConn{&name} }

func (c testConn) Is(o testConn) bool { return o.name != nil && *c.name == *o.name }

func namesOf(conns []testConn) string {
	var names []string
	for _, c := range conns {
		names = append(names, *c.name)
	}
	return strings.Join(names, " ")
}

// TestAudienceTransitions applies events to an empty audience with the open connections a, b and c. An event is a method
// and its arguments; "→ x" after it is the wanted result. state is the audience after the last event.
func TestAudienceTransitions(t *testing.T) {
	for name, c := range map[string]struct{ events, state string }{
		"nothing":                         {"", ""},
		"connected":                       {"connected a; connected b", "unprobed a b"},
		"probed":                          {"connected a; connected b; probed a → true; probed a → false; probed c → false", "unprobed b"},
		"a probe of an idle conversation": {"connected a; probed a → true; sent a none → false", ""},
		"a pending frame": {
			"sent a pending → false; sent b pending → false; sent a pending → false", "waiting b a",
		},
		"a resuming frame": {
			"connected a; sent a resuming → true; sent b resuming → true; sent a resuming → true", "unprobed a, resuming b a",
		},
		"a frame of a reply that has failed": {"sent a failed → false", ""},
		"waiting for a continuation":         {"waits a; waits b; waits a", "waiting b a"},
		"the reply begins":                   {"waits a; waits b; waitOver → a b; waitOver →", ""},
		"the reply begins, and is offered": {
			"waits a; waitOver → a; sent a resuming → true", "resuming a",
		},
		"the request has ended, the next one waits": {
			"waits a; waits b; waitOver → a b; sent a pending → false; sent b none → false", "waiting a",
		},
		"resumes": {
			"sent a resuming → true; sent b resuming → true; resumes a → true", "resuming b, resumed a",
		},
		"resumes twice":            {"sent a resuming → true; resumes a → true; resumes a → false", "resumed a"},
		"resumes without an offer": {"connected a; resumes a → false", "unprobed a"},
		"offered again after a replay": {
			"sent a resuming → true; resumes a → true; sent a resuming → true; live → b c; resumes a → true; live → a b c", "resumed a",
		},
		"gone": {
			"connected a; connected b; waits a; waits b; sent a resuming → true; sent b resuming → true; gone a",
			"unprobed b, resuming b, waiting b",
		},
		"gone after a replay": {"sent a resuming → true; resumes a → true; gone a", ""},
		"gone, with a request": {
			"requested r a; gone a; ending r → b c", "requesters r:a",
		},
		"chunks": {"live → a b c; waits a; connected b; live → a b c", "unprobed b, waiting a"},
		"chunks of offered replies": {
			"sent a resuming → true; live → b c; sent c resuming → true; live → b; resumes a → true; live → a b", "resuming c, resumed a",
		},
		"requested":                    {"requested r a; requested s b; requestOver r; requestOver none", "requesters s:b"},
		"the end, without a requester": {"ending r → a b c; ended →", ""},
		"the end, with a requester":    {"requested r b; ending r → a c; ended →; requestOver r", ""},
		"the end, with a requester of another request": {
			"requested s b; ending r → a b c; ended →", "requesters s:b",
		},
		"the end of a continuation": {"requested r b; ending r continues → a b c; ended continues → a b c", "requesters r:b"},
		"the end, with a requester that was offered the reply": {
			"requested r b; sent b resuming → true; ending r → a b c; ended →", "requesters r:b",
		},
		"the end, with a requester that resumed": {
			"requested r b; sent b resuming → true; resumes b → true; ending r → a c; ended → b", "requesters r:b",
		},
		"the end, with others that resumed": {
			"sent a resuming → true; sent c resuming → true; resumes c → true; ending r → a b c; ended → c; ended →", "",
		},
		"the end, with those that wait": {"waits a; connected b; ended →", "unprobed b, waiting a"},
		"queries change nothing": {
			"requested r a; sent b resuming → true; ending r → b c; ending r → b c; live → a c", "resuming b, requesters r:a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var a audience[testConn]
			for event := range strings.SplitSeq(c.events, "; ") {
				event, want, _ := strings.Cut(event, "→")
				if got := applyTo(&a, strings.Fields(event)); got != strings.TrimSpace(want) {
					t.Errorf("%s: %q, want %q", event, got, strings.TrimSpace(want))
				}
			}
			if got := stateOf(&a); got != c.state {
				t.Errorf("the audience has %q, want %q", got, c.state)
			}
		})
	}
}

// applyTo applies an event, and returns its result.
func applyTo(a *audience[testConn], event []string) string {
	open := []testConn{connNamed("a"), connNamed("b"), connNamed("c")}
	if len(event) == 0 {
		return ""
	}
	args := append(event[1:], "", "")
	conn, continues := connNamed(args[0]), slices.Contains(args, "continues")
	switch event[0] {
	case "connected":
		a.connected(conn)
	case "probed":
		return fmt.Sprint(a.probed(conn))
	case "sent":
		return fmt.Sprint(a.sent(conn, map[string]streamFrame{
			"none":     {Type: frameNone, Reason: "idle"},
			"pending":  {Type: framePending, ID: "r"},
			"resuming": {Type: frameResuming, ID: "r"},
			"failed":   {Type: frameResuming, ID: "r", ended: true},
		}[args[1]]))
	case "waits":
		a.waits(conn)
	case "waitOver":
		return namesOf(a.waitOver())
	case "resumes":
		return fmt.Sprint(a.resumes(conn))
	case "gone":
		a.gone(conn)
	case "requested":
		a.requested(args[0], connNamed(args[1]))
	case "requestOver":
		a.requestOver(args[0])
	case "live":
		return namesOf(a.live(open))
	case "ending":
		return namesOf(a.ending(args[0], continues, open))
	case "ended":
		return namesOf(a.ended(continues, open))
	default:
		return "there is no such event"
	}
	return ""
}

// stateOf returns the lists of an audience that are not empty.
func stateOf(a *audience[testConn]) string {
	var lists []string
	add := func(name, content string) {
		if content != "" {
			lists = append(lists, name+" "+content)
		}
	}
	add("unprobed", namesOf(a.unprobed))
	add("resuming", namesOf(a.resuming))
	add("resumed", namesOf(a.resumed))
	add("waiting", namesOf(a.waiting))
	var requests []string
	for id, c := range a.requesters {
		requests = append(requests, id+":"+*c.name)
	}
	slices.Sort(requests)
	add("requesters", strings.Join(requests, " "))
	return strings.Join(lists, ", ")
}
