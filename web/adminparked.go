package web

import (
	"net/http"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
)

func parkedOf(p dohost.ParkedAlarm) adminapi.Parked {
	return adminapi.Parked{
		Object: p.ID.String(), Scheduled: p.Scheduled, Reason: p.Reason.String(),
		Attempts: p.Attempts, Deaths: p.Deaths, Lost: p.Lost, Err: p.Err,
	}
}

// listParked answers GET /v1/parked.
func (a *admin) listParked(w http.ResponseWriter, r *http.Request) {
	q, ok := a.listQuery(w, r, "alarm parked")
	if !ok {
		return
	}
	list := adminapi.ParkedList{Parked: []adminapi.Parked{}}
	for p, err := range a.host.ParkedAlarms(r.Context(), q.class, q.after) {
		switch {
		case err == nil:
		case skipped(&list.Damaged, err):
			continue
		default:
			a.fail(w, dohost.ID{Class: q.class}, "alarm parked", err)
			return
		}
		if len(list.Parked) == q.limit {
			list.Next = list.Parked[q.limit-1].Object
			break
		}
		list.Parked = append(list.Parked, parkedOf(p))
	}
	writeJSON(w, http.StatusOK, list)
}

// revive answers POST .../alarm/revive.
func (a *admin) revive(_ http.ResponseWriter, r *http.Request, id dohost.ID) (any, error) {
	revived, err := a.host.ReviveAlarm(r.Context(), id)
	return adminapi.Revived{Revived: revived}, err
}
