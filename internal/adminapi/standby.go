package adminapi

import "time"

// Standby describes a standby. Store and Made are absent before the first base is complete.
type Standby struct {
	Store      string     `json:"store,omitempty"`
	Record     uint64     `json:"record"`         // the last applied record
	Made       *time.Time `json:"made,omitempty"` // when it was made
	Archived   uint64     `json:"archived"`       // the newest record in the archive
	Lag        uint64     `json:"lag_records"`
	LagSeconds float64    `json:"lag_seconds"`
	Waiting    string     `json:"waiting,omitempty"` // why the standby cannot continue
	Promoted   bool       `json:"promoted,omitempty"`
}
