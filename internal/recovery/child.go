package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/ledger"
	"github.com/dohost/dohost/objectstore"
)

// childEnv is the environment variable that makes a process a child. It contains the instructions.
const childEnv = "DOHOST_RECOVERY_CHILD"

// childConfig are the instructions of a child.
type childConfig struct {
	Dir     string
	Workers int           // driven by their alarms
	Pause   time.Duration // between two of their steps
	Policy  ledger.Policy // of their steps as operations; zero if they are none
}

// message is a message of a child, a line each.
type message struct {
	First    string    // the worker that has taken its first step in this process
	At       time.Time // when
	Replayed int64     // bytes of the log that were read to open the store
	Armed    bool      // all workers have an alarm
}

// Child runs a child process, if this is one, and returns its exit status.
func Child(ctx context.Context) (status int, is bool) {
	text, is := os.LookupEnv(childEnv)
	if !is {
		return 0, false
	}
	var o childConfig
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// run opens the store and runs the workers until standard input ends, which closes the host, or until the
// process is killed.
func (o childConfig) run(ctx context.Context) (err error) {
	out, err := openBook(o.Dir)
	if err != nil {
		return err
	}
	out.messages, out.pause = json.NewEncoder(os.Stdout), o.Pause
	if o.Policy != 0 {
		out.bank = newBank(out, o.Policy)
	}
	fs := objectstore.DiskFS()
	h, err := dohost.Open(filepath.Join(o.Dir, storeFolder), kernel.OnFS(&dohost.Options{IdleAfter: -1}, fs), class(out))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close(), out.err) }()
	if err := out.send(message{Replayed: fs.LogRead()}); err != nil {
		return err
	}
	for i := range o.Workers {
		w := workers.Get(h, name(i))
		if exists, err := h.Exists(ctx, w.ID()); err != nil || exists {
			if err != nil {
				return err
			}
			continue // its alarm is set
		}
		if err := dohost.CallNoResult(ctx, w, (*worker).begin, time.Now()); err != nil {
			return err
		}
	}
	if err := out.send(message{Armed: true}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
