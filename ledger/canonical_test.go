package ledger

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type outer struct{ N int }

var zoned = time.Unix(0, 0).In(time.FixedZone("", 0))

// TestFormsAreCanonical freezes the canonical forms, which are part of the format on disk.
func TestFormsAreCanonical(t *testing.T) {
	type args struct {
		B string
		A int
		N *int           `json:"n"`
		M map[string]any `json:"m,omitempty"`
	}
	for _, test := range []struct {
		value any
		want  string
	}{
		{nil, "null"},
		{true, "true"},
		{[]any{1, nil, "x", []int{}}, `[1,null,"x",[]]`},
		{args{"b", 1200, nil, nil}, `{"A":12e2,"B":"b"}`},
		{args{M: map[string]any{"z": nil, "y": map[string]any{"x": nil}, "": ""}}, `{"A":0,"B":"","m":{"":"","y":{}}}`},
		{json.RawMessage(` { "b" : 1 , "a" : [ -0.0 , 1.50e1, 0.001, 1E+2, 100, 1e2 ] } `), `{"a":[0,15,1e-3,1e2,1e2,1e2],"b":1}`},
		{json.RawMessage(`12345678901234567890.10`), `123456789012345678901e-1`},
		{uint64(math.MaxUint64), `18446744073709551615`},
		{-1.5, `-15e-1`},
		{math.SmallestNonzeroFloat64, `5e-324`},
		{"<&>\u2028\"\\\n\x00\x7fé", "\"<&>\u2028\\\"\\\\\\u000a\\u0000\x7fé\""},
		{json.RawMessage(`"\u00e9\u003c\ud83d\ude00�"`), `"é<😀�"`},
		{"é", "\"é\""}, // not normalized
		{struct {
			outer
			M  *big.Int
			At time.Time
		}{outer{1}, big.NewInt(100), time.Unix(0, 0).UTC()}, `{"At":"1970-01-01T00:00:00Z","M":1e2,"N":1}`},
		{json.RawMessage(strings.Repeat("[", 100) + strings.Repeat("]", 100)), strings.Repeat("[", 100) + strings.Repeat("]", 100)},
		{map[string]int{"b": 2, "a": 1, "é": 3, "B": 4}, `{"B":4,"a":1,"b":2,"é":3}`},
	} {
		_, got, err := canonical(test.value)
		if err != nil || string(got) != test.want {
			t.Errorf("canonical(%#v) = %s, %v; want %s", test.value, got, err, test.want)
		}
	}
}

func TestFormRefusesValues(t *testing.T) {
	for _, test := range []struct {
		value any
		want  string
	}{
		{"\xff", "not UTF-8"},
		{map[string]int{"a\xff": 1}, "not UTF-8"},
		{json.RawMessage(`"\ud800"`), "not UTF-8"},
		{json.RawMessage(`"\ufffd"`), "not UTF-8"}, // encoding/json writes this for bytes that are not UTF-8
		{json.RawMessage(`{"a":1,"b":2,"a":null}`), `two members with the name "a"`},
		{json.RawMessage(`1e1000001`), "exponent"},
		{json.RawMessage(`1e-99999999999999999999`), "exponent"},
		{math.NaN(), "NaN"},
		{func() {}, "unsupported type"},
		{struct{ a int }{1}, "the field a of struct"},
		{[]any{map[string]any{"x": &struct{ B, c int }{1, 2}}}, "the field c of struct"},
		{struct {
			A int `json:"-"`
		}{1}, "the field A of struct"},
		{struct {
			A int
			B int `json:"A"`
		}{1, 2}, `the name "A"`},
		{struct {
			outer
			N int
		}{outer{1}, 2}, `the name "N"`},
		{errors.New("x"), "the field s of errors.errorString"},
		{*big.NewInt(1), "the field neg of big.Int"},
		{time.Unix(0, 0), "not in UTC"},
		{struct{ At *time.Time }{&zoned}, "not in UTC"},
		{json.RawMessage(strings.Repeat("[", 101) + strings.Repeat("]", 101)), "more than 100 nested"},
		{strings.Repeat("a", 1<<20), "1048578 bytes as JSON, more than 1048576"},
	} {
		if _, got, err := canonical(test.value); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("canonical(%v) = %s, %v; want %q", test.value, got, err, test.want)
		}
	}
}

