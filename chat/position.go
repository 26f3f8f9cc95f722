package chat

import (
	"github.com/dohost/dohost"
)

// The names and the numbers of positions are a part of the identity of operations, and so of the format on disk.

// position returns the position of the handler. The handler may continue after any chunk, so equal operations at it are one. The
// work is the message, not the request: a later request may continue the message, after an approval for example. A client may
// choose the id of a message, and use it again after a deletion, so the work has a random name in addition.
func (s *replyState) position() *dohost.WorkPosition {
	return dohost.NewWorkPosition(s.workName(), nil)
}

func (s *replyState) workName() string { return "message/" + s.row.Message + "/" + s.row.Work }

// positionOfCall returns the position of the runs of a tool call, whose number is callRow.Equal.
func (s *replyState) positionOfCall(id string) *dohost.WorkPosition {
	equal := s.calls[id].Equal
	return fixedPosition(s.workName(), equal)
}

// lowestFree returns the lowest number that is not used. It is the number of a call among equal calls, those with the same tool and the
// same input. A number is used while its call has a result or may get one. A call that was interrupted or has failed gives its
// number back, since the model may repeat the call. After an equal call in any other state, the model intends a second effect. The
// number does not depend on the ids of the calls: a model that begins an answer again makes calls with other ids.
func lowestFree(used func(n uint64) bool) (n uint64) {
	for used(n) {
		n++
	}
	return n
}

// numberAmongEqual returns the number of a call that begins to run, among the equal calls of its message: see lowestFree.
func (s *replyState) numberAmongEqual(p Part) uint64 {
	id := p.Text("toolCallId")
	used := map[uint64]bool{}
	for other, r := range s.calls {
		if other == id || r.Attempts == 0 || r.Digest != s.calls[id].Digest {
			continue
		}
		switch r.State {
		case CallFailed, CallDenied, CallExpired, CallUnknown:
		default:
			used[r.Equal] = true
		}
	}
	return lowestFree(func(n uint64) bool { return used[n] })
}
