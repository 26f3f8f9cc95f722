package chat

import "slices"

// audience decides which connections receive which frames of replies. It is the memory of one incarnation, without I/O,
// clock or goroutine: each event of a connection or a reply is a method, which returns the connections to send to. The
// caller sends, and passes the open connections that speak the protocol. C is a connection; two values may be the same
// connection.
//
// The four lists are independent of each other: a connection may wait for the next reply while it resumes this one.
// Each connection receives the chunks of a reply, except those in resuming.
type audience[C interface{ Is(C) bool }] struct {
	// unprobed are connections that have not asked yet for a reply to resume.
	unprobed []C
	// resuming are connections that were offered the reply so far, and have not asked for it yet.
	resuming []C
	// resumed are connections that received a replay of the current reply.
	resumed []C
	// waiting are connections to be notified when the next reply begins.
	waiting []C
	// requesters has, for each open request, the connection that sent it. That connection receives the whole reply
	// unless it disconnects.
	requesters map[string]C
}

// connected adds a new connection.
func (a *audience[C]) connected(c C) { a.unprobed = append(a.unprobed, c) }

// probed records that a connection asks for a reply to resume, and reports whether it had not asked before.
func (a *audience[C]) probed(c C) (first bool) {
	first = contains(a.unprobed, c)
	a.unprobed = without(a.unprobed, c)
	return first
}

// sent records that a connection was sent the state of a request's stream, and reports whether that offers the running
// reply. The connection does not wait for another reply if the frame reports one that has ended.
func (a *audience[C]) sent(c C, f streamFrame) (offered bool) {
	switch {
	case f.ended:
	case f.Type == framePending:
		a.waits(c)
	case f.Type == frameResuming:
		a.resuming = append(without(a.resuming, c), c)
		return true
	}
	return false
}

// waits adds a connection that waits for the next reply.
func (a *audience[C]) waits(c C) { a.waiting = append(without(a.waiting, c), c) }

// waitOver records that the next reply begins, or has ended before it began, and returns the connections to be notified
// of that.
func (a *audience[C]) waitOver() (notify []C) {
	notify, a.waiting = a.waiting, nil
	return notify
}

// resumes records that a connection asks for the reply that it was offered, and reports whether to send it a replay. A
// client is offered the reply twice, on connecting and on probing, and receives one replay.
func (a *audience[C]) resumes(c C) (replay bool) {
	if !contains(a.resuming, c) {
		return false
	}
	a.resuming = without(a.resuming, c)
	a.resumed = append(without(a.resumed, c), c)
	return true
}

// gone removes a connection.
func (a *audience[C]) gone(c C) {
	for _, list := range []*[]C{&a.unprobed, &a.resuming, &a.resumed, &a.waiting} {
		*list = without(*list, c)
	}
}

// requested records that a connection sent a request that is open now.
func (a *audience[C]) requested(request string, c C) {
	if a.requesters == nil {
		a.requesters = map[string]C{}
	}
	a.requesters[request] = c
}

// requestOver records that a request is not open any more.
func (a *audience[C]) requestOver(request string) { delete(a.requesters, request) }

// live returns the connections that receive a new chunk.
func (a *audience[C]) live(open []C) []C {
	return slices.DeleteFunc(open, func(c C) bool { return contains(a.resuming, c) })
}

// ending returns the connections that receive the transcript before the end-of-reply frame: all but the requester. The
// requester has received all chunks, and needs no transcript unless it was offered the reply since, or the reply
// continued an older message with parts unknown to it.
func (a *audience[C]) ending(request string, continues bool, open []C) []C {
	requester, known := a.requesters[request]
	return slices.DeleteFunc(open, func(c C) bool {
		return known && !continues && c.Is(requester) && !contains(a.resuming, c)
	})
}

// ended records the end of a reply, and returns the connections that receive the transcript again after the
// end-of-reply frame: those that resumed the reply, and all if it continued an older message. At that frame, hooks of
// 0.21 restore their copy of the message from before the disconnect, or the chunks without the older parts.
func (a *audience[C]) ended(continues bool, open []C) (again []C) {
	resumed := a.resumed
	a.resuming, a.resumed = nil, nil
	return slices.DeleteFunc(open, func(c C) bool { return !continues && !contains(resumed, c) })
}

func contains[C interface{ Is(C) bool }](list []C, c C) bool { return slices.ContainsFunc(list, c.Is) }

func without[C interface{ Is(C) bool }](list []C, c C) []C { return slices.DeleteFunc(list, c.Is) }
