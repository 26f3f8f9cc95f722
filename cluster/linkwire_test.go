package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/dohost/dohost"
)

func inputsOfTests() []*dohost.LinkInput {
	return []*dohost.LinkInput{
		{Socket: 1, Number: 1, Frame: dohost.Frame{Text: true, Data: []byte("text")}},
		{Socket: 1 << 63, Number: 300, Frame: dohost.Frame{Data: []byte{}}},
		{Socket: 300, Number: 2, Closing: &dohost.Closing{Code: 1006, Reason: "broken \xff"}},
		{Socket: 3, Number: 1, Closing: &dohost.Closing{Code: 1000, Clean: true}},
	}
}

func outputsOfTests() []*dohost.LinkOutput {
	return []*dohost.LinkOutput{
		{Sockets: []uint64{1, 1 << 40}, Position: "p1", Frame: &dohost.Frame{Text: true, Data: []byte("text")}},
		{Sockets: []uint64{7}, Position: strings.Repeat("p", maxPosition), Frame: &dohost.Frame{Data: []byte{}}},
		{Sockets: []uint64{7}, Position: "p2", Closing: &dohost.Closing{Code: 4000, Reason: "why", Clean: true}},
		{Sockets: []uint64{7}, Received: 9},
		{Sockets: []uint64{7}, Gone: true}, {Sockets: []uint64{7}, Gone: true, Closing: &dohost.Closing{Code: 1008}}, {},
	}
}

