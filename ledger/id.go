package ledger

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/dohost/dohost"
)

// ID identifies an operation of an object: "op_" and 26 lower-case letters and digits. It is the same in each attempt, so it
// can serve as the idempotency key of a request. Objects have different IDs for equal operations, except for an object that
// was imported from an export of the other. An ID reveals nothing about the arguments.
type ID string

// scopeKey is the context key of the scope.
type scopeKey struct{}

// scope is a scope and the position that it is in.
type scope struct {
	at    *dohost.WorkPosition
	names []string
}

// Scope returns a context whose operations belong to a scope. Without a scope and without a position ([dohost.WorkPosition]),
// operations with the same kind and the same arguments ([Kind].Same) are one operation of the object, until its row expires. With a
// scope, they are one operation of that scope. The name must be the same when the work is repeated: an order number or the ID
// of a schedule, not a random number or a time. Scopes nest: the scope of an operation is the list of all names, the
// outermost first. A position ends the scopes around it, since a repeated run begins without them.
func Scope(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, scopeKey{}, scope{dohost.WorkPositionOf(ctx), append(ScopeOf(ctx), name)})
}

// ScopeOf returns the names of the scope of ctx, the outermost first; nil if there is none. Code that gives ctx another position,
// and so ends the scope, uses it to set the scope again.
func ScopeOf(ctx context.Context) []string {
	s, _ := ctx.Value(scopeKey{}).(scope)
	if s.at != dohost.WorkPositionOf(ctx) {
		return nil
	}
	return append([]string(nil), s.names...)
}

// secretRow has the random part of the IDs of an object.
type secretRow struct {
	Name   string
	Secret []byte
}

var secrets = dohost.Collection[secretRow]{Name: "dohost.ledger", Key: func(r secretRow) string { return r.Name }}

// secretOf returns the secret of the object. The first operation writes it in the batch of its row: if that batch is lost, no
// call has begun with an ID of that secret.
func secretOf(ctx context.Context, st *dohost.State) ([]byte, error) {
	const name = "secret"
	r, ok, err := secrets.Get(ctx, st.Storage(), name)
	if err != nil || ok {
		return r.Value.Secret, err
	}
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // it never fails
	return secret, secrets.Insert(ctx, st.Storage(), secretRow{name, secret})
}

// idEncoding is the alphabet of IDs.
var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// idBytes is the number of bytes of the hash that an ID has.
const idBytes = 16

// newID computes the ID of an operation: a hash of all parts, each with its length before it. An operation without a position
// has no place.
func newID(secret []byte, kind string, scope []string, args []byte, at *place) ID {
	h := sha256.New()
	part := func(p []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
	part(secret)
	part([]byte(kind))
	part(binary.BigEndian.AppendUint64(nil, uint64(len(scope))))
	for _, name := range scope {
		part([]byte(name))
	}
	part(args)
	if at != nil {
		part([]byte(at.name))
		part(binary.BigEndian.AppendUint64(nil, at.number))
		part(binary.BigEndian.AppendUint64(nil, at.ordinal))
	}
	return ID("op_" + idEncoding.EncodeToString(h.Sum(nil)[:idBytes]))
}

// place is the place of an operation in durable work: see dohost.WorkPosition.
type place struct {
	name            string
	number, ordinal uint64
}

// String returns the place for a reader.
func (p *place) String() string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%s/%d/%d", p.name, p.number, p.ordinal)
}

// identify sets the ID, which depends on the position of ctx. A Do that returns an error does not pass its place, so a later equal
// Do of the run is a repetition.
func (o *task) identify(ctx context.Context, scope []string, form []byte) error {
	secret, err := secretOf(ctx, o.st)
	if err != nil {
		return err
	}
	o.id = newID(secret, o.kind, scope, form, nil)
	p := dohost.WorkPositionOf(ctx)
	if p.Name() == "" {
		return nil
	}
	o.equal = o.id
	at := &place{name: p.Name()}
	if at.number, at.ordinal, err = p.Next(ctx, string(o.equal)); err != nil {
		return err
	}
	o.place, o.id = at, newID(secret, o.kind, scope, form, at)
	return nil
}

// passed records that the operation has completed, and that its run gets the result.
func (o *task) passed(ctx context.Context) {
	if o.place != nil {
		dohost.WorkPositionOf(ctx).Pass(string(o.equal), o.place.number, o.place.ordinal)
	}
}

// scopeText returns the names of a scope for a reader.
func scopeText(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		if quoted[i] = n; strings.ContainsAny(n, "/\"") || n == "" {
			quoted[i] = fmt.Sprintf("%q", n)
		}
	}
	return strings.Join(quoted, "/")
}
