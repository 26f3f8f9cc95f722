package logtest

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/dohost/dohost/sharedlog"
)

// base is a published base, or none if its number is 0. Its content never changes.
type base struct {
	number  uint64
	content []byte
}

// Base returns the newest base; the number 0 if there is none. A change of the content does not change the log.
func (l *Log) Base() (number uint64, content []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.base.number, bytes.Clone(l.base.content)
}

// CorruptBase replaces the content of the newest base, as a faulty log does.
func (l *Log) CorruptBase(content []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.base.content = bytes.Clone(content)
}

func (o *lease) Base() uint64 { return o.base.number }

func (o *lease) ReadBase(ctx context.Context) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(o.base.content)), nil
}

// torn is a writer that fails after some bytes.
type torn struct {
	bytes.Buffer
	left int // bytes until it fails; negative if it does not
}

func (w *torn) Write(b []byte) (int, error) {
	if w.left >= 0 && len(b) > w.left {
		n, _ := w.Buffer.Write(b[:w.left])
		w.left = 0
		return n, fmt.Errorf("logtest: a fault: %w", sharedlog.ErrUnavailable)
	}
	if w.left >= 0 {
		w.left -= len(b)
	}
	return w.Buffer.Write(b)
}

// tornAfter is how many bytes of a base are written before it fails.
const tornAfter = 100

func (o *lease) WriteBase(ctx context.Context, number uint64, write func(io.Writer) error) error {
	fault := o.baseFault(BaseStep{Generation: o.generation, Number: number})
	w := &torn{left: -1}
	if fault == FaultUnavailable {
		w.left = tornAfter
	}
	if err := write(w); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := fault.fail(); err != nil {
		return err
	}
	return fault.answer(o.publish(base{number, w.Bytes()}))
}

func (o *lease) baseFault(s BaseStep) Fault {
	if o.log.OnBase == nil {
		return FaultNone
	}
	return o.log.OnBase(s)
}

func (o *lease) publish(b base) error {
	l := o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case o.invalid:
		return fmt.Errorf("logtest: generation %d: %w", o.generation, sharedlog.ErrFenced)
	case b.number == 0 || b.number < l.base.number || b.number > l.newestLocked():
		return fmt.Errorf("logtest: base of record %d, the newest base is %d and the newest record %d", b.number, l.base.number, l.newestLocked())
	}
	l.base = b
	return nil
}

func (o *lease) Purge(ctx context.Context, before uint64) error {
	fault := o.baseFault(BaseStep{Generation: o.generation, Number: before, Purge: true})
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := fault.fail(); err != nil {
		return err
	}
	return fault.answer(o.purge(before))
}

func (o *lease) purge(before uint64) error {
	l := o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case o.invalid:
		return fmt.Errorf("logtest: generation %d: %w", o.generation, sharedlog.ErrFenced)
	case before > l.base.number && !l.Unchecked || before > l.newestLocked():
		return fmt.Errorf("logtest: purge of the records before %d, the newest base is %d", before, l.base.number)
	}
	if before > l.purged+1 {
		l.records = clone(l.records[before-l.purged-1:])
		l.purged = before - 1
	}
	return nil
}
