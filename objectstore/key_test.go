package objectstore

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var rewrite = flag.Bool("rewrite", false, "rewrite golden files")

// names draws classes or names, preferably neighbours.
func names(what string) *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`[a-c]{1,3}`),
		rapid.StringMatching(`[ -~]{1,5}`),
		rapid.SampledFrom([]string{"a", "a ", "ab", "a\u00ff", "a\uffff", "a\U0001f600", "é"}),
	).Filter(func(s string) bool {
		return validateName(what, s, MaxClass) == nil && (what != "class" || !strings.Contains(s, "/"))
	})
}

func ids() *rapid.Generator[ID] {
	return rapid.Custom(func(t *rapid.T) ID {
		return ID{Class: names("class").Draw(t, "class"), Name: names("name").Draw(t, "name")}
	})
}

func compareIDs(a, b ID) int {
	return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Name, b.Name))
}

func TestKeyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := ids().Draw(t, "a"), ids().Draw(t, "b")
		want := compareIDs(a, b)
		if got := bytes.Compare(appendObject(nil, a), appendObject(nil, b)); got != want {
			t.Fatalf("objects %v, %v compare %d, their keys %d", a, b, want, got)
		}
		// Ranges do not overlap, with any rows.
		row := rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "row")
		end := pastObject(a)
		key := append(appendObject(nil, b), row...)
		if inside := bytes.HasPrefix(key, appendObject(nil, a)); inside != (want == 0) {
			t.Fatalf("row of %v inside the range of %v: %v", b, a, inside)
		}
		if after := bytes.Compare(key, end) >= 0; after != (want < 0) {
			t.Fatalf("row of %v after the range of %v: %v", b, a, after)
		}
		da := rapid.Int64().Draw(t, "due a")
		db := rapid.Int64().Draw(t, "due b")
		wantAlarm := cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(da, db), want)
		if got := bytes.Compare(alarmKey(da, a), alarmKey(db, b)); got != wantAlarm {
			t.Fatalf("alarms (%d, %v), (%d, %v) compare %d, their keys %d", da, a, db, b, wantAlarm, got)
		}
		wantSuspect := cmp.Or(cmp.Compare(da, db), want)
		if got := bytes.Compare(suspectKey(da, a), suspectKey(db, b)); got != wantSuspect {
			t.Fatalf("suspects (%d, %v), (%d, %v) compare %d, their keys %d", da, a, db, b, wantSuspect, got)
		}
	})
}

