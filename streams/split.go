package streams

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/dohost/dohost"
)

const (
	// chunkSize is the size of the chunks of an append in bytes, and of a page of a read: both end with the chunk that reaches it.
	chunkSize = 256 << 10
	// maxMessage bounds a JSON message in bytes. A chunk is a row, which has less than 2 MiB.
	maxMessage = 1 << 20
)

// splitBytes cuts the data of a stream of bytes into chunks. It does not cut a character of valid text.
func splitBytes(data []byte, text bool) (chunks [][]byte) {
	for len(data) > chunkSize {
		n := chunkSize
		for text && n > chunkSize-utf8.UTFMax && !utf8.RuneStart(data[n]) {
			n--
		}
		chunks, data = append(chunks, data[:n:n]), data[n:]
	}
	if len(data) > 0 {
		chunks = append(chunks, data)
	}
	return chunks
}

var (
	errNotUTF8 = errors.New("the body is not valid UTF-8")
	errNoJSON  = errors.New("the body is not JSON")
)

// splitJSON cuts a JSON value into chunks of messages with commas between them, without white space. The messages of an array are its
// elements; another value is one message. An empty array has no chunks.
//
// Errors: errNotUTF8, errNoJSON, a [*dohost.LimitError] for a message.
func splitJSON(body []byte) (chunks [][]byte, err error) {
	if !utf8.Valid(body) {
		return nil, errNotUTF8
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, body); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoJSON, err)
	}
	data := compact.Bytes()
	if data[0] != '[' {
		return [][]byte{data}, messageLimit(len(data))
	}
	for data = data[1 : len(data)-1]; len(data) > 0; {
		n, err := chunkOf(data)
		if err != nil {
			return nil, err
		}
		chunks = append(chunks, data[:n:n])
		data = data[min(n+1, len(data)):]
	}
	return chunks, nil
}

// chunkOf returns the size of the first chunk of messages: as many as fit, and at least one.
func chunkOf(data []byte) (int, error) {
	for size := -1; ; {
		n := messageSize(data[size+1:])
		if err := messageLimit(n); err != nil {
			return 0, err
		}
		if size > 0 && size+1+n > chunkSize {
			return size, nil
		}
		if size += 1 + n; size >= len(data) {
			return size, nil
		}
	}
}

// messageSize returns the number of bytes before the first comma that is neither in brackets nor in a string of JSON.
func messageSize(data []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth == 0:
			return i
		}
	}
	return len(data)
}

func messageLimit(n int) error {
	if n > maxMessage {
		return &dohost.LimitError{Subject: "message", Size: n, Limit: maxMessage}
	}
	return nil
}
