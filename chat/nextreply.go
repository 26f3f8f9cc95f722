package chat

import (
	"cmp"
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/uimessage"
	"github.com/dohost/dohost/internal/work"
)

// beginNext starts the reply to the next request, if none is being answered.
func (k *conversation) beginNext(ctx context.Context) error {
	for {
		open, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "open", Limit: 1})
		if err != nil || len(open) == 0 || open[0].Value.State != work.Waiting {
			return err
		}
		row, now := open[0].Value, time.Now()
		begun := row
		eff, err := k.step(&begun, work.Event{Kind: work.Due, Owner: k.nextCall()}, now)
		if err != nil {
			return err
		}
		if eff == work.Wait {
			_, err := agent.Schedule(ctx, k.base, agent.After(time.UnixMilli(row.NotBefore).Sub(now)), nextCallback, struct{}{}, nil)
			return err
		}
		begins, err := k.findMessage(ctx, &row)
		if err != nil {
			return err
		}
		if !begins {
			if err := k.stop(ctx, row, StatusSkipped); err != nil {
				return err
			}
			continue
		}
		if row.Continues {
			if err := k.asked.takeAddress(ctx, &row); err != nil {
				return err
			}
		}
		started, err := agent.StartFiber(ctx, k.base, replyKind, nil, nil)
		if err != nil {
			return err
		}
		row.Item, row.Fiber = begun.Item, started.ID
		if _, err := notes.Delete(ctx, k.store(), terminalNote); err != nil {
			return err
		}
		return k.putReply(ctx, row)
	}
}

// beginDue starts a delayed reply.
func (k *conversation) beginDue(ctx context.Context) error {
	return dohost.Transaction(ctx, k.beginNext)
}

// findMessage assigns the message of a reply: a new one after the messages it answers, or the one that it continues. begins is
// false if the row Answers and there is no message that it continues.
func (k *conversation) findMessage(ctx context.Context, row *replyRow) (begins bool, err error) {
	if row.Continues {
		of, ok, err := k.continued(ctx, row)
		if err != nil {
			return false, err
		}
		if ok {
			m, err := of.Message()
			if err != nil {
				return false, err
			}
			begins := !row.Answers
			if row.Answers {
				begins, err = k.continues(ctx, row, &m)
			}
			row.Message, row.Place, row.Work = m.ID, of.Place, cmp.Or(of.Work, randomText())
			return begins, err
		}
		if row.Answers {
			return false, nil
		}
	}
	row.Continues = false
	row.Message, row.Work = "msg_"+ulid.Make().String(), randomText()
	row.Place, err = k.messages.placeAfter(ctx, row.Users)
	return true, err
}

// continued returns the message that a reply continues. That is the last message, if it is of the assistant. It is an older
// message only for a row that names it, and only if the newer messages do not end its wait:
//
//   - The message must answer another agent: the request of that agent has one answer, regardless of other requests.
//   - Or all newer messages are requests of other agents, and their answers: no user knows of them.
//
// After a newer message of a user or of the program the model gets the results of the older calls with the next request.
//
// A reply to an older message is Older: clients receive no chunks of it, since published clients add the chunks of a
// continuation to their last message. They receive the transcript at its end.
func (k *conversation) continued(ctx context.Context, row *replyRow) (of messageRow, ok bool, err error) {
	last, ok, err := messages.Last(ctx, k.store(), dohost.Query[messageRow]{})
	switch {
	case err != nil || !ok:
		return of, false, err
	case row.Message == "" || row.Message == last.ID:
		return last, last.Role == RoleAssistant, nil
	}
	of, ok, err = messages.Get(ctx, k.store(), row.Message)
	if err != nil || !ok || of.Role != RoleAssistant {
		return of, false, err
	}
	_, asked, err := waitingRows.Get(ctx, k.store(), of.ID)
	if err == nil && !asked {
		asked, err = k.onlyAskedAfter(ctx, of.Place)
	}
	row.Older = asked
	return of, asked, err
}

// onlyAskedAfter reports whether all messages after a place are requests of other agents, and the replies to them.
func (k *conversation) onlyAskedAfter(ctx context.Context, place uint64) (bool, error) {
	replyTo := uint64(0) // the end of the places of replies to the last request
	for row, err := range messages.All(ctx, k.store(), &dohost.Query[messageRow]{Start: dohost.KeyOf(place + 1)}) {
		switch {
		case err != nil:
			return false, err
		case row.Value.Asked:
			replyTo = nextPlace(row.Value.Place)
		case row.Value.Role != RoleAssistant || row.Value.Place >= replyTo:
			return false, nil
		}
	}
	return true, nil
}

// continues reports whether a request that Answers continues a message now: no call of the message waits for a client or for an
// approval. While other calls run elsewhere, an approved call must be able to run.
func (k *conversation) continues(ctx context.Context, row *replyRow, m *Message) (bool, error) {
	if row.Overlaps && !uimessage.CallsInLastStep(m) { // the other reply has used the results
		return false, nil
	}
	calls, err := k.calls.callsOf(ctx, m.ID)
	elsewhere, approved := false, false
	for _, p := range m.Parts {
		switch r := calls[p.Text("toolCallId")]; {
		case !uimessage.IsPending(p) || r.ended():
		case r.State == CallExternal:
			elsewhere = true
		case p.Text("state") != uimessage.ApprovalResponded:
			return false, err
		default:
			approved = true
		}
	}
	return !elsewhere || approved, err
}

// skipContinuations skips the continuations of a message that Complete or a decision has queued.
func (k *conversation) skipContinuations(ctx context.Context, message string) error {
	open, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "open", Where: func(r replyRow) bool {
		return r.State == work.Waiting && r.Overlaps && r.Conn == "" && r.Message == message
	}})
	for _, r := range open {
		if err == nil {
			err = k.stop(ctx, r.Value, StatusSkipped)
		}
	}
	return err
}
