package dohost_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost"
)

// brokenLists are functions that list items and end in a wrong way, with their items before that and the texts of their errors.
var brokenLists = map[string]struct {
	list        func(context.Context, *dohost.Snapshot) iter.Seq2[dohost.Resource, error]
	items, text string
}{
	"nil":   {func(context.Context, *dohost.Snapshot) iter.Seq2[dohost.Resource, error] { return nil }, "", "the function returned nil"},
	"panic": {func(context.Context, *dohost.Snapshot) iter.Seq2[dohost.Resource, error] { panic("bad") }, "", "panic: bad"},
	"panic after an item": {func(context.Context, *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
		return func(yield func(dohost.Resource, error) bool) {
			yield(dohost.Resource{Kind: "dish", ID: "soup"}, nil)
			panic("bad")
		}
	}, "soup ", "panic: bad"},
}

func noItems(context.Context, *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
	return func(func(dohost.Resource, error) bool) {}
}

// brokenParty is a class with a function that lists items, as OnInspect or as the Inspect function of an extension.
func brokenParty(extension bool, list func(context.Context, *dohost.Snapshot) iter.Seq2[dohost.Resource, error]) dohost.Class {
	var asked bool
	x, own := menu(&asked), list
	if extension {
		own = noItems
		x.Kinds, x.Inspect = []string{"dish", "drink"}, list
	}
	return dohost.Bind(parties, newParty, &dohost.Handlers[party]{OnInspect: own, Extensions: []dohost.ClassExtension{x}})
}

// wantBroken reads a list that ends with an error. A text with a panic needs a PanicError with the stack of the function.
func wantBroken(t *testing.T, list iter.Seq2[dohost.Resource, error], items, text string) {
	t.Helper()
	var got string
	var failure error
	for d, err := range list {
		if failure != nil {
			t.Errorf("an item after the error: %+v, %v", d, err)
		}
		if failure = err; err == nil {
			got += d.ID + " "
		}
	}
	if got != items || failure == nil || failure.Error() != text {
		t.Errorf("items %q, error %v; want %q, %q", got, failure, items, text)
	}
	p, panicked := errors.AsType[*dohost.PanicError](failure)
	if want := strings.Contains(text, "panic"); panicked != want || want && !strings.Contains(string(p.Stack), "inspectguard_test.go") {
		t.Errorf("PanicError %v in %v", p, failure)
	}
}

// TestInspectPanicIsAnErrorOfTheList reads details of classes with functions that panic or return nil. A panic is reported once.
func TestInspectPanicIsAnErrorOfTheList(t *testing.T) {
	for name, c := range brokenLists {
		for extension, function := range map[bool]string{false: "OnInspect", true: "Inspect of an extension"} {
			for query, kinds := range map[string]string{"": "", "dish": ` for the kind "dish"`} {
				switch {
				case query == "" && extension:
					kinds = ` for the kinds "dish", "drink"`
				case query != "" && !extension: // an extension has dishes
					query, kinds = "guest", ` for the kind "guest"`
				}
				t.Run(name+"/"+function+"/"+query, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						var reports []string
						lis := dohost.Listener{Service: func(id dohost.ID, event string, attrs ...slog.Attr) {
							reports = append(reports, fmt.Sprint(id, " ", event, " ", attrs[0], " ", strings.Contains(attrs[1].Value.String(), "inspectguard_test.go")))
						}}
						h := open(t, &dohost.Options{Listener: lis}, brokenParty(extension, c.list))
						text, items := `dohost: class "party": `+function+kinds+": "+c.text, c.items
						if query == "guest" {
							items = "" // the item is a dish
						}
						wantBroken(t, h.FindDetails(t.Context(), parties.Get(h, "a").ID(), &dohost.DetailQuery{Kind: query}), items, text)
						synctest.Wait()
						want := fmt.Sprintf("[party/a inspect:panic err=%s true]", text)
						if name == "nil" {
							want = "[]"
						}
						if got := fmt.Sprint(reports); got != want {
							t.Errorf("reports %q, want %q", got, want)
						}
					})
				})
			}
		}
	}
}

// TestInspectPanicAfterTheLoopIsReported leaves the loop over a sequence that then panics: the caller continues.
func TestInspectPanicAfterTheLoopIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reports := 0
		lis := dohost.Listener{Service: func(dohost.ID, string, ...slog.Attr) { reports++ }}
		h := open(t, &dohost.Options{Listener: lis}, brokenParty(false, brokenLists["panic after an item"].list))
		for range h.Details(t.Context(), parties.Get(h, "a").ID()) {
			break
		}
		synctest.Wait()
		if reports != 1 {
			t.Errorf("%d reports", reports)
		}
	})
}

// TestInspectCallerPanicReachesTheCaller panics in the loop over a list: the function that lists items has not failed.
func TestInspectCallerPanicReachesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis := dohost.Listener{Service: func(_ dohost.ID, event string, attrs ...slog.Attr) { t.Errorf("reported: %s %v", event, attrs) }}
		var asked bool
		h := open(t, &dohost.Options{Listener: lis}, brokenParty(true, menu(&asked).Inspect))
		defer func() {
			if p := recover(); p != "caller" {
				t.Errorf("the caller's panic is %v", p)
			}
		}()
		for range h.FindDetails(t.Context(), parties.Get(h, "a").ID(), nil) {
			panic("caller")
		}
		t.Error("the loop has no item, or lost the panic")
	})
}

// TestInspectPanicInCheckAndStandby reads the same objects by CheckDir, which reports the error as a problem, and in a standby, which logs the
// panic.
func TestInspectPanicInCheckAndStandby(t *testing.T) {
	root := t.TempDir()
	data, folder := filepath.Join(root, "data"), filepath.Join(root, "shipped")
	a, err := dohost.OpenDirArchive(folder)
	if err != nil {
		t.Fatal(err)
	}
	class := brokenParty(true, brokenLists["panic"].list)
	h, err := dohost.Open(data, &dohost.Options{Ship: a}, class)
	if err != nil {
		t.Fatal(err)
	}
	id := parties.Get(h, "a").ID()
	for invited := false; !invited || h.Stats().Ship.NeedsBase; invited = true {
		if err := dohost.CallNoResult(t.Context(), parties.Get(h, "a"), (*party).invite, guest{Name: "Dee"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(h.Close(), a.Close()); err != nil {
		t.Fatal(err)
	}
	const text = `dohost: class "party": Inspect of an extension for the kinds "dish", "drink": panic: bad`
	var problems []string
	if _, err := dohost.CheckDir(t.Context(), data, func(p dohost.CheckProblem) { problems = append(problems, p.Detail) }, class); err != nil {
		t.Fatal(err)
	}
	if len(problems) != 1 || problems[0] != text {
		t.Errorf("problems %q, want %q", problems, text)
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	y, err := dohost.OpenStandby(filepath.Join(root, "standby"), dohost.ReadDirArchive(folder), &dohost.StandbyOptions{Logger: logger}, class)
	if err != nil {
		t.Fatal(err)
	}
	defer y.Close()
	if _, err := y.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantBroken(t, y.FindDetails(t.Context(), id, nil), "", text)
	if n := strings.Count(log.String(), `stack="goroutine `); n != 1 || !strings.Contains(log.String(), "object=party/a") {
		t.Errorf("%d stacks in the log: %s", n, &log)
	}
}
