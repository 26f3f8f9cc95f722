package streams

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dohost/dohost"
)

func TestSplitJSON(t *testing.T) {
	for _, tt := range []struct{ body, want string }{
		{`{"a": 1}`, `{"a":1}`},
		{`"x,y"`, `"x,y"`},
		{`[1, [2, 3], {"a": [4, 5]}]`, `1,[2,3],{"a":[4,5]}`},
		{`[[[1,2,3]]]`, `[[1,2,3]]`},
		{` [ "a\"],[" , "\\" , null ] `, `"a\"],[","\\",null`},
		{`[]`, ``},
		{`[[]]`, `[]`},
	} {
		chunks, err := splitJSON([]byte(tt.body))
		if got := string(bytes.Join(chunks, []byte("|"))); err != nil || got != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.body, got, err, tt.want)
		}
	}
	for body, want := range map[string]error{`{`: errNoJSON, `1 2`: errNoJSON, ` `: errNoJSON, "\"\xff\"": errNotUTF8, `[1,]`: errNoJSON} {
		if _, err := splitJSON([]byte(body)); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", body, err, want)
		}
	}
	half := `"` + strings.Repeat("x", chunkSize/2-3) + `"` // two of them and a comma are one byte less than a chunk
	for extra, want := range []int{1, 1, 2} {
		body := "[" + half + "," + half[:1] + strings.Repeat("y", extra) + half[1:] + "]"
		if chunks, err := splitJSON([]byte(body)); err != nil || len(chunks) != want {
			t.Errorf("%d bytes of messages are %d chunks, %v; want %d", len(body)-2, len(chunks), err, want)
		}
	}
	large := `"` + strings.Repeat("x", maxMessage-2) + `"`
	if chunks, err := splitJSON([]byte(large)); err != nil || len(chunks) != 1 {
		t.Errorf("a message of %d bytes: %d chunks, %v", maxMessage, len(chunks), err)
	}
	for _, body := range []string{large[:1] + "y" + large[1:], "[1," + large[:1] + "y" + large[1:] + "]"} {
		if _, err := splitJSON([]byte(body)); !errors.As(err, new(*dohost.LimitError)) {
			t.Errorf("a message of %d bytes: %v", maxMessage+1, err)
		}
	}
}

// TestSplitJSONKeepsMessages draws messages. The chunks contain them in order, and are as large as they may be.
func TestSplitJSONKeepsMessages(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		var messages []any
		for range r.IntN(60) {
			text := strings.Repeat(string(`,"]}\é`[r.IntN(5)]), r.IntN(100_000)>>r.IntN(17))
			messages = append(messages, []any{text, map[string]any{text[:min(len(text), 9)]: 1.5}, nil}[r.IntN(3)])
		}
		body, err := json.Marshal(messages)
		if err != nil {
			t.Fatal(err)
		}
		if len(messages) == 0 {
			body = []byte("[]")
		}
		chunks, err := splitJSON(body)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var got []any
		if err := json.Unmarshal(fmt.Appendf(nil, "[%s]", bytes.Join(chunks, []byte(","))), &got); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(got)+len(messages) > 0 && !reflect.DeepEqual(got, messages) {
			t.Fatalf("seed %d: the chunks have %d other messages than the %d of the body", seed, len(got), len(messages))
		}
		for i, c := range chunks {
			if len(c) > chunkSize || i > 0 && len(chunks[i-1])+1+messageSize(c) <= chunkSize {
				t.Fatalf("seed %d: chunk %d of %d bytes", seed, i, len(c))
			}
		}
	}
}

func TestSplitBytes(t *testing.T) {
	text := strings.Repeat("é€😀", chunkSize/4)
	for shift := range 9 {
		data := []byte(text)[shift : len(text)-shift%2]
		chunks := splitBytes(data, true)
		if !bytes.Equal(bytes.Join(chunks, nil), data) || len(chunks) != 3 {
			t.Errorf("%d chunks, which differ from the data", len(chunks))
		}
		for i := 1; i < len(chunks); i++ {
			if !utf8.RuneStart(chunks[i][0]) || len(chunks[i-1]) > chunkSize {
				t.Errorf("chunk %d begins within a character, or is too large", i)
			}
		}
	}
	odd := bytes.Repeat([]byte{0x80}, 2*chunkSize+1) // no character begins
	for _, isText := range []bool{false, true} {
		if chunks := splitBytes(odd, isText); len(chunks) != 3 || !bytes.Equal(bytes.Join(chunks, nil), odd) {
			t.Errorf("%d chunks of bytes that are no text", len(chunks))
		}
	}
}
