package dohost

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/dohost/dohost/internal/budget"
	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/runtime"
)

// The defaults of the options that bound the memory of a host for its clients, in bytes.
const (
	DefaultMaxFrame   = 4 << 20
	DefaultReadBudget = 256 << 20
	DefaultSendBudget = 256 << 20
)

// The bounds of the share of the budget for the body of one request.
const (
	// maxReserved is the largest share: a handler that reads a longer body is assumed not to keep all of it.
	maxReserved = 16 << 20
	// maxAnnounced is the largest share that a request gets for its Content-Length, before any byte arrives.
	maxAnnounced = 64 << 10
)

// leastFrames is the smallest read budget, in frames of the largest size: see Largest of package budget.
const leastFrames = 4

// limits returns the limits of the host's sockets.
func (o *Options) limits() socket.Limits {
	return socket.Limits{
		MaxFrame:   int64(cmp.Or(o.MaxFrame, DefaultMaxFrame)),
		Reads:      budget.New(cmp.Or(o.ReadBudget, DefaultReadBudget)),
		SendBudget: cmp.Or(o.SendBudget, DefaultSendBudget),
	}
}

func (o *Options) checkLimits() error {
	if o.MaxFrame < 0 || o.ReadBudget < 0 || o.SendBudget < 0 {
		return fmt.Errorf("dohost: Options.MaxFrame is %d, ReadBudget %d, SendBudget %d: want 0 for the default, or more",
			o.MaxFrame, o.ReadBudget, o.SendBudget)
	}
	if l := o.limits(); l.MaxFrame > l.Reads.Usage().Limit/leastFrames {
		return fmt.Errorf("dohost: Options.MaxFrame is %d, want at most %d, a quarter of the ReadBudget, %d",
			l.MaxFrame, l.Reads.Usage().Limit/leastFrames, l.Reads.Usage().Limit)
	}
	return nil
}

// BudgetUsage is the usage of a budget of a host at one moment. Refused counts the requests and frames
// that were refused, or the sockets that were closed and the responses that were cut, because the budget was exhausted.
type BudgetUsage = budget.Usage

// ReadBudget returns how much of [Options].ReadBudget is in use.
func (h *Host) ReadBudget() BudgetUsage { return h.reads.Usage() }

// SendBudget returns how much of [Options].SendBudget is in use.
func (h *Host) SendBudget() BudgetUsage { return h.sockets.SendUsage() }

// ReadBody reads the body of a request for an object to its end, within [Options].ReadBudget. The bytes count for the object id. With a
// zero id, they count for an object of their own. release returns the bytes to the budget: call it when the body is no longer
// needed. release is never nil. If the context of r comes from [Host.AuthorizeCall], a method that [Host.Invoke] calls with that
// context keeps the bytes until it returns, even if the caller of Invoke has gone.
//
// Errors: a [*LimitError] for a body that counts for more than a quarter of the budget; [ErrOverloaded] if the budget
// stays exhausted; the error of the read.
func (h *Host) ReadBody(r *http.Request, id ID) (body []byte, release func(), err error) {
	share, err := h.shareOf(r, id)
	if err != nil {
		return nil, func() {}, err
	}
	if share == nil {
		return nil, func() {}, nil
	}
	complete := false
	defer func() {
		if !complete { // the error of a read, a panic, or the end of the goroutine
			share.release()
		}
	}()
	body, err = io.ReadAll(&countedBody{r.Body, share})
	if err != nil {
		return nil, func() {}, err
	}
	complete = true
	if arg, ok := r.Context().Value(argumentKey{}).(*argument); ok {
		arg.share.Store(share)
	}
	return body, share.requestEnded, nil
}

// ReadCall is ReadBody for a request that carries the argument of a call from another host. The call is for the
// object id. The context is for [Host.AnswerCall].
func (h *Host) ReadCall(r *http.Request, id ID) (ctx context.Context, argument []byte, release func(), err error) {
	ctx = withArgument(r.Context())
	argument, release, err = h.ReadBody(r.WithContext(ctx), id)
	return ctx, argument, release, err
}

// withArgument returns a context for ReadBody and the call.
func withArgument(ctx context.Context) context.Context {
	return context.WithValue(ctx, argumentKey{}, &argument{})
}

