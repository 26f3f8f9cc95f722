package dohosttest

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// text formats a failure for a person. It writes the picture to the folder dir.
func (v *linearizableResult) text(test, dir string) string {
	if v.bad == nil {
		return v.err.Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %v\n", v.bad.sub.seed, v.err)
	switch {
	case errors.Is(v.err, errNoOrder):
		b.WriteString(v.bad.table())
		b.WriteString(v.bad.explain(dir))
	case v.bad.err != nil:
		fmt.Fprintf(&b, "log:\n%s", v.bad.run.log.about(false))
	}
	if v.note != "" {
		fmt.Fprintf(&b, "%s\n", v.note)
	}
	fmt.Fprintf(&b, "replay: go test -run '%s' . -dohosttest.replay='%v'", pattern(test), v.bad.sub)
	return b.String()
}

// explain prints how far the model can follow the history, and draws it.
func (h *history) explain(dir string) string {
	m, ops := h.x.model(), h.operations()
	_, info := porcupine.CheckOperationsVerbose(m, ops, h.x.checkTimeout)
	var b strings.Builder
	for i, part := range h.x.partition(ops) {
		longest := longestOf(info.PartialLinearizationsOperations()[i])
		if len(longest) < len(part) {
			b.WriteString(h.follow(part, longest))
			break
		}
	}
	var endings []porcupine.Annotation
	for i, e := range h.events {
		if e.call == nil {
			endings = append(endings, porcupine.Annotation{Tag: "endings", Start: int64(i), End: int64(i), Description: h.describe(e)})
		}
	}
	info.AddAnnotations(endings)
	path := filepath.Join(dir, "history.html")
	if err := porcupine.VisualizePath(m, info, path); err != nil {
		fmt.Fprintf(&b, "no picture: %v\n", err)
		return b.String()
	}
	fmt.Fprintf(&b, "picture: %s%s\n", path, removalNote())
	return b.String()
}

// removalNote returns a note if go test removes the picture.
func removalNote() string {
	if f := flag.Lookup("test.artifacts"); f != nil && f.Value.String() == "true" {
		return ""
	}
	return " (go test removes it, unless -artifacts is set)"
}

func longestOf(orders [][]porcupine.Operation) []porcupine.Operation {
	return slices.MaxFunc(append(orders, nil), func(a, b []porcupine.Operation) int {
		less := slices.CompareFunc(b, a, func(x, y porcupine.Operation) int { return cmp.Compare(x.Metadata.(int), y.Metadata.(int)) })
		return cmp.Or(cmp.Compare(len(a), len(b)), less)
	})
}

// follow prints the longest order that the model accepts, and the reason why none of the
// remaining calls can be next.
func (h *history) follow(all, longest []porcupine.Operation) string {
	var b strings.Builder
	s := h.x.init()
	order := []string{"nothing"}
	for i, o := range longest {
		next, want := h.x.step(s, o.Input)
		order = append(order[:i], fmt.Sprintf("%v = %v", o.Input, want))
		s = next
	}
	fmt.Fprintf(&b, "the model can follow %s; then, in the state %v:\n", strings.Join(order, ", "), s)
	left := slices.DeleteFunc(slices.Clone(all), func(o porcupine.Operation) bool {
		return slices.ContainsFunc(longest, func(l porcupine.Operation) bool { return l.Metadata == o.Metadata })
	})
	for _, o := range left {
		later := slices.ContainsFunc(left, func(l porcupine.Operation) bool { return l.Return < o.Call })
		if _, want := h.x.step(s, o.Input); !later {
			fmt.Fprintf(&b, "  client %d got %v from %v, the model returns %v\n", o.ClientId, o.Output, o.Input, want)
		}
	}
	return b.String()
}
