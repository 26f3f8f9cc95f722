package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
)

// restore answers POST of an object's restore. It returns when the object has the state of the moment.
func (a *admin) restore(w http.ResponseWriter, r *http.Request, id dohost.ID) (any, error) {
	var req adminapi.RestoreRequest
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCommand)).Decode(&req)
	to := dohost.RestorePoint{Bookmark: dohost.Bookmark(req.Bookmark), Record: req.Record}
	if req.Time != nil {
		to.Time = *req.Time
	}
	switch {
	case err != nil:
	case to == dohost.RestorePoint{}:
		err = errors.New("the moment is missing")
	case to.Bookmark != "":
		_, _, err = to.Bookmark.Parse()
	}
	if err != nil {
		return nil, &dohost.ArgumentError{Method: "restore", Err: fmt.Errorf(`want {"record": number}, {"time": an RFC 3339 time} or {"bookmark": text}: %w`, err)}
	}
	undo, err := a.host.RestoreObject(r.Context(), id, to)
	if err != nil {
		return nil, err
	}
	return adminapi.ObjectRestored{Undo: string(undo)}, nil
}
