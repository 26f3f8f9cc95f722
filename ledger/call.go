package ledger

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dohost/dohost"
)

// progress is a Do in progress of an operation. Of the Dos of an operation in an incarnation, only one makes calls. The others
// wait for done.
type progress struct{ done chan struct{} }

// progressKey is an operation of an incarnation.
type progressKey struct {
	epoch string
	id    ID
}

// inProgress has the Dos in progress of all incarnations of the process, as *progress by progressKey. Entries are added
// and read with the turn of the object. They are removed when the Do ends, with or without the turn.
var inProgress sync.Map

// progressOf returns the Do in progress of an operation in an incarnation.
func progressOf(epoch string, id ID) (p *progress, ok bool) {
	v, ok := inProgress.Load(progressKey{epoch, id})
	if !ok {
		return nil, false
	}
	return v.(*progress), true
}

// begin records a Do in progress.
func begin(epoch string, id ID) (end func()) {
	key, p := progressKey{epoch, id}, &progress{make(chan struct{})}
	inProgress.Store(key, p)
	return func() {
		inProgress.CompareAndDelete(key, p)
		close(p.done)
	}
}

// owners numbers the calls of the process.
var owners atomic.Uint64

// newOwner returns the owner of a call of an operation. Each call gets a different one. A row that is Running without
// a Do in progress therefore has an owner that has ended.
func newOwner(st *dohost.State) string {
	return st.Epoch().String() + "/" + strconv.FormatUint(owners.Add(1), 10)
}

// epochOf returns the epoch of the incarnation of an owner.
func epochOf(owner string) string {
	epoch, _, _ := strings.Cut(owner, "/")
	return epoch
}
