package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/dohost/dohost"
)

// maxNames is the maximum of names in a message.
const maxNames = 20

// nameList lists the existing names in a message about a missing one.
func nameList(names []string) string {
	switch n := len(names) - maxNames; {
	case len(names) == 0:
		return "none"
	case n > 0:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), n)
	}
	return strings.Join(names, ", ")
}

// boundClass returns a class that the host runs, or that the standby inspects.
func boundClass(h inspected, name string) (dohost.Class, bool) {
	classes := h.Classes()
	i := slices.IndexFunc(classes, func(c dohost.Class) bool { return c.Name() == name })
	if i < 0 {
		return dohost.Class{}, false
	}
	return classes[i], true
}

func classNames(h inspected) []string {
	var names []string
	for _, c := range h.Classes() {
		names = append(names, c.Name())
	}
	return names
}

// noClass is the error for a class that is neither bound nor stored.
func noClass(what string) error {
	return &dohost.PublicError{Message: "dohost: no such class: " + what, Code: "no_class", Status: http.StatusNotFound}
}

// known returns an error for a class that is neither bound nor has objects on the disk: operators may inspect the
// objects of a class that is no longer bound.
func (a *admin) known(ctx context.Context, class string) error {
	if _, ok := boundClass(a.reads, class); ok {
		return nil
	}
	stored, err := a.reads.StoredClasses(ctx)
	if slices.Contains(stored, class) {
		return nil
	}
	if err != nil {
		return err
	}
	all := append(classNames(a.reads), stored...)
	slices.Sort(all)
	return noClass(fmt.Sprintf("%q; the classes are: %s", class, nameList(slices.Compact(all))))
}
