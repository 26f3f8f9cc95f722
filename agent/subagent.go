package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// sub is a class of sub-agents.
type sub struct {
	class   string // its stored name
	destroy func(ctx context.Context, l dohost.Locator, object string) error
}

// subRow is a sub-agent in its parent's storage.
type subRow struct {
	Class, Name string
	Created     int64
}

func (r subRow) info() SubInfo { return SubInfo{r.Class, r.Name, time.UnixMilli(r.Created)} }

var subRows = dohost.Collection[subRow]{
	Name: "dohost.subs",
	Key:  func(r subRow) string { return subKey(r.Class, r.Name) },
}

func subKey(class, name string) string { return string(dohost.KeyOf(class) + dohost.KeyOf(name)) }

// Sub gives agents of type O sub-agents of another class of agents: agents with their own storage and alarm
// that belong to the agent and that clients reach through it. Clients reach them at /sub/{class}/{name} below the
// agent's own path.
func Sub[O, C any, P interface {
	*C
	Ref
}](ns dohost.Namespace[C]) Entry[O] {
	return Entry[O]{bind: func(c *class) {
		k := dohost.URLName(string(ns))
		if ns == "" {
			c.mistake("Sub without a name")
		}
		if k == "sub" {
			c.mistake("Sub of %q: the name is reserved", ns)
		}
		if _, taken := c.subs[k]; taken {
			c.mistake("a second Sub of %q", ns)
		}
		c.subs[k] = sub{string(ns), func(ctx context.Context, l dohost.Locator, object string) error {
			err := ns.Get(l, object).Do(ctx, func(ctx context.Context, o *C) error { return P(o).base().destroy(ctx) })
			if errors.Is(err, ErrDestroyed) {
				return nil
			}
			return err
		}}
	}}
}

// subPrefix begins the object names of sub-agents. The path follows: class and name of each agent from the root
// on, without the last one's class.
const subPrefix = "sub/"

// pathOf returns the path of an object's agent.
func pathOf(own dohost.ID) []dohost.ID {
	if !strings.HasPrefix(own.Name, subPrefix) {
		return []dohost.ID{own}
	}
	parts := strings.Split(own.Name[len(subPrefix):], "/")
	var path []dohost.ID
	for i := 0; i < len(parts); i += 2 {
		if i == len(parts)-1 { // the last one's class is the object's
			parts = append(parts[:i:i], url.PathEscape(own.Class), parts[i])
		}
		class, err := url.PathUnescape(parts[i])
		name, err2 := url.PathUnescape(parts[i+1])
		if err != nil || err2 != nil {
			return []dohost.ID{own} // a caller has chosen such a name
		}
		path = append(path, dohost.ID{Class: class, Name: name})
	}
	if len(path) < 2 {
		return []dohost.ID{own}
	}
	return path
}

// RootOf returns the root agent of a sub-agent, through which clients reach it. For any other object it returns the object itself.
func RootOf(object dohost.ID) dohost.ID { return pathOf(object)[0] }

// objectOf returns the object name of the agent at the end of a path.
func objectOf(path []dohost.ID) string {
	if len(path) == 1 {
		return path[0].Name
	}
	var b strings.Builder
	b.WriteString(subPrefix)
	for i, id := range path {
		if i < len(path)-1 {
			b.WriteString(url.PathEscape(id.Class) + "/")
		}
		b.WriteString(url.PathEscape(id.Name))
		if i < len(path)-1 {
			b.WriteString("/")
		}
	}
	return b.String()
}

// Path returns the agents from the root to this one, each by its class and its name within its parent. Any
// goroutine.
func (a *promoted) Path() []dohost.ID { return a.core.path() }

// Parent returns a stub for this agent's parent; ok is false if it has no parent of that class.
func Parent[O any](a Ref, ns dohost.Namespace[O]) (parent dohost.Stub[O], ok bool) {
	c := a.base()
	path := c.path()
	if len(path) < 2 || path[len(path)-2].Class != string(ns) {
		return parent, false
	}
	return ns.Get(c.obj, objectOf(path[:len(path)-1])), true
}

