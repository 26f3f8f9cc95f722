package ledger_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

const mebibyte = 1 << 20

// blob is a result. Its JSON has as many bytes.
type blob int

// MarshalJSON returns a text of some letters.
func (b blob) MarshalJSON() ([]byte, error) {
	text := bytes.Repeat([]byte("abcdefg"), int(b)/7+1)[:b]
	text[0], text[b-1] = '"', '"'
	return text, nil
}

// UnmarshalJSON accepts only the text of MarshalJSON.
func (b *blob) UnmarshalJSON(data []byte) error {
	if want, _ := blob(len(data)).MarshalJSON(); !bytes.Equal(data, want) {
		return errors.New("the text is another one")
	}
	*b = blob(len(data))
	return nil
}

// archive makes large results.
type archive struct {
	st    *dohost.State
	kind  *ledger.Kind[string, blob]
	calls *int
	size  *blob
	err   *error // of the next call
}

const archives = dohost.Namespace[archive]("archive")

func (a *archive) do(ctx context.Context, args string) (int, error) {
	b, err := ledger.Do(ctx, a.st, a.kind, args, func(context.Context, ledger.ID) (blob, error) {
		*a.calls++
		err := *a.err
		*a.err = nil
		return *a.size, err
	})
	return int(b), err
}

func (a *archive) parts(ctx context.Context) (int, error) { return ledger.PartsOf(ctx, a.st) }

func (a *archive) wipe(ctx context.Context) error { return a.st.Storage().DeleteAll(ctx) }

// results returns the sizes of the results of all operations, by All and by Get.
func (a *archive) results(ctx context.Context) (sizes []int, err error) {
	for op, err := range ledger.All(ctx, a.st) {
		if err != nil {
			return nil, err
		}
		same, _, err := ledger.Get(ctx, a.st, op.ID)
		if err != nil || !bytes.Equal(same.Result, op.Result) {
			return nil, errors.Join(err, fmt.Errorf("Get has a result of %d bytes, and All one of %d", len(same.Result), len(op.Result)))
		}
		sizes = append(sizes, len(op.Result))
	}
	return sizes, nil
}

func (a *archive) losePart(ctx context.Context) (ledger.ID, error) {
	for op, err := range ledger.All(ctx, a.st) {
		return op.ID, errors.Join(err, ledger.DeletePart(ctx, a.st, op.ID, 1))
	}
	return "", errors.New("there is no operation")
}

func (a *archive) resolve(ctx context.Context, id ledger.ID) error {
	return ledger.ResolveDone(ctx, a.st, a.kind, id, *a.size)
}

func (a *archive) notDone(ctx context.Context, id ledger.ID) error {
	return ledger.ResolveNotDone(ctx, a.st, a.kind, id)
}

// runArchive runs f with an archive whose calls have results of a size, which f may change.
func runArchive(t *testing.T, p ledger.Policy, keep time.Duration, size blob, f func(t *testing.T, h *dohosttest.Host, o dohost.Stub[archive], a *archive)) {
	t.Helper()
	a := &archive{calls: new(int), size: &size, err: new(error)}
	a.kind = &ledger.Kind[string, blob]{
		Name: "blob", Same: ledger.Whole[string], Policy: p, Keep: keep, Unknown: func(ledger.ID, string) string { return "look into the archive" },
	}
	if p == ledger.PolicyReconcile {
		a.kind.Find = func(context.Context, ledger.ID, string) (blob, ledger.Answer, error) {
			return 0, ledger.AnswerNotDone, nil
		}
	}
	class := dohost.Bind(archives, func(_ context.Context, st *dohost.State) (*archive, error) {
		of := *a
		of.st = st
		return &of, nil
	}, &dohost.Handlers[archive]{Extensions: []dohost.ClassExtension{ledger.Declare(a.kind)}})
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		f(t, h, archives.Get(h, "a"), a)
	})
}

func wantParts(t *testing.T, o dohost.Stub[archive], when string, want int) {
	t.Helper()
	if n, err := dohost.CallNoArg(t.Context(), o, (*archive).parts); err != nil || n != want {
		t.Errorf("%s there are %d parts, %v; want %d", when, n, err, want)
	}
}

