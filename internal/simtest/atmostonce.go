package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// letter is an object with an outside effect that must not happen twice and has no
// idempotency key. So the object stores that it is about to try, and that is durable before
// the effect. An incarnation that finds this note does not try again.
type letter struct {
	st   *dohost.State
	post *dohosttest.FakeService
}

// The states of a letter.
const (
	letterTrying  = "trying"
	letterSent    = "sent"
	letterFailed  = "failed"
	letterUnknown = "unknown"
)

var letters dohost.Namespace[letter] = "letter"

func (l *letter) send(ctx context.Context, _ none) (string, error) {
	state, err := l.state(ctx, none{})
	switch {
	case err != nil:
		return "", err
	case state == letterTrying:
		return l.become(ctx, letterUnknown)
	case state != "":
		return state, nil
	}
	if _, err := l.become(ctx, letterTrying); err != nil {
		return "", err
	}
	err = dohost.Await(ctx, func(ctx context.Context) error {
		return l.post.Call(ctx, l.st.ID().Name, "")
	})
	switch {
	case err == nil:
		return l.become(ctx, letterSent)
	case errors.Is(err, dohosttest.ErrRefused):
		return l.become(ctx, letterFailed)
	}
	return "", err
}

func (l *letter) become(ctx context.Context, state string) (string, error) {
	return state, dohost.Put(ctx, l.st.Storage(), "state", state)
}

func (l *letter) state(ctx context.Context, _ none) (string, error) {
	state, _, err := dohost.Get[string](ctx, l.st.Storage(), "state")
	return state, err
}

// outage refuses letter 2.
func outage(key string, _ int, m dohosttest.FailurePoint) error {
	if key == "2" && m == dohosttest.FailureBeforeEffect {
		return dohosttest.ErrRefused
	}
	return nil
}

// checkLetter compares a letter's state with the answer to its sender, and with the
// requests that arrived.
func checkLetter(name, state, answer string, post *dohosttest.FakeService) (err error) {
	if state != answer {
		err = fmt.Errorf("its sender got %q", answer)
	}
	requests, effects := post.Requests(name), post.Effects(name)
	switch {
	case requests > 1:
		err = errors.Join(err, fmt.Errorf("it was sent %d times", requests))
	case state == letterSent && effects != 1:
		err = errors.Join(err, errors.New("it never arrived"))
	case state == letterFailed && effects != 0:
		err = errors.Join(err, errors.New("it arrived"))
	case state == letterTrying || state == "":
		err = errors.Join(err, errors.New("no outcome is recorded"))
	}
	if err != nil {
		return fmt.Errorf("letter %s is %q: %w", name, state, err)
	}
	return nil
}

// newAtMostOnce has an effect that waits until the writes before it are durable.
func newAtMostOnce() dohosttest.Scenario {
	post := &dohosttest.FakeService{Latency: 100 * time.Millisecond, Fail: outage}
	names := []string{"1", "2", "3"}
	answers := map[string]string{}
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(letters, func(_ context.Context, st *dohost.State) (*letter, error) {
			return &letter{st, post}, nil
		}, nil)},
		Services: []*dohosttest.FakeService{post},
		Reset:    func() { clear(answers) },
		Run: func(ctx context.Context, h *dohosttest.Host) (err error) {
			for _, name := range names {
				if answers[name], err = retryCall(ctx, letters.Get(h, name), (*letter).send, none{}); err != nil {
					return err
				}
			}
			return nil
		},
		Check: func(ctx context.Context, h *dohosttest.Host) (err error) {
			for _, name := range names {
				state, err2 := dohost.Call(ctx, letters.Get(h, name), (*letter).state, none{})
				err = errors.Join(err, err2, checkLetter(name, state, answers[name], post))
			}
			return err
		},
	}
}
