package web

import (
	"net/http"
	"time"

	"github.com/dohost/dohost"
)

// Parked is a parked alarm, as JSON.
type Parked struct {
	Object    string    `json:"object"`
	Scheduled time.Time `json:"scheduled"` // when the last run was due
	Reason    string    `json:"reason"`
	Attempts  int       `json:"attempts,omitempty"` // runs that failed
	Deaths    int       `json:"deaths,omitempty"`   // processes that ended in the handler
	Lost      int       `json:"lost,omitempty"`     // processes that ended before the handler
	Err       string    `json:"err,omitempty"`      // the text of the last failure
}

// ParkedList is a page of parked alarms. Next is the value of after for the next page. Damaged names
// the damaged blocks of the disk whose alarms are left out; two pages may name the same block.
type ParkedList struct {
	Parked  []Parked `json:"parked"`
	Next    string   `json:"next,omitempty"`
	Damaged []string `json:"damaged,omitempty"`
}

// Revived reports whether there was a parked alarm to revive.
type Revived struct {
	Revived bool `json:"revived"`
}

func parkedOf(p dohost.ParkedAlarm) Parked {
	return Parked{
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
	list := ParkedList{Parked: []Parked{}}
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
	return Revived{revived}, err
}
