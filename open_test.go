package dohost_test

import (
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"io/fs"
	"iter"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
)

// refused opens a host with invalid options or classes, and wants an error with all of the words and no directory.
func refused(t *testing.T, o *dohost.Options, words []string, classes ...dohost.Class) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	h, err := dohost.Open(dir, o, classes...)
	if err == nil {
		h.Close()
		t.Fatal("opened")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %s: %v", w, err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory was touched: %v", err)
	}
}

func TestOpenRefusesOptionsOutOfRange(t *testing.T) {
	for _, c := range []struct {
		o     dohost.Options
		words []string
	}{
		{dohost.Options{MaxEvents: -1}, []string{"Options.MaxEvents", "-1", "want 0"}},
		{dohost.Options{MaxBytes: -2}, []string{"Options.MaxBytes", "-2", "want 0"}},
		{dohost.Options{MaxLive: -3}, []string{"Options.MaxLive", "-3", "want 0"}},
		{dohost.Options{TimeScale: -0.5}, []string{"Options.TimeScale", "-0.5", "above 0"}},
		{dohost.Options{TimeScale: math.NaN()}, []string{"Options.TimeScale", "NaN", "above 0"}},
		{dohost.Options{TimeScale: math.Inf(1)}, []string{"Options.TimeScale", "+Inf", "above 0"}},
		{dohost.Options{Origins: []string{"https://a.test", "["}}, []string{"Options.Origins", `"["`, "syntax error"}},
		{dohost.Options{Origins: []string{""}}, []string{"Options.Origins", `""`, "host is empty"}},
		{dohost.Options{Chaos: dohost.Chaos{Rate: 1.5}}, []string{"dohost: Options.Chaos: chaos rate 1.5", "0 to 1"}},
		{dohost.Options{Chaos: dohost.Chaos{Rate: 0.5, Places: []eviction.Place{99}}}, []string{"dohost: Options.Chaos: chaos place", `"place 99"`, "commit"}},
	} {
		t.Run(strings.Join(c.words[:2], " "), func(t *testing.T) { refused(t, &c.o, c.words) })
	}
}

