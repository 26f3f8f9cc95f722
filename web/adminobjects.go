package web

import (
	"context"
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

// skipped adds the damaged blocks of err to the blocks that a list leaves out. It returns false if
// err has another cause.
func skipped(blocks *[]string, err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			if !skipped(blocks, err) {
				return false
			}
		}
		return true
	}
	e, ok := errors.AsType[*dohost.DamageError](err)
	if !ok || e == nil {
		return false
	}
	if name := e.Damage.File + ": " + e.Damage.Detail; !slices.Contains(*blocks, name) {
		*blocks = append(*blocks, name)
	}
	return true
}

const (
	defaultPage = 1000
	maxPage     = 10_000
	maxCommand  = 64 << 10 // bytes of a JSON body here
)

func objectOf(info dohost.Info) adminapi.Object {
	o := adminapi.Object{
		ID: info.ID.String(), Durable: info.Durable, Attempt: info.Attempt, Err: info.Err, Live: info.Live, Sockets: info.Sockets,
		Age: info.Age.Seconds(), Idle: info.Idle.Seconds(), Events: info.Events, Queued: info.Queued, Pins: pinsOf(info.Pins),
	}
	if info.Live {
		o.Epoch = info.Epoch
	}
	if !info.Alarm.IsZero() {
		o.Alarm = &info.Alarm
	}
	if info.Parked != nil {
		p := parkedOf(*info.Parked)
		o.Parked = &p
	}
	return o
}

func pinsOf(pins []dohost.Pin) []adminapi.Pin {
	var out []adminapi.Pin
	for _, p := range pins {
		out = append(out, adminapi.Pin{Reason: p.Reason, For: p.For.Seconds()})
	}
	return out
}

// listQuery selects a part of a list.
type listQuery struct {
	class string // empty: all
	after dohost.ID
	limit int
}

// listQuery reads the query of a request for a list. If it fails it answers the request.
func (a *admin) listQuery(w http.ResponseWriter, r *http.Request, op string) (l listQuery, ok bool) {
	q := r.URL.Query()
	l = listQuery{class: q.Get("class"), limit: defaultPage}
	if s := q.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > maxPage {
			refuse(w, http.StatusBadRequest, "bad_limit", fmt.Sprintf("limit %q: want 1 to %d", s, maxPage))
			return l, false
		}
		l.limit = n
	}
	if l.class != "" {
		if err := a.known(r.Context(), l.class); err != nil {
			b, status := dohost.DescribeError(err)
			refuse(w, status, b.Code, b.Message)
			return l, false
		}
	}
	if s := q.Get("after"); s != "" {
		var err error
		if l.after, err = dohost.ParseID(s); err != nil {
			a.fail(w, l.after, op, err)
			return l, false
		}
	}
	return l, true
}

// list answers GET /v1/objects.
func (a *admin) list(w http.ResponseWriter, r *http.Request) {
	q, ok := a.listQuery(w, r, "ls")
	if !ok {
		return
	}
	if r.URL.Query().Get("live") == "true" {
		a.listLive(w, q.class)
		return
	}
	page, err := a.page(r.Context(), q.class, q.after, q.limit)
	if err != nil {
		a.fail(w, dohost.ID{Class: q.class}, "ls", err)
		return
	}
	writeJSON(w, http.StatusOK, page)
}

// page reads up to limit durable objects of a class, or of all, that follow one.
func (a *admin) page(ctx context.Context, class string, after dohost.ID, limit int) (adminapi.ObjectList, error) {
	list := adminapi.ObjectList{Objects: []adminapi.Object{}}
	classes := []string{class}
	if class == "" {
		var err error
		if classes, err = a.reads.StoredClasses(ctx); err != nil && !skipped(&list.Damaged, err) {
			return adminapi.ObjectList{}, err
		}
	}
	for _, c := range classes {
		if c < after.Class {
			continue
		}
		name := ""
		if c == after.Class {
			name = after.Name
		}
		for id, err := range a.reads.Objects(ctx, c, name) {
			switch {
			case err == nil:
			case skipped(&list.Damaged, err):
				continue
			default:
				return adminapi.ObjectList{}, err
			}
			if len(list.Objects) == limit {
				list.Next = list.Objects[limit-1].ID
				return list, nil
			}
			list.Objects = append(list.Objects, adminapi.Object{ID: id.String(), Durable: true, Live: a.reads.IsLive(id)})
		}
	}
	return list, nil
}

func (a *admin) listLive(w http.ResponseWriter, class string) {
	list := adminapi.ObjectList{Objects: []adminapi.Object{}}
	for info := range a.host.Live() {
		if class == "" || info.ID.Class == class {
			list.Objects = append(list.Objects, objectOf(info))
		}
	}
	slices.SortFunc(list.Objects, func(x, y adminapi.Object) int { return strings.Compare(x.ID, y.ID) })
	writeJSON(w, http.StatusOK, list)
}

