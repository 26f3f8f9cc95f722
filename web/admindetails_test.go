package web_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
	"github.com/dohost/dohost/web"
)

// resourceObject is an object with eggs, which can be deleted.
type resourceObject struct{}

const resourceObjects dohost.Namespace[resourceObject] = "nest"

func resourceClass(eggs int) dohost.Class {
	return dohost.Bind(resourceObjects, func(context.Context, *dohost.State) (*resourceObject, error) { return &resourceObject{}, nil },
		&dohost.Handlers[resourceObject]{
			OnInspect: func(context.Context, *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
				return func(yield func(dohost.Resource, error) bool) {
					for i := range eggs {
						d := dohost.Resource{Kind: "egg", ID: fmt.Sprint(i), State: "warm", Fields: map[string]string{"hen": "a=b"}, Can: []dohost.Action{dohost.ActionDelete}}
						if eggs > 3 {
							d.Cursor = fmt.Sprint("c", i)
						}
						if !yield(d, nil) {
							return
						}
					}
				}
			},
			OnAdmin: func(_ *resourceObject, _ context.Context, r *dohost.AdminRequest) (bool, error) {
				switch {
				case r.Kind != "egg":
					return false, &dohost.ArgumentError{Method: "operate", Err: errors.New("a nest has eggs")}
				case r.Action == dohost.ActionDone, r.Action == dohost.ActionComplete, r.Action == dohost.ActionFail, r.Action == dohost.ActionPost:
					return string(r.Result) == `{"a":1}`, nil
				case r.Result != nil:
					return false, errors.New("an action without a result has one")
				case r.ID == "broken":
					return false, errors.New("it cannot be")
				}
				return r.ID == "1", nil
			},
		})
}

// The status distinguishes mistakes of an operator from errors of the object.
func TestAdminDetailsAndOperate(t *testing.T) {
	h, err := dohost.Open(t.TempDir(), &dohost.Options{Grace: -1}, resourceClass(3), testClass())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	s := start(t, web.Admin(h, nil))
	for query, want := range map[string]int{
		"": 3, "?kind=egg": 3, "?kind=ham": 0, "?can=delete": 3, "?can=cancel": 0, "?limit=2": 2, "?limit=3": 3,
		"?id=1": 1, "?id=9": 0, "?state=warm": 3, "?state=cold": 0, "?field=hen:a=b": 3, "?field=hen:b": 0, "?field=hen:a=b&field=x:": 0,
	} {
		list := getJSON[adminapi.DetailList](s, "GET", "/v1/objects/nest/a/details"+query, "")
		if len(list.Details) != want || list.Details == nil || list.More != (query == "?limit=2") {
			t.Errorf("%s: %+v", query, list)
		}
	}
	for _, query := range []string{"limit=0", "limit=-1", "limit=10001", "limit=1e3", "can=fly", "field=hen", "after=c1"} {
		s.wantError("GET", "/v1/objects/nest/a/details?"+query, "", http.StatusBadRequest, "bad_argument")
	}
	if h.IsLive(resourceObjects.Get(h, "a").ID()) {
		t.Error("looking has woken it")
	}
	const operate = "/v1/objects/nest/a/operate"
	for query, done := range map[string]bool{"?action=delete&kind=egg&id=1": true, "?action=delete&kind=egg&id=a%2F%00%FF": false} {
		if got := getJSON[adminapi.Operated](s, "POST", operate+query, "{"); got.Done != done { // the body is ignored
			t.Errorf("%s: %+v", query, got)
		}
	}
	for _, action := range []string{"done", "complete", "fail", "post"} {
		for body, done := range map[string]bool{`{"a":1}`: true, "null": false, `"` + strings.Repeat("a", 8<<20) + `"`: false} {
			if got := getJSON[adminapi.Operated](s, "POST", operate+"?action="+action+"&kind=egg&id=1", body); got.Done != done {
				t.Errorf("%s with %.20s: %+v", action, body, got)
			}
		}
		for _, body := range []string{"", "{", `1 2`, `"r_1"}`, `"` + strings.Repeat("a", 8<<20+4<<10) + `"`} {
			s.wantError("POST", operate+"?action="+action+"&kind=egg&id=1", body, http.StatusBadRequest, "bad_argument")
		}
	}
	for _, query := range []string{"", "?action=fly&kind=egg&id=1", "?action=delete&kind=egg", "?action=delete&kind=ham&id=1"} {
		s.wantError("POST", operate+query, `{"action": "delete", "kind": "egg", "id": "1"}`, http.StatusBadRequest, "bad_argument")
	}
	s.wantError("POST", operate+"?action=delete&kind=egg&id=broken", "", http.StatusInternalServerError, "failed")
	s.wantError("POST", "/v1/objects/thing/a/operate?action=delete&kind=egg&id=1", "", http.StatusNotFound, "no_method")
	s.wantError("GET", operate+"?action=delete&kind=egg&id=1", "", http.StatusNotFound, "no_route")
	s.wantError("POST", "/v1/objects/nest/a/details", "", http.StatusNotFound, "no_route")
}

// A list has the cursor of its last item if there are more.
func TestAdminContinuesDetails(t *testing.T) {
	h, err := dohost.Open(t.TempDir(), &dohost.Options{Grace: -1}, resourceClass(4))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	s := start(t, web.Admin(h, nil))
	for query, want := range map[string]string{"?limit=2": "c1", "?limit=4": "", "?limit=2&after=c1": "c1"} { // the class ignores after
		if list := getJSON[adminapi.DetailList](s, "GET", "/v1/objects/nest/a/details"+query, ""); list.Next != want {
			t.Errorf("%s: %+v", query, list)
		}
	}
}