// TestResultsInParts stores results of sizes at the boundaries, and reads them in the same incarnation and after a power cut.
func TestResultsInParts(t *testing.T) {
	for size, parts := range map[blob]int{
		2: 0, mebibyte - 1: 0, mebibyte: 0, mebibyte + 1: 2, 2*mebibyte - 1: 2, 2 * mebibyte: 2, 2*mebibyte + 1: 3, 8*mebibyte - 1: 8, 8 * mebibyte: 8,
	} {
		t.Run(fmt.Sprint(int(size)), func(t *testing.T) {
			runArchive(t, ledger.PolicyAtMostOnce, 0, size, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[archive], a *archive) {
				for i := range 3 {
					if got, err := dohost.Call(t.Context(), o, (*archive).do, "x"); err != nil || got != int(size) || *a.calls != 1 {
						t.Errorf("Do %d: %d, %v, %d calls", i, got, err, *a.calls)
					}
					wantParts(t, o, fmt.Sprintf("after Do %d", i), parts)
					if sizes, err := dohost.CallNoArg(t.Context(), o, (*archive).results); err != nil || len(sizes) != 1 || sizes[0] != int(size) {
						t.Errorf("results of %d bytes, %v", sizes, err)
					}
					if i == 1 {
						h.Crash()
						if err := h.Restart(); err != nil {
							t.Fatal(err)
						}
					}
				}
				for r, err := range h.Host().Details(t.Context(), o.ID()) {
					large := strings.HasSuffix(r.Text, fmt.Sprintf("result of %d bytes", size)) && r.Counts["result_bytes"] == int64(size)
					if err != nil || large != (parts > 0) || len(r.Fields["result"]) != min(int(size), 4<<10) {
						t.Errorf("%.200s, %v, %v, %d bytes", r.Text, r.Counts, err, len(r.Fields["result"]))
					}
				}
			})
		})
	}
}

// TestResultBeyondTheLimit has an operation that took effect. No policy repeats the call, not even after the answer NotDone.
func TestResultBeyondTheLimit(t *testing.T) {
	const want = "the call took effect, but dohost: JSON of the result has 8388609 bytes, the limit is 8388608"
	for _, p := range []ledger.Policy{ledger.PolicyAtMostOnce, ledger.PolicyIdempotent, ledger.PolicyReconcile} {
		t.Run(p.String(), func(t *testing.T) {
			runArchive(t, p, 0, 8*mebibyte+1, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[archive], a *archive) {
				var id ledger.ID
				for i := range 3 {
					_, err := dohost.Call(t.Context(), o, (*archive).do, "x")
					id = unknownID(t, err)
					text, _ := errors.AsType[*dohost.PublicError](err)
					if *a.calls != 1 || text == nil || text.Status != 409 || i == 0 && !strings.Contains(err.Error(), want) {
						t.Errorf("Do %d: %v, %d calls", i, err, *a.calls)
					}
					h.Evict(o.ID(), dohost.EndCrash)
				}
				wantParts(t, o, "without a result", 0)
				*a.size = 3 * mebibyte
				if err := dohost.CallNoResult(t.Context(), o, (*archive).resolve, id); err != nil {
					t.Error(err)
				}
				if got, err := dohost.Call(t.Context(), o, (*archive).do, "x"); err != nil || got != 3*mebibyte || *a.calls != 1 {
					t.Errorf("after ResolveDone: %d, %v, %d calls", got, err, *a.calls)
				}
				wantParts(t, o, "after ResolveDone", 3)
			})
		})
	}
}

// TestFindAfterResultBeyondTheLimit resolves an operation that took effect as not done: the operator has undone the effect. Later
// calls count as those of a new operation.
func TestFindAfterResultBeyondTheLimit(t *testing.T) {
	runArchive(t, ledger.PolicyReconcile, 0, 8*mebibyte+1, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[archive], a *archive) {
		_, err := dohost.Call(t.Context(), o, (*archive).do, "x")
		if err := dohost.CallNoResult(t.Context(), o, (*archive).notDone, unknownID(t, err)); err != nil {
			t.Fatal(err)
		}
		*a.size, *a.err = 2, errTimeout // Find answers NotDone
		if got, err := dohost.Call(t.Context(), o, (*archive).do, "x"); err != nil || got != 2 || *a.calls != 3 {
			t.Errorf("%d, %v, %d calls", got, err, *a.calls)
		}
	})
}