func TestMessagesOfLinksRoundTrip(t *testing.T) {
	for _, in := range inputsOfTests() {
		if got, err := decodeInput(appendInput(nil, in)); err != nil || !reflect.DeepEqual(got, in) {
			t.Errorf("%+v, %v, want %+v", got, err, in)
		}
	}
	for _, out := range outputsOfTests() {
		if got, err := decodeOutput(appendOutput(nil, out)); err != nil || !reflect.DeepEqual(got, out) {
			t.Errorf("%+v, %v, want %+v", got, err, out)
		}
	}
	if got, err := decodeAck(appendAck(nil, "p1")); err != nil || got != "p1" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestHelloRoundTrips has handshakes that need several messages, and values of headers that are not UTF-8.
func TestHelloRoundTrips(t *testing.T) {
	o := &dohost.LinkOptions{Next: 5000, After: "after\xff"}
	for i := range 200 {
		r := &http.Request{
			Method: http.MethodGet, URL: &url.URL{Path: fmt.Sprint("/", i), RawQuery: "q=%zz"}, Host: "host", RemoteAddr: "10.0.0.1:1", Header: http.Header{
				"Cookie": {"\xff", strings.Repeat("c", 10_000)}, "Dohost-Empty": {""},
			},
		}
		o.Sockets = append(o.Sockets, dohost.LinkedSocket{Number: uint64(i + 1), Opening: i%3 == 0, Handshake: r})
	}
	messages, got := helloMessages([]byte("proof"), o), &dohost.LinkOptions{}
	for i, p := range messages {
		h, err := decodeHello(p, got)
		if err != nil || (string(h.Proof) == "proof") != (i == 0) || h.Last != (i == len(messages)-1) || len(p) > maxHelloPart*3/2 {
			t.Fatalf("message %d of %d: %d bytes, %v", i, len(messages), len(p), err)
		}
	}
	if len(messages) < 3 || got.Next != o.Next || got.After != o.After || len(got.Sockets) != len(o.Sockets) {
		t.Fatalf("%d messages, %d sockets, %d, %q", len(messages), len(got.Sockets), got.Next, got.After)
	}
	for i, s := range o.Sockets {
		g := got.Sockets[i]
		if g.Number != s.Number || g.Opening != s.Opening || g.Handshake.URL.String() != s.Handshake.URL.String() || g.Handshake.Host != "host" ||
			g.Handshake.RemoteAddr != "10.0.0.1:1" || g.Handshake.Method != http.MethodGet || !reflect.DeepEqual(g.Handshake.Header, s.Handshake.Header) {
			t.Fatalf("socket %d: %+v", i, g)
		}
	}
}

func TestMessagesThatAreMalformedAreRefused(t *testing.T) {
	input := func(p []byte) error { _, err := decodeInput(p); return err }
	output := func(p []byte) error { _, err := decodeOutput(p); return err }
	ack := func(p []byte) error { _, err := decodeAck(p); return err }
	hello := func(p []byte) error { _, err := decodeHello(p, &dohost.LinkOptions{}); return err }
	long := strings.Repeat("x", maxCloseReason+1)
	cases := 0
	for name, err := range map[string]error{
		"an empty input": input(nil), "an input of another kind": input([]byte{outputMessage, 1, 1, hasFrame}), "socket 0": input([]byte{inputMessage, 0, 1, hasFrame}),
		"input 0": input([]byte{inputMessage, 1, 0, hasFrame}), "a cut number": input([]byte{inputMessage, 0x80}), "no flags": input([]byte{inputMessage, 1, 1, 0}),
		"both":                        input([]byte{inputMessage, 1, 1, hasFrame | hasClosing, 0}),
		"a long reason":               input(appendInput(nil, &dohost.LinkInput{Socket: 1, Number: 1, Closing: &dohost.Closing{Reason: long}})),
		"a code that is too large":    input(appendInput(nil, &dohost.LinkInput{Socket: 1, Number: 1, Closing: &dohost.Closing{Code: 1 << 16}})),
		"an empty output":             output([]byte{outputMessage}),
		"more sockets than bytes":     output([]byte{outputMessage, hasFrame, 0x80, 0x80, 1}),
		"too many sockets":            output(appendOutput(nil, &dohost.LinkOutput{Sockets: make([]uint64, maxLinkSockets+1)})),
		"a long position":             output(appendOutput(nil, &dohost.LinkOutput{Position: strings.Repeat("x", maxPosition+1)})),
		"a position that is cut":      output([]byte{outputMessage, hasFrame, 0, 2, 'x'}),
		"bytes after an output":       output(append(appendOutput(nil, &dohost.LinkOutput{Gone: true}), 1)),
		"unknown flags":               output([]byte{outputMessage, 0x40, 0, 0}),
		"a text without a frame":      output([]byte{outputMessage, isText, 0, 0}),
		"clean without closing":       output([]byte{outputMessage, isClean, 0, 0}),
		"received 0":                  output([]byte{outputMessage, hasReceived, 0, 0, 0}),
		"a long reason of an output":  output(appendOutput(nil, &dohost.LinkOutput{Closing: &dohost.Closing{Reason: long}})),
		"a long position of an ack":   ack(appendAck(nil, strings.Repeat("x", maxPosition+1))),
		"an ack of another kind":      ack([]byte{aliveMessage}),
		"an empty hello":              hello(nil),
		"a hello that is not JSON":    hello([]byte{helloMessage, '{'}),
		"two hellos":                  hello([]byte{helloMessage, '{', '}', '{', '}'}),
		"a part without sockets":      hello([]byte{helloMessage, '{', '}'}),
		"a socket without a URL":      hello([]byte(string(helloMessage) + `{"last":true,"sockets":[{"number":1}]}`)),
		"a socket without a number":   hello([]byte(string(helloMessage) + `{"last":true,"sockets":[{"url":"Lw=="}]}`)),
		"a hello with a long after":   hello([]byte(string(helloMessage) + `{"last":true,"after":"` + strings.Repeat("AAAA", maxPosition) + `"}`)),
		"a hello with another field":  hello([]byte(string(helloMessage) + `{"last":true,"x":1}`)),
		"a hello of too many sockets": hello([]byte(string(helloMessage) + `{"last":true,"sockets":[` + strings.Repeat(`{"number":1,"url":"Lw=="},`, maxLinkSockets) + `{"number":1,"url":"Lw=="}]}`)),
	} {
		cases++
		if _, ok := errors.AsType[*badMessage](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if cases != 31 {
		t.Errorf("%d cases", cases)
	}
}

// FuzzMessagesOfLinks decodes any bytes. A message that is accepted has the same content after it was encoded again.
func FuzzMessagesOfLinks(f *testing.F) {
	for _, in := range inputsOfTests() {
		f.Add(appendInput(nil, in))
	}
	for _, out := range outputsOfTests() {
		f.Add(appendOutput(nil, out))
	}
	for _, p := range helloMessages(nil, &dohost.LinkOptions{Next: 1}) {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if in, err := decodeInput(p); err == nil {
			if again, err := decodeInput(appendInput(nil, in)); err != nil || !reflect.DeepEqual(again, in) {
				t.Errorf("%+v, %v, want %+v", again, err, in)
			}
		}
		if out, err := decodeOutput(p); err == nil {
			if again, err := decodeOutput(appendOutput(nil, out)); err != nil || !reflect.DeepEqual(again, out) {
				t.Errorf("%+v, %v, want %+v", again, err, out)
			}
		}
		if s, err := decodeAck(p); err == nil && len(s) > maxPosition {
			t.Errorf("a position of %d bytes", len(s))
		}
		o := &dohost.LinkOptions{}
		if _, err := decodeHello(p, o); err == nil && len(o.Sockets) > maxLinkSockets {
			t.Errorf("%d sockets", len(o.Sockets))
		}
	})
}