// SubAgent returns a stub for a sub-agent, and adds it to [SubAgents.List]. After a [SubAgents.Delete] call
// SubAgent again: the old stub would create a sub-agent that its parent does not list.
//
// Errors: [dohost.ErrNotFound] for a class without a [Sub] entry, a [*dohost.NameError] or a [*dohost.LimitError] for
// the name, [ErrDestroyed] while the agent is being destroyed.
func SubAgent[O any](ctx context.Context, a Ref, ns dohost.Namespace[O], name string) (stub dohost.Stub[O], err error) {
	c := a.base()
	object, err := c.addSubAgent(ctx, string(ns), name)
	if err != nil {
		return stub, err
	}
	return ns.Get(c.obj, object), nil
}

// subAgentObject returns the object name of a sub-agent.
func (c *core) subAgentObject(class, name string) (object string, err error) {
	if s, ok := c.class.subs[dohost.URLName(class)]; !ok || s.class != class {
		return "", fmt.Errorf("agent: no such class of sub-agents: class %q has no Sub entry for %q: %w", c.obj.ID().Class, class, dohost.ErrNotFound)
	}
	id := subAgentID(c.obj.ID(), class, name)
	return id.Name, validateSubAgent(class, name, id)
}

// validateSubAgent validates the name of a sub-agent and the id of its object, which contains the escaped name.
func validateSubAgent(class, name string, object dohost.ID) error {
	if err := (dohost.ID{Class: class, Name: name}).Validate(); err != nil {
		return err
	}
	return object.Validate()
}

// subAgentID returns the object of a sub-agent of own. Without a name the result is not a valid ID.
func subAgentID(own dohost.ID, class, name string) dohost.ID {
	if name == "" {
		return dohost.ID{Class: class}
	}
	return dohost.ID{Class: class, Name: objectOf(append(pathOf(own), dohost.ID{Class: class, Name: name}))}
}

// addSubAgent records a sub-agent.
func (c *core) addSubAgent(ctx context.Context, class, name string) (object string, err error) {
	if object, err = c.subAgentObject(class, name); err != nil {
		return "", err
	}
	if c.rows.plan.destroying {
		return "", ErrDestroyed
	}
	for _, d := range c.deletions {
		d.requested = d.requested || d.key == subKey(class, name)
	}
	err = subRows.Insert(ctx, c.store(), subRow{class, name, time.Now().UnixMilli()})
	if err != nil && !errors.Is(err, dohost.ErrConflict) {
		return "", err
	}
	return object, nil
}

