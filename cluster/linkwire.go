package cluster

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/dohost/dohost"
)

// The messages of a link between nodes are binary messages of a WebSocket. The first byte of each is its kind. Numbers are unsigned varints.
//
//	edge to owner  helloMessage   JSON of linkHello: a part of the sockets; the last part begins the link
//	               inputMessage   socket, number, flags, and the data of the frame; or code and reason
//	               ackMessage     position
//	owner to edge  readyMessage   empty: the link is made
//	               outputMessage  see appendOutput
//	both           aliveMessage   empty, every 10 s: the other side ends the link if nothing arrives for 20 s
const (
	helloMessage byte = 1 + iota
	inputMessage
	ackMessage
	readyMessage
	outputMessage
	aliveMessage
)

// The bounds of messages, in bytes if not stated otherwise.
const (
	maxLinkSockets = 32_768    // sockets of an object
	maxHelloPart   = 1 << 20   // of the handshakes in a helloMessage, or one handshake
	maxHellos      = 256 << 20 // of all helloMessages of a link
	maxPosition    = 256
	maxCloseReason = 1024
	maxLinkMessage = 40 << 20 // of any message: an output has at most 32 MiB of data
)

// The flags of an input or an output.
const (
	hasFrame byte = 1 << iota
	isText
	hasClosing
	isClean
	isGone
	hasReceived
)

// badMessage is an error of a message that no node of the cluster sends.
type badMessage struct{ why string }

// Error implements error.
func (e *badMessage) Error() string { return "cluster: malformed message of a link: " + e.why }

// linkHello is the content of a helloMessage. Texts may not be UTF-8.
type linkHello struct {
	Proof   []byte       `json:"proof,omitempty"` // in the first part: that the sender has the secret
	Sockets []linkSocket `json:"sockets,omitempty"`
	// In the last part:
	Last  bool   `json:"last,omitempty"`
	Next  uint64 `json:"next,omitempty"`
	After []byte `json:"after,omitempty"`
}

// linkSocket is a dohost.LinkedSocket.
type linkSocket struct {
	Number  uint64              `json:"number"`
	Opening bool                `json:"opening,omitempty"`
	Method  []byte              `json:"method"`
	URL     []byte              `json:"url"`
	Host    []byte              `json:"host"`
	Remote  []byte              `json:"remote"`
	Header  map[string][][]byte `json:"header"`
}

// size is about the number of bytes in a message, and at least that.
func (s *linkSocket) size() int {
	n := 128 + 4*(len(s.Method)+len(s.URL)+len(s.Host)+len(s.Remote))/3
	for name, values := range s.Header {
		n += 6*len(name) + 8 // JSON escapes some characters of names
		for _, v := range values {
			n += 4*len(v)/3 + 8
		}
	}
	return n
}

func toLinkSocket(s *dohost.LinkedSocket) linkSocket {
	r := s.Handshake
	to := linkSocket{
		Number: s.Number, Opening: s.Opening, Method: []byte(r.Method), URL: []byte(r.URL.RequestURI()), Host: []byte(r.Host), Remote: []byte(r.RemoteAddr),
		Header: make(map[string][][]byte, len(r.Header)),
	}
	for name, values := range r.Header {
		for _, v := range values {
			to.Header[name] = append(to.Header[name], []byte(v))
		}
	}
	return to
}

func (s *linkSocket) linked() (dohost.LinkedSocket, error) {
	u, err := url.ParseRequestURI(string(s.URL))
	if err != nil || s.Number == 0 {
		return dohost.LinkedSocket{}, &badMessage{"the handshake of a socket has no URL, or the socket no number"}
	}
	r := &http.Request{
		Method: string(s.Method), URL: u, RequestURI: string(s.URL), Host: string(s.Host), RemoteAddr: string(s.Remote), Body: http.NoBody,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: make(http.Header, len(s.Header)),
	}
	for name, values := range s.Header {
		for _, v := range values {
			r.Header[name] = append(r.Header[name], string(v))
		}
	}
	return dohost.LinkedSocket{Number: s.Number, Opening: s.Opening, Handshake: r}, nil
}

// helloMessages returns the options of a link as messages.
func helloMessages(proof []byte, o *dohost.LinkOptions) [][]byte {
	var list [][]byte
	h, size := linkHello{Proof: proof}, 0
	end := func() {
		text, _ := json.Marshal(&h) // it never fails
		list = append(list, append([]byte{helloMessage}, text...))
		h, size = linkHello{}, 0
	}
	for i := range o.Sockets {
		s := toLinkSocket(&o.Sockets[i])
		if n := s.size(); size > 0 && size+n > maxHelloPart {
			end()
		}
		h.Sockets = append(h.Sockets, s)
		size += s.size()
	}
	h.Last, h.Next, h.After = true, o.Next, []byte(o.After)
	end()
	return list
}

// decodeHello adds the content of a helloMessage to the options, and returns it.
func decodeHello(p []byte, o *dohost.LinkOptions) (*linkHello, error) {
	if len(p) == 0 || p[0] != helloMessage {
		return nil, &badMessage{"want a hello"}
	}
	h := &linkHello{}
	d := json.NewDecoder(bytes.NewReader(p[1:]))
	if d.DisallowUnknownFields(); d.Decode(h) != nil || d.More() {
		return nil, &badMessage{"the hello is not the JSON of one"}
	}
	if len(h.After) > maxPosition || len(o.Sockets)+len(h.Sockets) > maxLinkSockets || !h.Last && len(h.Sockets) == 0 {
		return nil, &badMessage{"the hello has too many sockets, none in a part, or a position that is too long"}
	}
	for i := range h.Sockets {
		s, err := h.Sockets[i].linked()
		if err != nil {
			return nil, err
		}
		o.Sockets = append(o.Sockets, s)
	}
	if h.Last {
		o.Next, o.After = h.Next, string(h.After)
	}
	return h, nil
}

