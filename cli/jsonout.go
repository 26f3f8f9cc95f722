package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
)

// jsonFlag selects the output of a command that prints data.
type jsonFlag struct {
	JSON bool `name:"json" help:"Print JSON instead of text, one value per line."`
}

// print prints v with --json, and the text without it.
func (f jsonFlag) print(out io.Writer, v any, format string, args ...any) error {
	if f.JSON {
		return printJSON(out, v)
	}
	_, err := fmt.Fprintf(out, format, args...)
	return err
}

// printJSON prints each value as a line of JSON.
func printJSON[T any](out io.Writer, values ...T) error {
	for _, v := range values {
		line, err := json.Marshal(v)
		if err == nil {
			_, err = fmt.Fprintf(out, "%s\n", escapeJSON(line))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// shownJSON is the JSON of show.
type shownJSON struct {
	adminapi.Object
	SocketList []adminapi.Socket `json:"socket_list,omitempty"` // with --sockets
	adminapi.DetailList
}

// actedJSON is the JSON of a command that has changed something.
type actedJSON struct {
	Action string `json:"action"` // the name of the command
	Object string `json:"object,omitempty"`
	Kind   string `json:"kind,omitempty"` // of the item
	ID     string `json:"id,omitempty"`   // of the item; empty with --all
	Text   string `json:"text,omitempty"` // the description of the item, or the decision about it
	Count  int    `json:"count"`          // the number of changed items
}

// alarmJSON is the JSON of the alarm of an object.
type alarmJSON struct {
	Object string `json:"object"`
	adminapi.Alarm
}

// problemJSON is the JSON of a problem that check has found.
type problemJSON struct {
	Problem string `json:"problem"`
}

// checkedJSON is the JSON of the result of check.
type checkedJSON struct {
	Store    string `json:"store"`
	Fork     string `json:"fork"`
	Objects  int64  `json:"objects"`
	Rows     int64  `json:"rows"`
	Alarms   int64  `json:"alarms"`
	Bytes    int64  `json:"bytes"`
	Problems int64  `json:"problems"`
}

// checked returns the JSON of the result of check.
func checked(s dohost.CheckStats) checkedJSON {
	return checkedJSON{
		Store: s.Store.Store, Fork: fmt.Sprintf("%08x", s.Store.Fork),
		Objects: s.Objects, Rows: s.Rows, Alarms: s.Alarms, Bytes: s.Bytes, Problems: s.Problems,
	}
}

// versionJSON is the JSON of version.
type versionJSON struct {
	Version string `json:"version"`
	Go      string `json:"go"`
}
