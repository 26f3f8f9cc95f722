package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// canonical returns the JSON of a value, and its canonical form, which is part of the IDs of operations, and so of the format on disk:
//
//   - JSON without spaces, with the members of an object in the order of the bytes of their names
//   - without members that are null
//   - numbers are exact decimals: digits without zeros at either end, and an exponent of ten, if it is not zero. 1200, 1200.0
//     and 1.2e3 are 12e2, and -0 is 0
//   - in strings, only the quotation mark, the backslash and control characters are escaped
//
// It refuses strings that are not UTF-8, since encoding/json would replace different ones by the same character; objects with
// two members of one name; exponents outside of ±1,000,000; and values that their JSON does not distinguish (checkComplete).
func canonical(v any) (data, form []byte, err error) {
	if data, err = json.Marshal(v); err != nil {
		return nil, nil, err
	}
	if len(data) > maxForm {
		return nil, nil, fmt.Errorf("%d bytes as JSON, more than %d", len(data), maxForm)
	}
	if err := checkComplete(reflect.ValueOf(v)); err != nil {
		return nil, nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	c := canonicalizer{dec: dec, data: data}
	form, err = c.value(nil)
	return data, form, err
}

// The limits of canonical forms.
const (
	maxForm  = 1 << 20 // bytes as JSON
	maxDepth = 100     // of nested objects and lists
)

type canonicalizer struct {
	dec   *json.Decoder
	data  []byte
	depth int
}

// token returns the next token, and its text, with the punctuation before it.
func (c *canonicalizer) token() (json.Token, []byte, error) {
	from := c.dec.InputOffset()
	tok, err := c.dec.Token()
	return tok, c.data[from:c.dec.InputOffset()], err
}

// value appends the next value.
func (c *canonicalizer) value(dst []byte) ([]byte, error) {
	tok, text, err := c.token()
	if err != nil {
		return nil, err
	}
	switch t := tok.(type) {
	case json.Delim:
		if c.depth++; c.depth > maxDepth {
			return nil, fmt.Errorf("more than %d nested objects and lists", maxDepth)
		}
		defer func() { c.depth-- }()
		if t == '{' {
			return c.object(dst)
		}
		return c.array(dst)
	case string:
		return appendString(dst, t, text)
	case json.Number:
		return appendNumber(dst, t.String())
	case bool:
		return strconv.AppendBool(dst, t), nil
	}
	return append(dst, "null"...), nil
}

func (c *canonicalizer) array(dst []byte) (_ []byte, err error) {
	dst = append(dst, '[')
	for n := 0; c.dec.More(); n++ {
		if n > 0 {
			dst = append(dst, ',')
		}
		if dst, err = c.value(dst); err != nil {
			return nil, err
		}
	}
	_, _, err = c.token()
	return append(dst, ']'), err
}

func (c *canonicalizer) object(dst []byte) ([]byte, error) {
	members := map[string][]byte{}
	for c.dec.More() {
		tok, text, err := c.token()
		if err != nil {
			return nil, err
		}
		name, _ := tok.(string)
		key, err := appendString(nil, name, text)
		if err != nil {
			return nil, err
		}
		if _, ok := members[name]; ok {
			return nil, fmt.Errorf("an object has two members with the name %.64q", name)
		}
		if members[name], err = c.value(append(key, ':')); err != nil {
			return nil, err
		}
		if string(members[name][len(key):]) == ":null" {
			members[name] = nil
		}
	}
	dst = append(dst, '{')
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if members[name] == nil {
			continue
		}
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = append(dst, members[name]...)
	}
	_, _, err := c.token()
	return append(dst, '}'), err
}

var errNotUTF8 = errors.New("a string is not UTF-8")

// appendString appends a string. text is the string as encoded: if it has fewer replacement characters than the string, the
// decoder has replaced something.
func appendString(dst []byte, s string, text []byte) ([]byte, error) {
	if strings.Count(s, string(utf8.RuneError)) != bytes.Count(text, []byte(string(utf8.RuneError))) {
		return nil, errNotUTF8
	}
	dst = append(dst, '"')
	for i := range len(s) {
		switch b := s[i]; {
		case b == '"' || b == '\\':
			dst = append(dst, '\\', b)
		case b < ' ':
			dst = fmt.Appendf(dst, `\u%04x`, b)
		default:
			dst = append(dst, b)
		}
	}
	return append(dst, '"'), nil
}

// maxExponent bounds the exponents of numbers.
const maxExponent = 1_000_000

// appendNumber appends a number of JSON.
func appendNumber(dst []byte, s string) ([]byte, error) {
	mantissa, exp, _ := strings.Cut(strings.ToLower(s), "e")
	exponent := 0
	if exp != "" {
		var err error
		if exponent, err = strconv.Atoi(exp); err != nil || exponent > maxExponent || exponent < -maxExponent {
			return nil, fmt.Errorf("the exponent of the number %.64s is outside of ±%d", s, maxExponent)
		}
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	exponent -= len(fraction)
	digits := strings.TrimLeft(whole+fraction, "0")
	trimmed := strings.TrimRight(digits, "0")
	if exponent += len(digits) - len(trimmed); trimmed == "" {
		return append(dst, '0'), nil
	}
	if negative {
		dst = append(dst, '-')
	}
	if dst = append(dst, trimmed...); exponent != 0 {
		dst = strconv.AppendInt(append(dst, 'e'), int64(exponent), 10)
	}
	return dst, nil
}
