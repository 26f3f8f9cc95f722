package cluster

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/dohost/dohost"
)

// CallHeader is the header of a request that carries a call of an object to an object in another cell: the call without its argument, and
// a signature by the secret of the cluster. The body is the argument.
const CallHeader = "Dohost-Call"

// callPath is the path of such a request, for logs of other programs. Nodes do not read it.
const callPath = "/dohost/call"

// The bounds of calls.
const (
	callTime       = 20 * time.Second // of an attempt
	maxCalls       = 2048             // that wait on a node
	maxObjectCalls = 256              // of these, to one object
	maxArgument    = 16 << 20         // bytes
	maxAnswer      = 17 << 20         // bytes of an answer: a result of 16 MiB, and the rest
	maxRefusal     = 64 << 10         // bytes of an error that is read
	maxIdleCalls   = 64               // idle connections to a node
	maxIdleTime    = time.Minute
)

// Callee is a [Host] whose objects other cells call. A *dohost.Host has these methods. Calls to the objects of another Host fail.
type Callee interface {
	// AnswerCall runs a call, or finds its stored answer.
	AnswerCall(ctx context.Context, c *dohost.RemoteCall) []byte
	// ReadCall reads the argument of a call to the object id within the read budget. release is not nil.
	ReadCall(r *http.Request, id dohost.ID) (ctx context.Context, argument []byte, release func(), err error)
	// WriteBody writes an answer within the send budget.
	WriteBody(w http.ResponseWriter, body []byte) error
	// WriteError answers a request whose argument cannot be read with a dohost.ErrorBody.
	WriteError(w http.ResponseWriter, err error)
}

// calls are the calls that wait for answers of other objects, and the connections for them. Its methods may be called from any goroutine.
type calls struct {
	// mu guards the rest. No lock is taken while it is held, and it is not held during I/O.
	mu       sync.Mutex
	waiting  int
	byObject map[dohost.ID]int
	client   *http.Transport // nil before the first call
}

var errTooManyCalls = fmt.Errorf("cluster: too many calls wait for the object, or on this node: %w", dohost.ErrOverloaded)

// begin counts a call. end ends it.
func (c *calls) begin(id dohost.ID) (client *http.Transport, end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting >= maxCalls || c.byObject[id] >= maxObjectCalls {
		return nil, nil, errTooManyCalls
	}
	if c.client == nil {
		c.byObject = map[dohost.ID]int{}
		c.client = transport(&http.Transport{MaxIdleConnsPerHost: maxIdleCalls, IdleConnTimeout: maxIdleTime, TLSHandshakeTimeout: dialTime})
	}
	c.waiting++
	c.byObject[id]++
	return c.client, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiting--
		if c.byObject[id]--; c.byObject[id] == 0 {
			delete(c.byObject, id)
		}
	}, nil
}

// close closes the idle connections.
func (c *calls) close() {
	c.mu.Lock()
	client := c.client
	c.mu.Unlock()
	if client != nil {
		client.CloseIdleConnections()
	}
}

// failure returns the error of an attempt.
func failure(c *dohost.RemoteCall, err error, o dohost.Outcome, retryable bool) error {
	return &dohost.Error{Op: c.Method, ID: c.ID, Err: err, Outcome: o, Retryable: retryable}
}

// errNotServed is the error of a call to a cell that no node serves.
var errNotServed = errors.New("cluster: no node serves the object at the moment")

// errElsewhere is the error of a call that has reached a node without the object.
var errElsewhere = &dohost.PublicError{Message: "cluster: another node has the object", Code: "elsewhere", Status: http.StatusMisdirectedRequest}

// InvokeRemote implements [dohost.Remote]: it sends a call to the node that serves the cell of the object, once, or calls the host of the cell
// on this node. An attempt takes at most 20 s. The argument of a call to another node has at most 16 MiB, and its answer 17 MiB.
//
// Errors: a *[dohost.Error], with its Outcome: [dohost.ErrOverloaded] while 256 other calls of this node wait for the object, or 2,048 for all
// objects; an error with the code "elsewhere" if the other node does not have the cell; and an error if no node serves the cell.
func (n *Node) InvokeRemote(ctx context.Context, c *dohost.RemoteCall) (answer []byte, err error) {
	client, end, err := n.calls.begin(c.ID)
	if err != nil {
		return nil, failure(c, err, dohost.OutcomeNotRun, false)
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	to := &target{cell: n.o.Cell(c.ID)}
	if h := n.Host(to.cell); h != nil {
		callee, ok := h.(Callee)
		if !ok {
			return nil, failure(c, errElsewhere, dohost.OutcomeNotRun, false)
		}
		return callee.AnswerCall(ctx, c), nil
	}
	if to.id, to.address = n.known.Load().holder(to.cell); to.address == "" || to.id == n.self.ID {
		return nil, failure(c, errNotServed, dohost.OutcomeNotRun, true)
	}
	ctx, done := n.inFlight.begin(ctx, to)
	defer done()
	return n.sendCall(ctx, client, to, c)
}

// sentCall is the content of CallHeader. The texts may not be UTF-8.
type sentCall struct {
	To     string `json:"to"` // the id of the node: a request that arrives at another process is refused
	Cell   int    `json:"cell"`
	Class  []byte `json:"class"`
	Name   []byte `json:"name"`
	Method []byte `json:"method"`
	// CallerClass and CallerName are empty for a caller outside of objects.
	CallerClass []byte `json:"caller_class"`
	CallerName  []byte `json:"caller_name"`
	CallID      []byte `json:"call_id"`
	Keep        int64  `json:"keep_ms"`
	Depth       int    `json:"depth"`
	Size        int64  `json:"size"` // of the argument
	Sum         []byte `json:"sum"`  // its SHA-256
}

// signCall returns the value of CallHeader.
func (n *Node) signCall(s *sentCall) string { return n.signContent(CallHeader, s) }

// verifyCall returns the content of CallHeader, and whether a node of the cluster has signed it.
func (n *Node) verifyCall(header []string) (s *sentCall, ok bool) {
	s = &sentCall{}
	return s, n.verifyContent(CallHeader, header, s) && s.Size <= maxArgument
}

// signContent returns the value of a header that has JSON in base64, and its signature.
func (n *Node) signContent(header string, content any) string {
	text, _ := json.Marshal(content) // it never fails
	fields := base64.RawURLEncoding.EncodeToString(text)
	return fields + " " + n.mac(header, fields)
}

// mac differs from the signature of any request that is passed on, and of any other header, since those begin with another text.
func (n *Node) mac(header, fields string) string {
	mac := hmac.New(sha256.New, n.o.Secret)
	for _, s := range []string{header, fields} {
		fmt.Fprintf(mac, "%d %s", len(s), s)
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// verifyContent decodes a header of signContent, and reports whether a node of the cluster has signed it.
func (n *Node) verifyContent(header string, values []string, content any) bool {
	if len(values) != 1 {
		return false
	}
	fields, mac, _ := strings.Cut(values[0], " ")
	if !hmac.Equal([]byte(n.mac(header, fields)), []byte(mac)) {
		return false
	}
	text, err := base64.RawURLEncoding.DecodeString(fields)
	return err == nil && json.Unmarshal(text, content) == nil
}
