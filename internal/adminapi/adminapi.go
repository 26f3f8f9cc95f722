// Package adminapi has the types of the JSON that the admin listener of package web sends and gets, for that package and
// for the commands of package cli. It has no code.
package adminapi

import (
	"time"

	"github.com/dohost/dohost"
)

// Object describes an object, as JSON.
type Object struct {
	ID      string     `json:"id"`
	Durable bool       `json:"durable"`
	Alarm   *time.Time `json:"alarm,omitempty"`
	Attempt int        `json:"attempt,omitempty"`
	Err     string     `json:"err,omitempty"` // the error of the last of those runs
	Parked  *Parked    `json:"parked,omitempty"`
	Live    bool       `json:"live"`
	Sockets int        `json:"sockets,omitempty"` // hibernating if live is false
	Epoch   string     `json:"epoch,omitempty"`
	Age     float64    `json:"age_seconds,omitempty"`
	Idle    float64    `json:"idle_seconds,omitempty"`
	Events  uint64     `json:"events,omitempty"`
	Queued  int        `json:"queued,omitempty"`
	Pins    []Pin      `json:"pins,omitempty"`
}

// Pin is a reason that keeps an object in memory.
type Pin struct {
	Reason string  `json:"why"`
	For    float64 `json:"for_seconds,omitempty"`
}

// ObjectList is a page of objects. Next is the value of after for the next page. Damaged names the
// damaged blocks of the disk whose objects are left out; two pages may name the same block.
type ObjectList struct {
	Objects []Object `json:"objects"`
	Next    string   `json:"next,omitempty"`
	Damaged []string `json:"damaged,omitempty"`
}

// Alarm is an object's alarm, in requests and responses. A nil time means that there is none.
type Alarm struct {
	At *time.Time `json:"at"`
}

// Evicted reports whether there was an incarnation to end.
type Evicted struct {
	Evicted bool `json:"evicted"`
}

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

// DetailList is a page of an object's details. Next is the value of after for the next page; it may be empty although there are more.
type DetailList struct {
	Details []dohost.Resource `json:"details"`
	More    bool              `json:"more,omitempty"`
	Next    string            `json:"next,omitempty"`
}

// Operated reports whether the item existed.
type Operated struct {
	Done bool `json:"done"`
}

// Socket describes an object's WebSocket, as JSON.
type Socket struct {
	Tags    []string  `json:"tags,omitempty"`
	Since   time.Time `json:"since"`
	State   string    `json:"state"` // opening, live, hibernating or closing
	Waiting int       `json:"waiting_bytes,omitempty"`
}

// SocketList is an object's WebSockets, in the order of their connection.
type SocketList struct {
	Sockets []Socket `json:"sockets"`
}

// ClosedSockets is the answer to DELETE of an object's sockets.
type ClosedSockets struct {
	Closed int `json:"closed"`
}

// BackupRequest names the folder to make, on the machine of the host.
type BackupRequest struct {
	Dir string `json:"dir"`
}

// RestoreRequest names the moment of an object that replaces its present state.
type RestoreRequest struct {
	Bookmark string     `json:"bookmark,omitempty"`
	Record   uint64     `json:"record,omitempty"`
	Time     *time.Time `json:"time,omitempty"`
}

// ObjectRestored is the answer to a RestoreRequest. Undo is the bookmark of the state before the restore.
type ObjectRestored struct {
	Undo string `json:"undo"`
}