func FuzzKey(f *testing.F) {
	f.Add("class", "name", []byte("key"), int64(1))
	f.Add("a", "a\x00", []byte{0}, int64(-1))
	f.Add("", "/", []byte{0xff}, int64(1)<<62)
	f.Fuzz(func(t *testing.T, class, name string, row []byte, due int64) {
		id := ID{Class: class, Name: name}
		if id.Validate() != nil {
			return
		}
		got, rest, ok := splitID(append(appendObject(nil, id), row...)[1:])
		if !ok || got != id || !bytes.Equal(rest, row) {
			t.Fatalf("%q: got %q, rest %q, %v", id, got, rest, ok)
		}
		gotDue, got, ok := splitAlarmKey(alarmKey(due, id))
		if !ok || got != id || gotDue != due {
			t.Fatalf("%q at %d: got %q at %d, %v", id, due, got, gotDue, ok)
		}
		gotDue, got, ok = splitSuspectKey(suspectKey(due, id))
		if !ok || got != id || gotDue != due {
			t.Fatalf("suspect %q at %d: got %q at %d, %v", id, due, got, gotDue, ok)
		}
		if back, err := ParseID(id.String()); err != nil || back != id {
			t.Fatalf("%q: parsed as %q, %v", id, back, err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(encodeSlot(Slot{Due: time.UnixMilli(5), Generation: 7, Attempt: 2, AtStart: true}))
	f.Add(encodeSlot(Slot{Charge: Charge{Host: 3, Begun: true, Deaths: 1, Lost: 2}, Parked: ParkedDeaths, Error: "no"}))
	f.Add(encodeSlot(Slot{Generation: 7, First: Setting{5, 6}, Error: "no"}))
	f.Add(alarmKey(3, ID{"c", "n"}))
	f.Add(suspectKey(3, ID{"c", "n"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := decodeSlot(b); err == nil {
			if again, err := decodeSlot(encodeSlot(s)); err != nil || again != s {
				t.Fatalf("%+v came back as %+v, %v", s, again, err)
			}
		}
		if due, id, ok := splitAlarmKey(b); ok && !bytes.Equal(alarmKey(due, id), b) {
			t.Fatalf("%q was read as %d, %v", b, due, id)
		}
		if due, id, ok := splitSuspectKey(b); ok && !bytes.Equal(suspectKey(due, id), b) {
			t.Fatalf("%q was read as suspect %d, %v", b, due, id)
		}
		_, _ = decodeHostRecord(b)
		_, _ = decodeIndexEntry(b)
	})
}

// TestLayout checks the format on disk: a change of the file is a change of formatNumber.
func TestLayout(t *testing.T) {
	id := ID{Class: "counter", Name: "alice/é"}
	due := time.Date(2031, 4, 5, 6, 7, 8, 9e6, time.UTC)
	slot := Slot{Due: due, Generation: 3<<40 | 17, Attempt: 2, AtStart: true}
	troubled := slot
	troubled.Charge = Charge{Host: 5, Begun: true, Deaths: 6, Lost: 1}
	troubled.Parked, troubled.Error = ParkedDeaths, "no"
	repeated := troubled
	repeated.First = Setting{DueMS: dueMS(due) - 1, Generation: 3<<40 | 16}
	entry := indexEntry{dueMS: dueMS(due), generation: slot.Generation}
	identity := Identity{Store: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Fork: 0x5f0c3a91}
	host, err := hostRecord{identity: identity, parent: 0x11223344, generation: 3, clean: true}.encode()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "format %d\n", formatNumber)
	for _, copied := range []bool{false, true} {
		fmt.Fprintf(&b, "identity file, of a copy %v\n\t%q\n", copied, identityFile{Identity: identity, copied: copied})
	}
	fmt.Fprintf(&b, "identity file, of a standby\n\t%q\n", identityFile{Identity: identity, standby: true})
	for _, l := range []struct {
		what       string
		key, value []byte
	}{
		{"host record", []byte{keyHost}, host},
		{"alarm index", alarmKey(dueMS(due), id), entry.encode()},
		{"alarm index, before 1970", alarmKey(-1, id), entry.encode()},
		{"alarm index of suspects", suspectKey(dueMS(due), id), entry.encode()},
		{"parked alarms", parkedKey(id), entry.encode()},
		{"start index", startKey(id), entry.encode()},
		{"importing mark", importingKey(id), []byte{indexVersion}},
		{"collection row", append(appendObject(nil, id), "ckey"...), []byte("value")},
		{"key-value row", append(appendObject(nil, id), "kkey"...), []byte("value")},
		{"alarm slot", slotKey(id), encodeSlot(slot)},
		{"alarm slot, after failures and deaths", slotKey(id), encodeSlot(troubled)},
		{"alarm slot, of a retry", slotKey(id), encodeSlot(repeated)},
	} {
		fmt.Fprintf(&b, "%s\n\t%q\n\t%q\n", l.what, l.key, l.value)
	}
	wantGolden(t, "testdata/layout.txt", b.String())
}

// wantGolden compares a layout with a file, which -rewrite writes.
func wantGolden(t *testing.T, file, layout string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(file, []byte(layout), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if layout != string(want) {
		t.Errorf("the layout has changed:\n%s\nwant:\n%s", layout, want)
	}
}

func TestIDValidation(t *testing.T) {
	for _, c := range []struct {
		id   string
		want string
	}{
		{"counter/a", ""},
		{"counter/a/b", ""},
		{"counter", `dohost: id "counter" is not class/name`},
		{"/a", `dohost: class "" is empty`},
		{"c/", `dohost: name "" is empty`},
		{"c/a\x00b", `dohost: name "a\x00b" contains a control character`},
		{"c/a\u0085", `dohost: name "a\u0085" contains a control character`},
		{"c/\xff", `dohost: name "\xff" is not valid UTF-8`},
		{strings.Repeat("c", 257) + "/a", `dohost: class "` + strings.Repeat("c", 32) + `..." has 257 bytes, the limit is 256`},
		{"c/" + strings.Repeat("n", 1025), `dohost: name "` + strings.Repeat("n", 32) + `..." has 1025 bytes, the limit is 1024`},
		{strings.Repeat("c", 256) + "/" + strings.Repeat("n", 1024), ""},
	} {
		id, err := ParseID(c.id)
		switch {
		case c.want == "" && (err != nil || id.String() != c.id):
			t.Errorf("%.20q: %v, %v", c.id, id, err)
		case c.want != "" && (err == nil || err.Error() != c.want):
			t.Errorf("%.20q: error %v, want %s", c.id, err, c.want)
		}
	}
	if err := (ID{Class: "a/b", Name: "c"}).Validate(); err == nil {
		t.Error("class with a slash is allowed")
	}
}
