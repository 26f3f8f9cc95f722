package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
)

// details answers GET /v1/objects/class/name/details: the items that the query selects. It wakes no object.
func (a *admin) details(_ http.ResponseWriter, r *http.Request, id dohost.ID) (any, error) {
	limit, values := defaultPage, r.URL.Query()
	q := dohost.DetailQuery{
		Kind: values.Get("kind"), ID: values.Get("id"), State: values.Get("state"), Can: dohost.Action(values.Get("can")),
		Fields: map[string]string{}, After: values.Get("after"),
	}
	for _, field := range values["field"] {
		name, value, ok := strings.Cut(field, ":")
		if !ok {
			return nil, &dohost.ArgumentError{Method: "details", Err: fmt.Errorf("field %q: want name:value", field)}
		}
		q.Fields[name] = value
	}
	if s := values.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > maxPage {
			return nil, &dohost.ArgumentError{Method: "details", Err: fmt.Errorf("limit %q: want 1 to %d", s, maxPage)}
		}
		limit = n
	}
	last, list := "", adminapi.DetailList{Details: []dohost.Resource{}}
	if err := isAction(q.Can); q.Can != "" && err != nil {
		return nil, &dohost.ArgumentError{Method: "details", Err: err}
	}
	for d, err := range a.reads.FindDetails(r.Context(), id, &q) {
		switch {
		case err != nil:
			return nil, err
		case len(list.Details) == limit:
			list.More, list.Next = true, last
			return list, nil
		default:
			last = d.Cursor
			list.Details = append(list.Details, d)
		}
	}
	return list, nil
}

// isAction returns an error for an unknown action.
func isAction(a dohost.Action) error {
	if all := dohost.Actions(); !slices.Contains(all, a) {
		return fmt.Errorf("action %q: want one of %q", a, all)
	}
	return nil
}

// withResult are the actions whose requests have a result.
var withResult = []dohost.Action{dohost.ActionDone, dohost.ActionComplete, dohost.ActionFail, dohost.ActionPost}

// maxResult is the maximum size of a result in a request: that of a result of package ledger, and some space.
const maxResult = 8<<20 + 4<<10

// operate answers POST /v1/objects/class/name/operate?action=cancel&kind=fiber&id=x, which wakes the object. The query may have
// a digest, an actor and a reason. The bodies of the actions done, complete, fail and post are the result, as JSON. Bodies of
// other actions are ignored.
func (a *admin) operate(w http.ResponseWriter, r *http.Request, id dohost.ID) (any, error) {
	q := r.URL.Query()
	action := dohost.Action(q.Get("action"))
	if err := isAction(action); err != nil {
		return nil, &dohost.ArgumentError{Method: "operate", Err: err}
	}
	req := &dohost.AdminRequest{
		Action: action, Kind: q.Get("kind"), ID: q.Get("id"), Digest: q.Get("digest"), Actor: q.Get("actor"), Reason: q.Get("reason"),
	}
	if req.ID == "" {
		return nil, &dohost.ArgumentError{Method: "operate", Err: errors.New("want an id")}
	}
	if slices.Contains(withResult, action) {
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxResult))
		err := dec.Decode(&req.Result)
		if _, more := dec.Token(); err == nil && more != io.EOF {
			err = errors.New("the body has more than one value")
		}
		if err != nil {
			return nil, &dohost.ArgumentError{Method: "operate", Err: fmt.Errorf("want a result as JSON in the body: %w", err)}
		}
	}
	done, err := a.host.Operate(r.Context(), id, req)
	if bad, ok := errors.AsType[*dohost.ArgumentError](err); ok { // reported by the object, caused by the operator
		bad := &dohost.PublicError{Message: bad.Error(), Code: "bad_argument", Status: http.StatusBadRequest}
		err = &dohost.Error{Op: "operate", ID: id, Err: bad, Outcome: dohost.OutcomeRan}
	}
	return adminapi.Operated{Done: done}, err
}
