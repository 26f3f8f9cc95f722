package frame

import (
	"fmt"

	"github.com/oklog/ulid/v2"
)

// Error reports a frame that does not continue a history.
type Error struct {
	// Number is that of the record that was expected, or of the base.
	Number uint64
	// Base reports whether a part of a base was expected; Part is its number then.
	Base bool
	Part uint32
	// Reason is why the frame is refused, as a clause.
	Reason string
}

// Error implements error.
func (e *Error) Error() string {
	if e == nil {
		return "nil *frame.Error"
	}
	if e.Base {
		return fmt.Sprintf("part %d of the base of record %d: %s", e.Part, e.Number, e.Reason)
	}
	return fmt.Sprintf("record %d: %s", e.Number, e.Reason)
}

// Position is a place in the history of a store: after the record with its number. The position before the first record has
// the number 0 and a sum of zeros. Positions are comparable.
type Position struct {
	Store      ulid.ULID
	Fork       uint32
	Generation uint64
	Number     uint64
	Time       int64
	Sum        Sum
}

// After returns the position after a record.
func After(f *Frame) Position {
	return Position{f.Store, f.Fork, f.Generation, f.Number, f.Time, f.Sum}
}

// Header returns the header of the next record, made by a host of this generation at this time. A clock that runs
// backward does not make the time of a record less than that of the record before.
func (p *Position) Header(generation uint64, time int64) Header {
	return Header{
		Kind: KindRecord, Store: p.Store, Fork: p.Fork, Generation: generation, Number: p.Number + 1,
		Time: max(time, p.Time), Prev: p.Sum,
	}
}

// Next decodes the record at the beginning of b, which must continue p, and moves p after it. It returns the bytes after the
// frame. The error is an *Error, and leaves p as it was.
func (p *Position) Next(b []byte) (f Frame, rest []byte, err error) {
	f, rest, err = Decode(b)
	reason := ""
	switch {
	case err != nil:
		reason = err.Error()
	case f.Kind != KindRecord || f.Part != 0:
		reason = "the frame in its place is no record"
	default:
		reason = p.refuses(&f)
	}
	if reason != "" {
		return Frame{}, nil, &Error{Number: p.Number + 1, Reason: reason}
	}
	*p = After(&f)
	return f, rest, nil
}

// refuses returns why a record does not continue p, or nothing.
func (p *Position) refuses(f *Frame) string {
	switch {
	case f.Store != p.Store || f.Fork != p.Fork:
		return fmt.Sprintf("the frame in its place is of store %v/%08x, want %v/%08x", f.Store, f.Fork, p.Store, p.Fork)
	case f.Number <= p.Number:
		return fmt.Sprintf("record %d is repeated", f.Number)
	case f.Number > p.Number+1:
		return fmt.Sprintf("it is missing, found record %d", f.Number)
	case f.Prev != p.Sum:
		return fmt.Sprintf("it does not continue this record %d, but another one", p.Number)
	case f.Generation < p.Generation:
		return fmt.Sprintf("its generation is %d, the record before has generation %d", f.Generation, p.Generation)
	case f.Time < p.Time:
		return "its time precedes the time of the record before"
	}
	return ""
}

// BaseHeader returns the header of a part of a base of the state at p. before is the sum of the part before it; it is not
// used for part 0.
func (p *Position) BaseHeader(part uint32, end bool, before Sum) Header {
	h := Header{
		Kind: KindBase, Store: p.Store, Fork: p.Fork, Generation: p.Generation, Number: p.Number, Part: part,
		Time: p.Time, Prev: before,
	}
	if part == 0 {
		h.Prev = p.Sum
	}
	if end {
		h.Kind = KindBaseEnd
	}
	return h
}

// Base verifies the parts of a base.
type Base struct {
	at   Position
	part uint32
	last Sum
	done bool
}

// NewBase returns a verifier of the base with this number.
func NewBase(number uint64) *Base { return &Base{at: Position{Number: number}} }

// Next decodes b, which must be the next part and nothing else. The error is an *Error.
func (b *Base) Next(part []byte) (f Frame, err error) {
	f, rest, err := Decode(part)
	reason := ""
	switch {
	case err != nil:
		reason = err.Error()
	case b.done:
		reason = "it follows the last part"
	case f.Kind != KindBase && f.Kind != KindBaseEnd:
		reason = "the frame in its place is no part of a base"
	case f.Number != b.at.Number:
		reason = fmt.Sprintf("the frame in its place is of the base of record %d", f.Number)
	case f.Part != b.part:
		reason = fmt.Sprintf("part %d is in its place", f.Part)
	case len(rest) > 0:
		reason = fmt.Sprintf("%d bytes follow its frame", len(rest))
	case b.part > 0 && (f.Store != b.at.Store || f.Fork != b.at.Fork || f.Generation != b.at.Generation || f.Time != b.at.Time):
		reason = "the frame in its place is of another base"
	case b.part > 0 && f.Prev != b.last:
		reason = "it does not continue the part before, but another one"
	}
	if reason != "" {
		return Frame{}, &Error{Number: b.at.Number, Base: true, Part: b.part, Reason: reason}
	}
	if b.part == 0 {
		b.at = Position{f.Store, f.Fork, f.Generation, f.Number, f.Time, f.Prev}
	}
	b.part, b.last, b.done = b.part+1, f.Sum, f.Kind == KindBaseEnd
	return f, nil
}

// Position returns the position of the base, and whether all of its parts were verified.
func (b *Base) Position() (p Position, complete bool) { return b.at, b.done }