func TestOpenAcceptsOptionsAtTheirLimits(t *testing.T) {
	o := &dohost.Options{
		MaxEvents: 1, MaxBytes: 1, MaxLive: 1, TimeScale: math.SmallestNonzeroFloat64, Grace: -1, MaxAge: -1, IdleAfter: -1,
		Chaos: dohost.Chaos{Rate: 1, Mean: time.Hour, Places: eviction.Places()},
	}
	if err := open(t, o).Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenRefusesInvalidClasses(t *testing.T) {
	construct := func(context.Context, *dohost.State) (*mapObject, error) { return &mapObject{}, nil }
	show := func(*mapObject, http.ResponseWriter, *http.Request) {}
	bind := func(entries ...dohost.Entry[mapObject]) dohost.Class {
		return dohost.Bind(mapObjects, construct, nil, entries...)
	}
	with := func(h dohost.Handlers[mapObject]) dohost.Class { return dohost.Bind(mapObjects, construct, &h) }
	hear := func(*mapObject, context.Context, *dohost.Socket, dohost.Frame) error { return nil }
	path := func(id dohost.ID) []dohost.ID { return []dohost.ID{id} }
	next := func(id dohost.ID, u *url.URL) (dohost.ID, *url.URL, bool) { return id, u, false }
	origin := func(pattern string) dohost.Class {
		return with(dohost.Handlers[mapObject]{OnSocket: &dohost.SocketHandlers[mapObject]{Message: hear, Origins: []string{"*.a.test", pattern}}})
	}
	list := func(context.Context, *dohost.Snapshot) iter.Seq2[dohost.Resource, error] { return nil }
	admin := func(context.Context, *dohost.State, any, *dohost.AdminRequest) (bool, error) { return false, nil }
	extended := func(list ...dohost.ClassExtension) dohost.Class {
		return with(dohost.Handlers[mapObject]{Extensions: list})
	}
	dish := dohost.ClassExtension{Kinds: []string{"dish"}, Inspect: list, Admin: admin}
	for _, c := range []struct {
		class dohost.Class
		says  string
	}{
		{extended(dohost.ClassExtension{}), "an extension without a kind, Inspect or Admin"},
		{extended(dohost.ClassExtension{Kinds: []string{""}, Inspect: list, Admin: admin}), "an extension without a kind, Inspect or Admin"},
		{extended(dohost.ClassExtension{Kinds: []string{"dish"}, Inspect: list}), "an extension without a kind, Inspect or Admin"},
		{extended(dohost.ClassExtension{Kinds: []string{"dish"}, Admin: admin}), "an extension without a kind, Inspect or Admin"},
		{extended(dish, dish), `two extensions with the kind "dish"`},
		{extended(dohost.ClassExtension{Kinds: []string{"dish", "cup", "dish"}, Inspect: list, Admin: admin}), `an extension with the kind "dish" twice`},
		{extended(dohost.ClassExtension{Kinds: []string{"dish"}, Inspect: list, Admin: admin, Err: errors.New("no cook")}), "no cook"},
		{dohost.Bind(mapObjects, nil, nil, dohost.Expose("get", dohost.NoArg((*mapObject).Get))), "Bind without a constructor"},
		{bind(dohost.Entry[mapObject]{}), "entry 0 is the zero Entry"},
		{bind(dohost.Expose("", dohost.NoArg((*mapObject).Get))), "Expose without a name"},
		{bind(dohost.Expose[mapObject, int, int]("get", nil)), `Expose of "get" without a method`},
		{bind(dohost.Expose("get", dohost.NoArg((*mapObject).Get)), dohost.Expose("get", dohost.NoResult((*mapObject).Set))), `a second Expose of "get"`},
		{with(dohost.Handlers[mapObject]{OnSocket: &dohost.SocketHandlers[mapObject]{}}), "OnSocket without a Message handler"},
		{
			with(dohost.Handlers[mapObject]{OnSocket: &dohost.SocketHandlers[mapObject]{Message: hear, Timeout: -1}}),
			"OnSocket with a Timeout of -1ns: want 0 to 168h0m0s",
		},
		{with(dohost.Handlers[mapObject]{SubObjects: &dohost.SubObjects{Path: path}}), "SubObjects without Path or Next"},
		{with(dohost.Handlers[mapObject]{SubObjects: &dohost.SubObjects{Classes: []string{""}, Path: path, Next: next}}), "SubObjects with an empty class"},
		{bind(dohost.Expose("http", dohost.NoArg((*mapObject).Get))), `Expose of "http": the name is reserved`},
		{origin("["), `OnSocket with the origin "[": syntax error in pattern`},
		{origin("https://[a-"), `OnSocket with the origin "https://[a-": syntax error in pattern`},
		{origin(""), `OnSocket with the origin "": the host is empty`},
		{origin("https://"), `OnSocket with the origin "https://": the host is empty`},
		{origin("://a.test"), `OnSocket with the origin "://a.test": the scheme is empty`},
		{origin("https://a.test/"), `OnSocket with the origin "https://a.test/": it has a path`},
		{dohost.InvalidClass(bind(), nil, errors.New("no tools")), "no tools"},
	} {
		t.Run(c.says, func(t *testing.T) { refused(t, nil, []string{`class "holder": ` + c.says}, c.class) })
	}
	t.Run("all mistakes", func(t *testing.T) {
		const others dohost.Namespace[mapObject] = "other"
		words := []string{
			`class "holder": entry 0 is the zero Entry`, `class "holder": Expose without a name`, `class "holder": no tools`,
			`class "other": Bind without a constructor`,
		}
		refused(t, nil, words, dohost.InvalidClass(bind(dohost.Entry[mapObject]{}, dohost.Expose("", dohost.NoArg((*mapObject).Get))), errors.New("no tools")),
			dohost.Bind(others, nil, nil))
	})
	t.Run("bound twice", func(t *testing.T) { refused(t, nil, []string{`"holder"`, "twice"}, bind(), bind()) })
	t.Run("one name in URLs", func(t *testing.T) {
		name := func(ns dohost.Namespace[mapObject]) dohost.Class {
			return dohost.Bind(ns, construct, &dohost.Handlers[mapObject]{OnHTTP: show})
		}
		refused(t, nil, []string{`"ChatRoom"`, `"chat-room" in URLs`}, name("ChatRoom"), name("chat-room"))
	})
	t.Run("no name", func(t *testing.T) { refused(t, nil, []string{"class"}, dohost.Class{}) })
	all := &dohost.Handlers[mapObject]{
		OnAlarm: func(*mapObject, context.Context, dohost.AlarmInfo) error { return nil }, OnHTTP: show,
		OnSocket: &dohost.SocketHandlers[mapObject]{Message: hear, Origins: []string{"*", "a.test:8080", "https://*.a.test", "[a-z].test"}},
	}
	h := open(t, nil, dohost.Bind(mapObjects, construct, all, dohost.Expose("get", dohost.NoArg((*mapObject).Get)),
		dohost.Expose("set", dohost.NoResult((*mapObject).Set))),
		dohost.InvalidClass(dohost.Bind(dohost.Namespace[mapObject]("valid"), construct, nil), nil))
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// jsonNode is a type that refers to itself.
type jsonNode struct {
	Next *jsonNode
	Done chan int `json:"-"`
	Log  func()   `json:",omitzero"`
	Time time.Time
	Any  any
}

// jsonBase has a field that is promoted.
type jsonBase struct{ Done chan int }

// jsonChan is a type that encodes itself.
type jsonChan chan int

func (jsonChan) MarshalJSON() ([]byte, error) { return []byte("1"), nil }
func (*jsonChan) UnmarshalJSON([]byte) error  { return nil }

func TestOpenRefusesTypesThatJSONCannotCarry(t *testing.T) {
	type in interface{ Read([]byte) (int, error) }
	for _, c := range []struct {
		entry dohost.Entry[mapObject]
		says  string // empty: the class is accepted
	}{
		{takes[chan int](), "no argument of type chan int can be decoded from JSON"},
		{takes[func()](), "no argument of type func() can be decoded from JSON"},
		{takes[*[]func()](), "no argument of type func() in *[]func() can be decoded from JSON"},
		{takes[complex128](), "no argument of type complex128 can be decoded from JSON"},
		{takes[map[string]chan int](), "no argument of type chan int in map[string]chan int can be decoded from JSON"},
		{takes[map[float64]int](), "no argument of type map[float64]int can be decoded from JSON"},
		{takes[in](), "no argument of type dohost_test.in can be decoded from JSON"},
		{takes[error](), "no argument of type error can be decoded from JSON"},
		{takes[json.Unmarshaler](), "no argument of type json.Unmarshaler can be decoded from JSON"},
		{takes[jsonChan](), ""},
		{takes[jsonBase](), ""},
		{takes[jsonNode](), ""},
		{takes[any](), ""},
		{takes[map[time.Time]*unreadable](), ""},
		{gives[chan int](), "no result of type chan int can be encoded as JSON"},
		{gives[[2]func()](), "no result of type func() in [2]func() can be encoded as JSON"},
		{gives[map[struct{ A int }]int](), "no result of type map[struct { A int }]int can be encoded as JSON"},
		{gives[jsonChan](), ""},
		{gives[jsonBase](), ""}, // a field, which may be shadowed or left out
		{gives[map[encoding.TextMarshaler]int](), ""},
		{gives[jsonNode](), ""},
		{gives[error](), ""},
		{gives[map[time.Time]json.RawMessage](), ""},
	} {
		class := dohost.Bind(mapObjects, func(context.Context, *dohost.State) (*mapObject, error) { return &mapObject{}, nil }, nil, c.entry)
		t.Run(c.says, func(t *testing.T) {
			if c.says == "" {
				if err := open(t, nil, class).Close(); err != nil {
					t.Error(err)
				}
				return
			}
			refused(t, nil, []string{`class "holder": Expose of "m": ` + c.says}, class)
		})
	}
}

// takes returns a method with an argument of type T.
func takes[T any]() dohost.Entry[mapObject] {
	return dohost.Expose("m", dohost.NoResult(func(*mapObject, context.Context, T) error { return nil }))
}

// gives returns a method with a result of type T.
func gives[T any]() dohost.Entry[mapObject] {
	return dohost.ExposeRead("m", dohost.NoArg(func(*mapObject, context.Context) (v T, err error) { return v, nil }))
}