func appendInput(p []byte, in *dohost.LinkInput) []byte {
	p = binary.AppendUvarint(append(p, inputMessage), in.Socket)
	p = binary.AppendUvarint(p, in.Number)
	if c := in.Closing; c != nil {
		flags := hasClosing
		if c.Clean {
			flags |= isClean
		}
		return append(binary.AppendUvarint(append(p, flags), uint64(c.Code)), c.Reason...)
	}
	flags := hasFrame
	if in.Frame.Text {
		flags |= isText
	}
	return append(append(p, flags), in.Frame.Data...)
}

// decodeInput decodes an inputMessage. The frame shares the memory of p.
func decodeInput(p []byte) (*dohost.LinkInput, error) {
	d := &decoder{rest: p}
	d.kind(inputMessage)
	in := &dohost.LinkInput{Socket: d.number(), Number: d.number()}
	switch flags := d.flags(); {
	case d.err != nil:
	case in.Socket == 0 || in.Number == 0:
		d.fail("an input has no socket, or no number")
	case flags&^isText == hasFrame:
		in.Frame = dohost.Frame{Text: flags&isText != 0, Data: d.rest}
	case flags&^isClean == hasClosing:
		in.Closing = &dohost.Closing{Code: d.code(), Clean: flags&isClean != 0, Reason: d.text(uint64(len(d.rest)), maxCloseReason)}
	default:
		d.fail("unknown flags of an input")
	}
	return in, d.err
}

func appendAck(p []byte, position string) []byte { return append(append(p, ackMessage), position...) }

func decodeAck(p []byte) (string, error) {
	d := &decoder{rest: p}
	d.kind(ackMessage)
	return d.text(uint64(len(d.rest)), maxPosition), d.err
}

// appendOutput appends flags, the number of sockets and each of them, the length of the position and the position, the received number if
// it has one, the code, the length of the reason, and the reason if it has a closing frame, and the data of the frame if it has one.
func appendOutput(p []byte, out *dohost.LinkOutput) []byte {
	flags := byte(0)
	set := func(yes bool, flag byte) {
		if yes {
			flags |= flag
		}
	}
	set(out.Frame != nil, hasFrame)
	set(out.Frame != nil && out.Frame.Text, isText)
	set(out.Closing != nil, hasClosing)
	set(out.Closing != nil && out.Closing.Clean, isClean)
	set(out.Gone, isGone)
	set(out.Received != 0, hasReceived)
	p = binary.AppendUvarint(append(p, outputMessage, flags), uint64(len(out.Sockets)))
	for _, s := range out.Sockets {
		p = binary.AppendUvarint(p, s)
	}
	p = append(binary.AppendUvarint(p, uint64(len(out.Position))), out.Position...)
	if out.Received != 0 {
		p = binary.AppendUvarint(p, out.Received)
	}
	if c := out.Closing; c != nil {
		p = binary.AppendUvarint(p, uint64(c.Code))
		p = append(binary.AppendUvarint(p, uint64(len(c.Reason))), c.Reason...)
	}
	if out.Frame != nil {
		p = append(p, out.Frame.Data...)
	}
	return p
}

// decodeOutput decodes an outputMessage. The frame shares the memory of p.
func decodeOutput(p []byte) (*dohost.LinkOutput, error) {
	d := &decoder{rest: p}
	d.kind(outputMessage)
	flags := d.flags()
	out := &dohost.LinkOutput{Gone: flags&isGone != 0}
	if n := d.number(); n > min(maxLinkSockets, uint64(len(d.rest))) {
		d.fail("too many sockets of an output")
	} else if n > 0 {
		out.Sockets = make([]uint64, n)
		for i := range out.Sockets {
			out.Sockets[i] = d.number()
		}
	}
	out.Position = d.text(d.number(), maxPosition)
	if flags&hasReceived != 0 {
		if out.Received = d.number(); out.Received == 0 {
			d.fail("an output has received input 0")
		}
	}
	if flags&hasClosing != 0 {
		out.Closing = &dohost.Closing{Clean: flags&isClean != 0, Code: d.code()}
		out.Closing.Reason = d.text(d.number(), maxCloseReason)
	}
	switch {
	case flags >= hasReceived<<1 || flags&isText != 0 && flags&hasFrame == 0 || flags&isClean != 0 && flags&hasClosing == 0:
		d.fail("unknown flags of an output")
	case flags&hasFrame != 0:
		out.Frame = &dohost.Frame{Text: flags&isText != 0, Data: d.rest}
	case len(d.rest) > 0:
		d.fail("bytes after an output")
	}
	return out, d.err
}

// decoder decodes a message. After the first error its methods return zero values.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(why string) {
	if d.err == nil {
		d.rest, d.err = nil, &badMessage{why}
	}
}

func (d *decoder) kind(want byte) {
	if d.flags() != want {
		d.fail("a message of another kind")
	}
}

func (d *decoder) flags() byte {
	if len(d.rest) == 0 {
		d.fail("a message is too short")
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 {
		d.fail("a number is cut, or too large")
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

// code decodes a closing code.
func (d *decoder) code() int {
	n := d.number()
	if n > 1<<16-1 {
		d.fail("a closing code is too large")
		return 0
	}
	return int(n)
}

// text decodes a text of a length.
func (d *decoder) text(length, limit uint64) string {
	if length > limit || length > uint64(len(d.rest)) {
		d.fail(fmt.Sprintf("a text has %d bytes; the limit is %d, and %d are left", length, limit, len(d.rest)))
		return ""
	}
	s := string(d.rest[:length])
	d.rest = d.rest[length:]
	return s
}
