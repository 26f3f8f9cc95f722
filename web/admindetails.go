package web

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/dohost/dohost"
)

// DetailList is what an object has, as far as was asked for.
type DetailList struct {
	Details []dohost.Detail `json:"details"`
	More    bool            `json:"more,omitempty"`
}

// Operated says whether there was what was to be operated upon.
type Operated struct {
	Done bool `json:"done"`
}

// details answers GET /v1/objects/class/name/details: of a kind, or those with which something can
// be done, if that is asked for. It wakes nobody.
func (a *admin) details(_ http.ResponseWriter, r *http.Request, id dohost.ID) (any, error) {
	limit, kind, can := defaultPage, r.URL.Query().Get("kind"), r.URL.Query().Get("can")
	if s := r.URL.Query().Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > maxPage {
			return nil, &dohost.ArgumentError{Method: "details", Err: fmt.Errorf("limit %q: want 1 to %d", s, maxPage)}
		}
		limit = n
	}
	list := DetailList{Details: []dohost.Detail{}}
	for d, err := range a.host.Details(r.Context(), id) {
		switch {
		case err != nil:
			return nil, err
		case kind != "" && d.Kind != kind, can != "" && !slices.Contains(d.Can, dohost.Action(can)):
		case len(list.Details) == limit:
			list.More = true
			return list, nil
		default:
			list.Details = append(list.Details, d)
		}
	}
	return list, nil
}

// operate answers POST /v1/objects/class/name/operate, which wakes the object.
func (a *admin) operate(_ http.ResponseWriter, r *http.Request, id dohost.ID) (any, error) {
	q := r.URL.Query()
	action := dohost.Action(q.Get("action"))
	if known := []dohost.Action{dohost.Cancel, dohost.Rerun, dohost.Clear}; !slices.Contains(known, action) {
		return nil, &dohost.ArgumentError{Method: "operate", Err: fmt.Errorf("action %q: want one of %q", action, known)}
	}
	done, err := a.host.Operate(r.Context(), id, action, q.Get("kind"), q.Get("id"))
	return Operated{done}, err
}
