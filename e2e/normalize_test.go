//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// render formats JSON for readers: without the escapes for HTML.
func render(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err.Error()
	}
	return b.String()
}

var (
	uuid    = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	self    = regexp.MustCompile(`[?&]_pk=[^&]*`)
	address = regexp.MustCompile(`(127\.0\.0\.1|localhost):\d+`)
)

// normal makes the text the same each time. A client's exchanges after a reconnect follow its earlier ones, and uuids
// are numbered in the order of their occurrence.
func normal(wire []exchange) []exchange {
	first := map[string]int{} // exchange of each client
	for i, x := range wire {
		if _, ok := first[client(x)]; !ok {
			first[client(x)] = i
		}
	}
	wire = slices.Clone(wire)
	slices.SortStableFunc(wire, func(a, b exchange) int { return first[client(a)] - first[client(b)] })
	known := map[string]string{}
	text := func(s string) string {
		s = uuid.ReplaceAllStringFunc(s, func(id string) string {
			if known[id] == "" {
				known[id] = fmt.Sprintf("uuid-%d", len(known)+1)
			}
			return known[id]
		})
		return address.ReplaceAllString(s, "$1")
	}
	var out []exchange
	for _, x := range wire {
		x.Request, x.Body, x.Answer = text(x.Request), text(x.Body), text(x.Answer)
		x.Up, x.Down = slices.Clone(x.Up), slices.Clone(x.Down)
		for _, frames := range [][]string{x.Up, x.Down} {
			for i, f := range frames {
				frames[i] = text(f)
			}
		}
		out = append(out, x)
	}
	return out
}

// client is the client of an exchange: its name, or the request.
func client(x exchange) string {
	if id := self.FindString(x.Request); id != "" {
		return id
	}
	return x.Request
}

// merge merges the clients with the same exchanges in a case. Cases keep their order.
func merge(each []recording) (all []recording) {
	slices.SortStableFunc(each, func(a, b recording) int { return strings.Compare(a.Clients[0], b.Clients[0]) })
	for _, r := range each {
		i := slices.IndexFunc(all, func(o recording) bool {
			return o.Case == r.Case && render(o.Wire) == render(r.Wire)
		})
		if i >= 0 {
			all[i].Clients = append(all[i].Clients, r.Clients...)
		} else {
			all = append(all, recording{r.Case, slices.Clone(r.Clients), r.Wire})
		}
	}
	slices.SortStableFunc(all, func(a, b recording) int { return strings.Compare(a.Case, b.Case) })
	return all
}