// TestIDs freezes the IDs of operations, which are part of the format on disk. A Python implementation computed the expected
// IDs.
func TestIDs(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	for _, test := range []struct {
		kind  string
		scope []string
		args  string
		at    *place
		want  ID
	}{
		{"charge", nil, `{"A":1}`, nil, "op_e0x3vz4dk162vymaxzfvk30phw"},
		{"charge", []string{"a"}, `{"A":1}`, nil, "op_ry8gzg475wswq668kvvpj1fw4c"},
		{"charge", []string{"a", "b"}, `{"A":1}`, nil, "op_ph13g4784rs5n7re7qjqgpsv4r"},
		{"charge", []string{"ab"}, `{"A":1}`, nil, "op_srf0e0a252sqmwt0483wfqvz10"},
		{"refund", nil, `{"A":1}`, nil, "op_ecvg88675jky6rcpv17awpkmgc"},
		{"charge", nil, `{"A":2}`, nil, "op_x7njqpnnpk5zjc8f62mp7rej24"},
		{"charge", nil, `{"A":1}`, &place{"fiber/f", 0, 0}, "op_ge91rf4s2rds011xfvbs0z595w"},
		{"charge", nil, `{"A":1}`, &place{"fiber/f", 1, 0}, "op_gkpwh2r254sqav5v6nmjf1kevg"},
		{"charge", nil, `{"A":1}`, &place{"fiber/f", 0, 1}, "op_8k1qga591y6jkqr8w3jwnc9jdc"},
		{"charge", []string{"a"}, `{"A":1}`, &place{"fiber/f", 0, 0}, "op_dyx9408k5npxybrpg3etd3ehqr"},
		{"charge", nil, `{"A":1}`, &place{"schedule/s", 1767225600000000000, 2}, "op_ca80ngtpf9xsdbw4j80mr9ywtc"},
	} {
		if got := newID(secret, test.kind, test.scope, []byte(test.args), test.at); got != test.want {
			t.Errorf("the ID of %s %v %s at %v is %s, want %s", test.kind, test.scope, test.args, test.at, got, test.want)
		}
	}
}

// TestScopesOfOneScope derives two scopes from each of several nested ones.
func TestScopesOfOneScope(t *testing.T) {
	outer := t.Context()
	for depth := range 9 {
		a, b := Scope(outer, "a"), Scope(outer, "b")
		if x, y := ScopeOf(a), ScopeOf(b); len(x) != depth+1 || len(y) != depth+1 || x[depth] != "a" || y[depth] != "b" {
			t.Errorf("the scopes are %q and %q", x, y)
		}
		outer = Scope(outer, "outer")
	}
}

// drawValue draws a value of JSON, of a certain depth at most.
func drawValue(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		most := 5
		if depth == 0 {
			most = 3
		}
		switch rapid.IntRange(0, most).Draw(t, "type") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return json.Number(rapid.StringMatching(`-?(0|[1-9][0-9]{0,4})(\.[0-9]{1,4})?(e-?[0-9]{1,2})?`).Draw(t, "number"))
		case 3:
			return rapid.String().Draw(t, "string")
		case 4:
			return rapid.SliceOfN(drawValue(depth-1), 0, 3).Draw(t, "list")
		}
		return rapid.MapOfN(rapid.StringN(0, 3, -1), drawValue(depth-1), 0, 4).Draw(t, "object")
	})
}

// TestFormIsIdempotent checks that the canonical form of a canonical form is the form itself.
func TestFormIsIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(3).Draw(t, "value")
		_, form, err := canonical(v)
		if err != nil {
			t.Fatalf("canonical(%#v): %v", v, err)
		}
		_, again, err := canonical(json.RawMessage(form))
		if err != nil || string(again) != string(form) {
			t.Fatalf("canonical(%#v) = %s, and the form of that is %s, %v", v, form, again, err)
		}
	})
}
