package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// passing passes a response of a stream to the stream's object, in batches.
type passing struct {
	drain  *drain
	stream *drainedStream
	target *Target
	name   string
	next   string // the offset at the end of the response
	taken  int64  // messages or bytes of the response before the batch
	batch  Batch
	size   int
}

const (
	// maxBatchMessages and maxBatch bound a batch: the second in bytes, beyond its first message.
	maxBatchMessages, maxBatch = 256, 1 << 20
)

// errMoved ends the work on a response: another drain, in a process that has lost its lease, has moved the object.
var errMoved = errors.New("consumer: the object has another position")

// pass passes a response, apart from the part that the object has.
func (p *passing) pass(ctx context.Context, r *response) error {
	had := p.stream.from().Skip
	var err error
	if r.json {
		err = p.passMessages(ctx, r, had)
	} else {
		err = p.passData(ctx, r, had)
	}
	if err == nil {
		err = p.flush(ctx, position{Offset: p.next})
	}
	if errors.Is(err, errMoved) {
		return nil // the next cycle continues there
	}
	return err
}

// flush passes the batch, which moves the object to next.
func (p *passing) flush(ctx context.Context, next position) error {
	p.batch.Subscription, p.batch.Stream = p.drain.of.ID, p.stream.Path
	at, err := p.target.take(ctx, p.drain.host, p.name, &taking{Batch: p.batch, From: p.stream.at, Next: next})
	if err != nil {
		return err
	}
	p.stream.at, p.stream.again = at, false
	if at != (storedPosition{next, true}) {
		return errMoved
	}
	p.batch, p.size = Batch{}, 0
	return nil
}

// flushPart passes a batch within the response.
func (p *passing) flushPart(ctx context.Context, size int) error {
	p.taken += int64(size)
	return p.flush(ctx, position{p.stream.from().Offset, p.taken})
}

// passMessages passes the elements of a JSON array.
func (p *passing) passMessages(ctx context.Context, r *response, had int64) error {
	bounded := &messageReader{from: r, limit: p.drain.of.maxMessage()}
	decoder := json.NewDecoder(bounded)
	t, err := decoder.Token()
	if err != nil {
		return cutOff(err)
	}
	if t != json.Delim('[') {
		return fmt.Errorf("consumer: the response is not an array of JSON, but begins with %.40v", t)
	}
	for n := int64(0); decoder.More(); n++ {
		bounded.begin = decoder.InputOffset()
		var message json.RawMessage
		if err := decoder.Decode(&message); err != nil {
			return cutOff(err)
		}
		if int64(len(message)) > bounded.limit {
			return bounded.tooLarge()
		}
		bounded.begin = decoder.InputOffset()
		if n < had {
			p.taken++
			continue
		}
		if in := len(p.batch.Messages); in > 0 && (in == maxBatchMessages || p.size+len(message) > maxBatch) {
			if err := p.flushPart(ctx, in); err != nil {
				return err
			}
		}
		p.batch.Messages, p.size = append(p.batch.Messages, message), p.size+len(message)
	}
	if _, err = decoder.Token(); err != nil { // there is no end of the array
		return cutOff(err)
	}
	return nil
}

// cutOff returns the error of a response that has ended early, or is not JSON.
func cutOff(err error) error {
	return fmt.Errorf("consumer: reading the response of the server: %w", err)
}

// passData passes bytes.
func (p *passing) passData(ctx context.Context, r *response, had int64) error {
	if n, err := io.CopyN(io.Discard, r, had); err != nil {
		return fmt.Errorf("consumer: the response has %d bytes, but the object has %d of it: %w", n, had, err)
	}
	p.taken = had
	for {
		part, err := readPart(r)
		if errors.Is(err, io.EOF) {
			p.batch.Data = part
			return nil
		}
		if err != nil {
			return cutOff(err)
		}
		p.batch.Data = part
		if err := p.flushPart(ctx, len(part)); err != nil {
			return err
		}
	}
}

// readPart reads maxBatch bytes, or less with io.EOF. io.ReadFull would not distinguish an end from a response that was cut off.
func readPart(r io.Reader) (part []byte, err error) {
	part = make([]byte, maxBatch)
	n := 0
	for n < len(part) && err == nil {
		var m int
		m, err = r.Read(part[n:])
		n += m
	}
	if n == len(part) {
		return part, nil // an error is repeated by the next Read
	}
	return part[:n], err
}

// messageReader bounds the bytes that a decoder reads for a message. The decoder reads only if it has no complete message, and it reads ahead.
type messageReader struct {
	from  io.Reader
	limit int64
	read  int64
	begin int64 // of the message
}

// readAhead is room for the comma and the space before a message, and for the end of a number.
const readAhead = 512

func (m *messageReader) Read(b []byte) (int, error) {
	if m.read-m.begin > m.limit+readAhead {
		return 0, m.tooLarge()
	}
	n, err := m.from.Read(b)
	m.read += int64(n)
	return n, err
}

func (m *messageReader) tooLarge() error {
	return fmt.Errorf("consumer: a message has more than %d bytes", m.limit)
}