// object answers requests under /v1/objects/.
func (a *admin) object(w http.ResponseWriter, r *http.Request) {
	segments, ok := splitPath(r.URL, "/v1/objects/", 2)
	_, verb, _ := cutSegments(r.URL.EscapedPath(), "/v1/objects/", 2)
	handle := a.read(r.Method + " " + verb)
	if handle == nil && a.host != nil {
		handle = a.verb(r.Method + " " + verb)
	}
	if !ok || handle == nil {
		a.noRoute(w, r)
		return
	}
	id := dohost.ID{Class: segments[0], Name: segments[1]}
	op := verb
	if op == "" {
		op = "show"
	}
	err := id.Validate()
	if err == nil {
		err = a.known(r.Context(), id.Class)
	}
	if err != nil {
		a.fail(w, id, op, err)
		return
	}
	answer, err := handle(w, r, id)
	switch {
	case err != nil:
		a.fail(w, id, op, err)
	case answer != nil:
		writeJSON(w, http.StatusOK, answer)
	}
}

// read returns the function that reads the durable state of one object. The function itself sends an answer that is not JSON.
func (a *admin) read(name string) func(http.ResponseWriter, *http.Request, dohost.ID) (any, error) {
	switch name {
	case "GET ":
		return func(_ http.ResponseWriter, r *http.Request, id dohost.ID) (any, error) {
			info, err := a.reads.Inspect(r.Context(), id)
			return objectOf(info), err
		}
	case "GET details":
		return a.details
	case "GET alarm":
		return func(_ http.ResponseWriter, r *http.Request, id dohost.ID) (any, error) { return a.alarm(r, id) }
	case "GET export":
		return a.export
	}
	return nil
}

// verb is read for the functions that need a running host.
func (a *admin) verb(name string) func(http.ResponseWriter, *http.Request, dohost.ID) (any, error) {
	switch name {
	case "GET pins":
		return func(_ http.ResponseWriter, _ *http.Request, id dohost.ID) (any, error) {
			return adminapi.Object{ID: id.String(), Pins: pinsOf(a.host.Pins(id))}, nil
		}
	case "GET sockets":
		return func(_ http.ResponseWriter, _ *http.Request, id dohost.ID) (any, error) { return a.sockets(id), nil }
	case "DELETE sockets":
		return a.closeSockets
	case "POST operate":
		return a.operate
	case "POST evict":
		return a.evict
	case "PUT alarm":
		return a.setAlarm
	case "DELETE alarm":
		return func(_ http.ResponseWriter, r *http.Request, id dohost.ID) (any, error) {
			return adminapi.Alarm{}, a.host.DeleteAlarm(r.Context(), id)
		}
	case "POST alarm/revive":
		return a.revive
	case "POST restore":
		return a.restore
	case "POST import":
		return func(_ http.ResponseWriter, r *http.Request, id dohost.ID) (any, error) {
			if err := a.host.Import(r.Context(), id, r.Body); err != nil {
				return nil, err
			}
			info, err := a.reads.Inspect(r.Context(), id)
			return objectOf(info), err
		}
	}
	return nil
}

func (a *admin) evict(_ http.ResponseWriter, r *http.Request, id dohost.ID) (any, error) {
	mode := dohost.EndFence
	if name := r.URL.Query().Get("mode"); name != "" {
		var err error
		if mode, err = dohost.ParseEndMode(name); err != nil {
			return nil, &dohost.ArgumentError{Method: "evict", Err: err}
		}
	}
	return adminapi.Evicted{Evicted: a.host.Evict(id, mode)}, nil
}

func (a *admin) alarm(r *http.Request, id dohost.ID) (adminapi.Alarm, error) {
	info, err := a.reads.Inspect(r.Context(), id)
	if err != nil || info.Alarm.IsZero() {
		return adminapi.Alarm{}, err
	}
	return adminapi.Alarm{At: &info.Alarm}, nil
}

func (a *admin) setAlarm(w http.ResponseWriter, r *http.Request, id dohost.ID) (any, error) {
	var req adminapi.Alarm
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCommand)).Decode(&req); err != nil || req.At == nil {
		return nil, &dohost.ArgumentError{Method: "alarm", Err: fmt.Errorf(`want {"at": an RFC 3339 time}: %w`, orMissing(err))}
	}
	if err := a.host.SetAlarm(r.Context(), id, *req.At); err != nil {
		return nil, err
	}
	return a.alarm(r, id)
}

func orMissing(err error) error {
	if err == nil {
		return errors.New("the time is missing")
	}
	return err
}

// export streams. A missing object is an error before the first byte; a later failure cuts the connection, and an
// export has a checksum at its end.
func (a *admin) export(w http.ResponseWriter, r *http.Request, id dohost.ID) (any, error) {
	w.Header().Set("Content-Type", "application/octet-stream")
	begun := &startedWriter{w: w}
	if err := a.reads.Export(r.Context(), id, begun); err != nil {
		if begun.begun {
			panic(http.ErrAbortHandler)
		}
		return nil, err
	}
	return nil, nil
}

type startedWriter struct {
	w     io.Writer
	begun bool
}

// Write writes.
func (b *startedWriter) Write(p []byte) (int, error) {
	b.begun = true
	return b.w.Write(p)
}
