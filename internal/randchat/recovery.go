package randchat

import (
	"context"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
)

// Recovery is a decision of OnRecovery.
type Recovery string

// The decisions of OnRecovery. The last one returns an error, so the reply resumes.
const (
	RecoverResume  Recovery = "RecoverResume"
	RecoverRestart Recovery = "RecoverRestart"
	RecoverStop    Recovery = "RecoverStop"
	RecoverDiscard Recovery = "RecoverDiscard"
	RecoverBroken  Recovery = "RecoverBroken"
)

// GoString returns the name of the constant.
func (d Recovery) GoString() string { return "randchat." + string(d) }

var actions = map[Recovery]chat.RecoveryAction{
	RecoverResume: chat.RecoveryResume, RecoverRestart: chat.RecoveryRestart, RecoverStop: chat.RecoveryStop, RecoverDiscard: chat.RecoveryDiscard,
}

// onRecovery compares an interrupted reply with the model, and decides as its plan says. The model changes in the batch
// of the decision.
func (a *machine) onRecovery(ctx context.Context, c *chat.InterruptedReply) (chat.RecoveryAction, error) {
	partial, err := messageOf(c.Partial)
	if err != nil {
		return chat.RecoveryResume, err
	}
	q, ok := a.w.begun(c.ID, a.w.originOf(&partial, c.ID))
	if !ok {
		a.w.Faultf("OnRecovery gets %s, which was not sent", c.ID)
		return chat.RecoveryResume, nil
	}
	n := a.w.try("recovery of " + c.ID)
	if n%2 == 0 {
		if err := dohost.Await(ctx, func(context.Context) error { return nil }); err != nil {
			return chat.RecoveryResume, err
		}
	}
	p, err := get[progress](ctx, a, progressKey(c.ID))
	if err != nil {
		return chat.RecoveryResume, err
	}
	said, err := get[int](ctx, a, saidKey(partial.ID))
	if err != nil {
		return chat.RecoveryResume, err
	}
	a.w.Compared()
	if _, has, ok := parseWords(partial.Text); !q.plan.Model && (!ok || has != said) {
		a.w.Faultf("OnRecovery gets %v, want %d words", partial, said)
	}
	if c.Attempt < 1 || c.Attempt > maxAttempts {
		a.w.Faultf("OnRecovery gets %s with attempt %d", c.ID, c.Attempt)
	}
	var saved int
	if _, err := c.Checkpoint(&saved); err != nil || saved != p.Saved && saved != p.Saving {
		a.w.Faultf("OnRecovery gets %s with the checkpoint %d, %v; want %d or %d", c.ID, saved, err, p.Saved, p.Saving)
	}
	if len(q.plan.Recovery) == 0 || p.Stopped || p.Cleared { // a stop during the hook has ended the reply
		return chat.RecoveryResume, nil
	}
	do := q.plan.Recovery[(n-1)%len(q.plan.Recovery)]
	switch do {
	case RecoverResume:
		return chat.RecoveryResume, nil
	case RecoverBroken:
		return chat.RecoveryDiscard, errFail
	}
	a.w.recovers(c.ID, a.w.originOf(&partial, c.ID), do)
	if do != RecoverStop {
		p.Saved, p.Saving = 0, 0
		if err := dohost.Put(ctx, a.Storage(), saidKey(partial.ID), 0); err != nil {
			return chat.RecoveryResume, err
		}
	}
	if do != RecoverRestart {
		p.Result = aborted
	}
	return actions[do], dohost.Put(ctx, a.Storage(), progressKey(c.ID), p)
}

// recovers records a decision that is about to be made.
func (w *Observer) recovers(id, origin string, do Recovery) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.requests {
		if q.id != id && q.id != origin {
			continue
		}
		if do != RecoverStop {
			q.restarts++
		}
		if do != RecoverRestart && q.id == id {
			w.stopLocked(q)
			q.halted = true
		}
	}
}
