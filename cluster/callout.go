package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/dohost/dohost"
)

// sendCall sends a call to another node, and returns its answer.
func (n *Node) sendCall(ctx context.Context, client *http.Transport, to *target, c *dohost.RemoteCall) (answer []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.address+callPath, bytes.NewReader(c.Argument))
	if err != nil {
		return nil, failure(c, err, dohost.OutcomeNotRun, false)
	}
	sum := sha256.Sum256(c.Argument)
	r.Header.Set(CallHeader, n.signCall(&sentCall{
		To: to.id, Cell: to.cell, Class: []byte(c.ID.Class), Name: []byte(c.ID.Name), Method: []byte(c.Method),
		CallerClass: []byte(c.Caller.Class), CallerName: []byte(c.Caller.Name), CallID: []byte(c.CallID),
		Keep: c.Keep.Milliseconds(), Depth: c.Depth, Size: int64(len(c.Argument)), Sum: sum[:],
	}))
	res, err := client.RoundTrip(r)
	switch {
	case errors.Is(err, errNotSent):
		return nil, failure(c, err, dohost.OutcomeNotRun, true)
	case err != nil:
		return nil, failure(c, noAnswer(ctx, err), dohost.OutcomeUnknown, false)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, refusal(c, res)
	}
	if answer, err = readAnswer(res); err != nil {
		return nil, failure(c, noAnswer(ctx, err), dohost.OutcomeUnknown, false)
	}
	return answer, nil
}

// readAnswer reads an answer, unless it is too long.
func readAnswer(res *http.Response) ([]byte, error) {
	size := res.ContentLength // -1 if it is unknown
	if size <= maxAnswer {
		answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
		if size = int64(len(answer)); err != nil || size <= maxAnswer {
			return answer, err
		}
	}
	return nil, &dohost.LimitError{Subject: "answer", Size: int(size), Limit: maxAnswer}
}

// noAnswer returns the error of a request that may have arrived.
func noAnswer(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fmt.Errorf("cluster: the node of the object has not answered: %w", err)
}

// refusal returns the error of a call that the other node has not passed to the object.
func refusal(c *dohost.RemoteCall, res *http.Response) error {
	body := &dohost.ErrorBody{Message: res.Status}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	if err == nil {
		err = json.Unmarshal(text, body)
	}
	if err != nil || body.Ran != dohost.OutcomeNotRun.String() {
		return failure(c, fmt.Errorf("cluster: the node of the object has answered with status %d: %s", res.StatusCode, body.Message), dohost.OutcomeUnknown, false)
	}
	refused := fmt.Errorf("cluster: the node of the object has refused the call: %s", body.Message)
	switch {
	case body.Overloaded:
		refused = errors.Join(refused, dohost.ErrOverloaded)
	case res.StatusCode == http.StatusMisdirectedRequest:
		refused = errors.Join(refused, errElsewhere)
	}
	return failure(c, refused, dohost.OutcomeNotRun, body.Retryable)
}
