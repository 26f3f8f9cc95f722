package chat

import (
	"errors"
	"testing"

	"github.com/dohost/dohost"
)

func TestReplySendRefusesConcurrentCalls(t *testing.T) {
	r := &Reply{l: &liveReply{}}
	r.l.sending.Lock() // as another Send does
	if err := r.Send(t.Context(), TextDelta("text", "x")); !errors.Is(err, dohost.ErrMisuse) {
		t.Error(err)
	}
	r.l.sending.Unlock()
	if err := Answer(t.Context(), r, nil, &AnswerOptions{MaxSteps: -1}); err == nil {
		t.Error("a negative MaxSteps was accepted")
	}
}