// TestResultInPartsOfFind has an answer Done with a result beyond the limit, and later the answer NotDone.
func TestResultInPartsOfFind(t *testing.T) {
	runArchive(t, ledger.PolicyReconcile, 0, 2, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[archive], a *archive) {
		found, answer := blob(8*mebibyte+1), ledger.AnswerDone
		a.kind.Find = func(context.Context, ledger.ID, string) (blob, ledger.Answer, error) { return found, answer, nil }
		*a.size = 8*mebibyte + 1
		for _, want := range []string{"the call took effect, but", "Find returned Done, but", "Find returned NotDone, but the operation took effect"} {
			if strings.Contains(want, "NotDone") {
				answer = ledger.AnswerNotDone
			}
			_, err := dohost.Call(t.Context(), o, (*archive).do, "x")
			if unknownID(t, err); !strings.Contains(err.Error(), want) || *a.calls != 1 {
				t.Errorf("%v, %d calls; want %q", err, *a.calls, want)
			}
		}
		found, answer = 5*mebibyte, ledger.AnswerDone
		if got, err := dohost.Call(t.Context(), o, (*archive).do, "x"); err != nil || got != 5*mebibyte || *a.calls != 1 {
			t.Errorf("%d, %v, %d calls", got, err, *a.calls)
		}
		wantParts(t, o, "with the result of Find", 5)
	})
}

// TestResultInPartsIsDeletedWithItsRow deletes results by the Do of another operation, by the Do of their own, and by DeleteAll.
func TestResultInPartsIsDeletedWithItsRow(t *testing.T) {
	runArchive(t, ledger.PolicyAtMostOnce, time.Hour, 2*mebibyte+1, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[archive], a *archive) {
		do := func(args string) {
			t.Helper()
			if _, err := dohost.Call(t.Context(), o, (*archive).do, args); err != nil {
				t.Error(err)
			}
		}
		do("x")
		do("y")
		wantParts(t, o, "with two results", 6)
		h.Advance(time.Hour)
		*a.size = 2
		do("y")
		wantParts(t, o, "after a small result for the row of y, which also deletes x", 0)
		*a.size = 4 * mebibyte
		do("z")
		wantParts(t, o, "before DeleteAll", 4)
		if err := dohost.CallBare(t.Context(), o, (*archive).wipe); err != nil {
			t.Fatal(err)
		}
		wantParts(t, o, "after DeleteAll", 0)
	})
}

// TestResultWithoutAPartIsNotRepeated deletes a part of a result. Do returns an error, and makes no call.
func TestResultWithoutAPartIsNotRepeated(t *testing.T) {
	runArchive(t, ledger.PolicyIdempotent, 0, 3*mebibyte, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[archive], a *archive) {
		if _, err := dohost.Call(t.Context(), o, (*archive).do, "x"); err != nil {
			t.Fatal(err)
		}
		id, err := dohost.CallNoArg(t.Context(), o, (*archive).losePart)
		if err != nil {
			t.Fatal(err)
		}
		_, err = dohost.Call(t.Context(), o, (*archive).do, "x")
		if want := fmt.Sprintf("operation %s: part 2 of 3 of its result is missing", id); err == nil || !strings.Contains(err.Error(), want) || *a.calls != 1 {
			t.Errorf("%v, %d calls; want %q", err, *a.calls, want)
		}
	})
}

// TestOperatorGivesLargeResult resolves an operation with a result of several parts.
func TestOperatorGivesLargeResult(t *testing.T) {
	runArchive(t, ledger.PolicyAtMostOnce, 0, 8*mebibyte+1, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[archive], a *archive) {
		_, err := dohost.Call(t.Context(), o, (*archive).do, "x")
		id := unknownID(t, err)
		for size, want := range map[blob]string{8*mebibyte + 1: "the limit is 8388608", 2 * mebibyte: ""} {
			result, err := json.Marshal(size)
			if err != nil {
				t.Fatal(err)
			}
			done, err := h.Host().Operate(t.Context(), o.ID(), &dohost.AdminRequest{Action: dohost.ActionDone, Kind: ledger.ResourceKind, ID: string(id), Result: result})
			if done != (want == "") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%d bytes: %t, %v", size, done, err)
			}
			if want == "" {
				break
			}
		}
		wantParts(t, o, "after the resolution", 2)
	})
}
