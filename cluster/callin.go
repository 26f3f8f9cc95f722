package cluster

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"hash"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/dohost/dohost"
)

// called returns the handler of a request with CallHeader. A node never passes a call on: the one that gets it serves the cell, or refuses it.
func (rt *router) called(r *http.Request, header []string) http.Handler {
	n := rt.node
	s, ok := n.verifyCall(header)
	if !ok {
		n.logUnsigned(r)
		return http.HandlerFunc(refuseCall)
	}
	if s.To != n.self.ID {
		return http.HandlerFunc(moved)
	}
	callee, ok := n.Host(s.Cell).(Callee)
	if !ok {
		return http.HandlerFunc(moved)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rt.o.StepTimeout > 0 {
			w = &stepWriter{ResponseWriter: w, rc: http.NewResponseController(w), step: rt.o.StepTimeout}
		}
		serveCall(w, r, callee, s)
	})
}

// errOtherArgument is the error of a body that the signature does not fit.
var errOtherArgument = errors.New("cluster: the body is not the argument of the call")

// serveCall reads the argument of a call, makes the call, and writes the answer.
func serveCall(w http.ResponseWriter, r *http.Request, callee Callee, s *sentCall) {
	c := &dohost.RemoteCall{
		ID: dohost.ID{Class: string(s.Class), Name: string(s.Name)}, Method: string(s.Method),
		Caller: dohost.ID{Class: string(s.CallerClass), Name: string(s.CallerName)}, CallID: string(s.CallID),
		Keep: time.Duration(s.Keep) * time.Millisecond, Depth: s.Depth,
	}
	if r.ContentLength != s.Size {
		refuseCall(w, r)
		return
	}
	in := r.WithContext(r.Context())
	in.Body = &summedBody{ReadCloser: r.Body, hash: sha256.New(), want: s.Sum}
	ctx, argument, release, err := callee.ReadCall(in, c.ID)
	defer release() // also after a panic
	switch {
	case errors.Is(err, errOtherArgument):
		refuseCall(w, r)
		return
	case err != nil:
		callee.WriteError(w, &dohost.Error{Op: c.Method, ID: c.ID, Err: err, Outcome: dohost.OutcomeNotRun})
		return
	}
	c.Argument = argument
	result := callee.AnswerCall(ctx, c)
	release() // before the other node reads the answer
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(result)))
	_ = callee.WriteBody(w, result) // the other node may have ended
}

// summedBody is a body that ends with errOtherArgument if its SHA-256 differs.
type summedBody struct {
	io.ReadCloser
	hash hash.Hash
	want []byte
}

// Read reads.
func (b *summedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.hash.Write(p[:n])
	if err == io.EOF && subtle.ConstantTimeCompare(b.hash.Sum(nil), b.want) != 1 {
		err = errOtherArgument
	}
	return n, err
}

// moved answers a call for a cell that this process does not serve.
func moved(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusMisdirectedRequest, &dohost.ErrorBody{
		Code: "elsewhere", Message: "this node does not serve the object", Ran: dohost.OutcomeNotRun.String(), Retryable: true,
	})
}

// refuseCall answers a request whose CallHeader has no valid signature.
func refuseCall(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusForbidden, &dohost.ErrorBody{
		Code: "not_signed", Message: "the header " + CallHeader + " has no valid signature: only nodes of the cluster send it", Ran: dohost.OutcomeNotRun.String(),
	})
}