// SubInfo describes a sub-agent.
type SubInfo struct {
	Class   string    `json:"class"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
}

// List returns the agent's sub-agents, of one class or, if class is empty, of all, ordered by class
// and name.
func (s SubAgents) List(ctx context.Context, class string) ([]SubInfo, error) {
	q := &dohost.Query[subRow]{}
	if class != "" {
		q.Prefix = dohost.KeyOf(class)
	}
	rows, err := subRows.List(ctx, s.c.store(), q)
	infos := make([]SubInfo, len(rows))
	for i, r := range rows {
		infos[i] = r.Value.info()
	}
	return infos, err
}

// Get returns the description of a sub-agent. ok is false if the agent has no such sub-agent. Get does not wake the
// sub-agent.
func (s SubAgents) Get(ctx context.Context, class, name string) (info SubInfo, ok bool, err error) {
	row, ok, err := subRows.Get(ctx, s.c.store(), subKey(class, name))
	if err != nil || !ok {
		return info, false, err
	}
	return row.Value.info(), true, nil
}

// deletion is a call of SubAgents.Delete in progress.
type deletion struct {
	key       string
	requested bool // a caller has asked for the sub-agent since
}

// Delete destroys a sub-agent with its own sub-agents, and reports whether there was one. If [SubAgent]
// or a request asks for the sub-agent during the deletion, it is listed afterwards, as a new agent.
//
// Errors: [dohost.ErrNotFound] for a class without a [Sub] entry, and the errors of a call.
func (s SubAgents) Delete(ctx context.Context, class, name string) (existed bool, err error) {
	c := s.c
	object, err := c.subAgentObject(class, name)
	if err != nil {
		return false, err
	}
	if _, existed, err = s.Get(ctx, class, name); err != nil || !existed {
		return false, err
	}
	d := &deletion{key: subKey(class, name)}
	c.deletions = append(c.deletions, d)
	err = c.class.subs[dohost.URLName(class)].destroy(ctx, c.obj, object) // other events may get the turn
	c.deletions = slices.DeleteFunc(c.deletions, func(o *deletion) bool { return o == d })
	if err != nil || d.requested {
		return true, err
	}
	_, err = subRows.Delete(ctx, c.store(), d.key)
	return true, err
}

// SubRequest is a request for a sub-agent.
type SubRequest struct{ Class, Name string }

// subRoute is a request for a sub-agent.
type subRoute struct {
	SubRequest
	object dohost.ID
	at     *url.URL // as the sub-agent sees it
	status int      // of the answer to one that cannot be served; zero otherwise
}

// route finds the sub-agent of the agent own that a request for u addresses. It uses the first path segment
// "sub" that a known class follows. Unlike the name of a root, the name of a sub-agent is decoded.
func (c *class) route(own dohost.ID, u *url.URL) (to subRoute, ok bool) {
	segments := strings.FieldsFunc(u.EscapedPath(), func(c rune) bool { return c == '/' })
	for i := 0; i+2 < len(segments); i++ {
		s, known := c.subs[segments[i+1]]
		if segments[i] != "sub" || !known {
			continue
		}
		rest := "/" + strings.Join(segments[i+3:], "/")
		name, err := url.PathUnescape(segments[i+2])
		path, err2 := url.PathUnescape(rest)
		at := *u
		at.Path, at.RawPath = path, rest
		to = subRoute{SubRequest: SubRequest{s.class, name}, at: &at}
		to.object, err = subAgentID(own, s.class, name), errors.Join(err, err2)
		switch {
		case strings.Contains(name, "\x00"):
			to.status = http.StatusBadRequest
		case err != nil || validateSubAgent(s.class, name, to.object) != nil:
			to.status = http.StatusNotFound
		}
		return to, true
	}
	return to, false
}

// subObjects describes the sub-agents to the host.
func (c *class) subObjects() dohost.SubObjects {
	so := dohost.SubObjects{Path: pathOf, Next: func(own dohost.ID, u *url.URL) (dohost.ID, *url.URL, bool) {
		to, ok := c.route(own, u)
		return to.object, to.at, ok && to.status == 0
	}}
	for _, s := range c.subs {
		so.Classes = append(so.Classes, s.class)
	}
	slices.Sort(so.Classes)
	return so
}

// forwardSub forwards a request for a sub-agent, and reports whether it was for one.
func (c *core) forwardSub(w http.ResponseWriter, r *http.Request) bool {
	to, ok := c.class.route(c.obj.ID(), r.URL)
	if ok && to.status != 0 {
		http.Error(w, http.StatusText(to.status), to.status)
	} else if ok {
		c.forward(w, r, to)
	}
	return ok
}

func (c *core) forward(w http.ResponseWriter, r *http.Request, to subRoute) {
	r.URL.Path, r.URL.RawPath = to.at.Path, to.at.RawPath
	if c.class.beforeSub != nil && !c.class.beforeSub(c.self, w, r, to.SubRequest) {
		return
	}
	err := c.addSubAgentFor(r.Context(), to.SubRequest)
	if err == nil {
		err = c.obj.Delegate(w, r, to.object)
	}
	switch {
	case errors.Is(err, errReadonly):
		c.obj.WriteError(w, &dohost.Error{Op: "http", ID: c.obj.ID(), Err: err, Outcome: dohost.OutcomeNotRun})
	case err != nil:
		http.Error(w, c.errorText("http", err), http.StatusInternalServerError)
	}
}

// addSubAgentFor records the sub-agent of a request, unless it exists. A client with read-only rights cannot create
// one.
func (c *core) addSubAgentFor(ctx context.Context, s SubRequest) error {
	readonly := CheckWrite(ctx)
	if readonly == nil {
		_, err := c.addSubAgent(ctx, s.Class, s.Name)
		return err
	}
	if c.rows.plan.destroying {
		return ErrDestroyed
	}
	_, exists, err := subRows.Get(ctx, c.store(), subKey(s.Class, s.Name))
	if err == nil && !exists {
		err = readonly
	}
	return err
}
