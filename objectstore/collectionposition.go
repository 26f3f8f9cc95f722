package objectstore

import (
	"fmt"
	"slices"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost/internal/errkind"
)

// Position is a place in a feed: after the entry at Offset, in the log named Log. The name of a log is a ULID. The first
// entry of a feed draws a log, also after a DeleteAll. So does the first entry after an import or a [Batch.Replace] of the
// object, and after a backup or a restored store was opened: then the new log continues the log before it. So a name and
// an offset identify one entry, in all copies of the store.
//
// A position without Log is valid in any log: its reader does not notice that the entries
// up to the position have been replaced.
//
// A position has no other state: a client may keep the fields in any form, such as the JSON
// {"Log":"01J0C1WSC8TZQ0QH1R6Z8B4M7K","Offset":12}, and send them back.
type Position struct {
	Log    string
	Offset uint64
}

// FeedError reports that a feed cannot be read from a position. The reader needs a new copy of the rows, and reads the
// feed from First.
type FeedError struct {
	Feed  string
	At    Position
	First Position // before the first entry that is there
	// Reset reports that the feed was never at the position, or no longer is: its log is another one, or ends before the
	// position. The entries that the reader has read may not be in the feed. If Reset is false, the feed was trimmed:
	// entries after the position are no longer there.
	Reset bool
}

// Error names the feed, the position and the first entry that is there.
func (e *FeedError) Error() string {
	if e == nil {
		return "dohost: nil *FeedError"
	}
	why := "feed is trimmed"
	if e.Reset {
		why = "feed was reset"
	}
	return fmt.Sprintf("dohost: %s: %q cannot be read after entry %d of log %q, its first entry is %d of log %q",
		why, e.Feed, e.At.Offset, e.At.Log, e.First.Offset+1, e.First.Log)
}

// Is makes the error one of something that is not found.
func (e *FeedError) Is(target error) bool { return target == errkind.ErrNotFound }

// maxFeedLogs bounds the logs in a feed's header. A position in an older one is not found.
const maxFeedLogs = 32

func (f *feedEnds) start() Position { return f.at(f.first - 1) }

func (f *feedEnds) at(offset uint64) Position {
	if len(f.logs) == 0 {
		return Position{}
	}
	return Position{Log: f.logs[len(f.logs)-1].name.String(), Offset: offset}
}

// admit returns a *FeedError if a feed cannot be read from a position.
func (f *feedEnds) admit(name string, p Position) error {
	end, ok := f.endOf(p.Log)
	reset := !ok || p.Offset > end
	if !reset && p.Offset >= f.first-1 {
		return nil
	}
	return &FeedError{Feed: name, At: p, First: f.start(), Reset: reset}
}

// endOf returns the last offset of a log; without a name the last offset of the feed.
func (f *feedEnds) endOf(log string) (end uint64, ok bool) {
	end = f.next - 1
	if log == "" {
		return end, true
	}
	name, err := ulid.ParseStrict(log)
	if err != nil {
		return 0, false
	}
	for i := len(f.logs) - 1; i >= 0; i-- {
		if f.logs[i].name == name {
			return end, true
		}
		end = f.logs[i].from - 1
	}
	return 0, false
}

// draw begins a log with the next entry, and removes the logs that end before the first entry.
func (f *feedEnds) draw(st *Store) error {
	name, err := ulid.New(ulid.Now(), st.opts.Entropy)
	if err != nil {
		return fmt.Errorf("drawing the name of a change log: %w", err)
	}
	old := f.logs[max(0, len(f.logs)-maxFeedLogs+1):]
	for len(old) > 1 && old[1].from < f.first {
		old = old[1:]
	}
	f.fork = st.identity.Fork
	f.logs = append(slices.Clone(old), feedLog{name: name, from: f.next})
	return nil
}