type argumentKey struct{}

// argument connects the body that ReadBody reads with the call of Invoke, by the context of AuthorizeCall.
type argument struct{ share atomic.Pointer[bodyShare] }

// argumentShare returns the share of the argument of a call; nil if ReadBody has not read it.
func argumentShare(ctx context.Context) *bodyShare {
	arg, ok := ctx.Value(argumentKey{}).(*argument)
	if !ok {
		return nil
	}
	return arg.share.Load()
}

// bodyShare is the share of the budget for a request's body, until the handler has returned. A nil *bodyShare counts
// nothing.
type bodyShare struct {
	quit  <-chan struct{} // ends a wait
	limit int64           // of the bytes that count
	most  int64           // the bytes that count of the whole body, if it has the announced length

	// lease is taken and lowered with mu. The wait for the bytes is without it, so that release ends the wait.
	lease *budget.Lease

	mu       sync.Mutex // guards the rest
	read     int64
	taken    bool // the lease has bytes, or waits for them
	handler  bool // the handler has begun, and releases the share
	released bool // bytes that are read now are not counted
}

// shareOf returns the share of the body of a request for an object; nil for a request without a body. id may be zero. shareOf
// reserves the length that the client announces, up to maxAnnounced: a long body gets its bytes as they arrive.
//
// Errors: a *LimitError for a body that counts for more than the largest lease of the budget; ErrOverloaded.
func (h *Host) shareOf(r *http.Request, id ID) (*bodyShare, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	s := &bodyShare{quit: r.Context().Done(), lease: h.reads.Lease(budget.Object(id)), limit: h.reads.Largest()}
	if err := s.check(r.ContentLength); err != nil {
		return nil, err
	}
	s.most = min(s.limit, maxReserved)
	if r.ContentLength >= 0 {
		s.most = min(s.most, r.ContentLength)
	}
	return s, s.reserve(min(r.ContentLength, maxAnnounced))
}

// check returns an error for a body of n bytes that the budget has no room for, even if it is not in use.
func (s *bodyShare) check(n int64) error {
	if min(n, maxReserved) <= s.limit {
		return nil
	}
	return &LimitError{Subject: "request body", Size: int(n), Limit: int(s.limit)}
}

// reserve makes the share n bytes, unless it is released, and waits for them.
func (s *bodyShare) reserve(n int64) error {
	ready, err := s.take(n)
	if err != nil || ready == nil {
		return err
	}
	if err := s.lease.Wait(ready, s.quit); err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrOverloaded, err)
	}
	return nil
}

// take makes the share n bytes, unless it is released, or begins a wait.
func (s *bodyShare) take(n int64) (ready <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released || n <= budget.Free {
		return nil, nil
	}
	if err := s.check(n); err != nil {
		return nil, err
	}
	s.taken = true
	return s.lease.Take(min(n, maxReserved), s.most), nil
}

// complete returns the bytes that the share has for the rest of the body, which will not be read.
func (s *bodyShare) complete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken {
		n := min(s.read, maxReserved)
		s.lease.Lower(n, n)
	}
}

// begin keeps the share until release. The handler calls begin when it starts, and release when it returns: it may
// outlive the request.
func (s *bodyShare) begin() {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.handler, s.released = true, false
	}
}

func (s *bodyShare) release() {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.releaseLocked()
	}
}

// requestEnded releases the share unless the handler does.
func (s *bodyShare) requestEnded() {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.handler {
			s.releaseLocked()
		}
	}
}

func (s *bodyShare) releaseLocked() {
	s.released = true
	if s.taken {
		s.lease.Lower(0, 0)
		s.taken = false
	}
}

// grow adds n bytes that a read has returned with err, and waits until the budget has them.
//
// Errors: the errors of reserve; err.
func (s *bodyShare) grow(n int, err error) error {
	if s == nil {
		return err
	}
	s.mu.Lock()
	s.read += int64(n)
	read := s.read
	s.mu.Unlock()
	if full := s.reserve(read); full != nil {
		return full
	}
	if err != nil {
		s.complete()
	}
	return err
}

// countedBody counts the bytes that are read from a body.
type countedBody struct {
	io.Reader
	share *bodyShare
}

// Read reads.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	return n, b.share.grow(n, err)
}
