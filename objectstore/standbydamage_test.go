package objectstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/internal/frame"
)

// refusesAt follows a damaged archive. The standby must stop with this text, with the state before the record, and continue when
// the archive is repaired.
func refusesAt(t *testing.T, damage string, a, whole *memArchive, states map[uint64]map[string]string, record, last uint64, text string) {
	t.Helper()
	y := standbyOf(t, NewMemFS(), a)
	defer y.Close()
	err := y.runPass(t)
	if !errors.Is(err, ErrDamagedArchive) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v; want %q", damage, err, text)
	}
	y.wantState(t, damage, states, record)
	if _, err := y.Promote(t.Context()); !errors.Is(err, ErrDamagedArchive) {
		t.Errorf("%s: promoted: %v", damage, err)
	}
	a.set(func(a *memArchive) { a.objects = whole.clone().objects })
	if err := y.runPass(t); err != nil {
		t.Errorf("%s, repaired: %v", damage, err)
	}
	y.wantState(t, damage+", repaired", states, last)
}

// TestStandbyRefusesEachDamageByNumber damages each object of an archive in each way.
func TestStandbyRefusesEachDamageByNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := archiveOf(t, 12)
		states := history(t, whole)
		list, err := whole.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		content := parseObjects(list)
		last := content.records[len(content.records)-1].Last
		tried := 0
		refused := func(damage, name string, change func([]byte) []byte, record uint64, text string) {
			t.Helper()
			a := whole.clone()
			a.objects[name] = change(slices.Clone(a.objects[name]))
			refusesAt(t, damage+" of "+name, a, whole, states, record, last, text)
			tried++
		}
		flip := func(bit int) func([]byte) []byte {
			return func(b []byte) []byte { b[bit/8] ^= 1 << (bit % 8); return b }
		}
		for i, part := range content.bases[0].parts {
			for bit := 0; bit < 8*len(whole.objects[part.String()]); bit += 411 {
				refused(fmt.Sprint("bit ", bit), part.String(), flip(bit), 0, fmt.Sprintf("part %d of the base of record %d", i, content.bases[0].number))
			}
		}
		for _, o := range content.records {
			name := o.Name.String()
			size := len(whole.objects[name]) / int(o.Last-o.First+1) // of a frame
			for bit := 0; bit < 8*len(whole.objects[name]); bit += 211 {
				number := o.First + uint64(bit/8/size)
				refused(fmt.Sprint("bit ", bit), name, flip(bit), number-1, fmt.Sprintf(": record %d: ", number))
			}
			for at := range int(o.Last - o.First + 1) {
				number := o.First + uint64(at)
				cutOut := func(b []byte) []byte { return slices.Delete(b, at*size, (at+1)*size) }
				text := fmt.Sprintf("record %d: it is missing", number)
				if o.First == o.Last {
					text = fmt.Sprintf("record %d: it is missing at the end of its object", number)
				}
				refused(fmt.Sprint("without record ", number), name, cutOut, number-1, text)
				twice := func(b []byte) []byte { return slices.Insert(b, at*size, b[at*size:(at+1)*size]...) }
				refused(fmt.Sprint("twice record ", number), name, twice, number, fmt.Sprintf("record %d is repeated", number))
			}
		}
		t.Logf("%d damages", tried)
		if tried < 50 {
			t.Errorf("only %d damages were tried", tried)
		}
	})
}

// TestStandbyWaitsForMissingRecords removes each object of records, and later puts it back.
func TestStandbyWaitsForMissingRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := archiveOf(t, 12)
		states := history(t, whole)
		list, err := whole.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		records := parseObjects(list).records
		last := records[len(records)-1].Last
		for _, o := range records[:len(records)-1] {
			a := whole.clone()
			delete(a.objects, o.Name.String())
			y := standbyOf(t, NewMemFS(), a)
			why := fmt.Sprintf("records %d to %d are missing", o.First, o.Last)
			y.wantWaits(t, why)
			y.wantState(t, why, states, o.First-1)
			time.Sleep(time.Second)
			if st := y.Status(); st.Lag != last-o.First+1 || st.LagTime != time.Second {
				t.Errorf("the lag is %d, %v", st.Lag, st.LagTime)
			}
			if _, err := y.Promote(t.Context()); !errors.Is(err, ErrStandbyLags) || !strings.Contains(err.Error(), why) {
				t.Errorf("promoted: %v", err)
			}
			a.set(func(a *memArchive) { a.objects[o.Name.String()] = whole.objects[o.Name.String()] })
			y.wantWaits(t, "")
			y.wantState(t, "put back", states, last)
			if st := y.Status(); st.Lag != 0 || st.LagTime != 0 {
				t.Errorf("the lag is %d, %v", st.Lag, st.LagTime)
			}
		}
	})
}

// staleList is an archive: the first list of some lacks an object, like the list of a folder during a rename.
type staleList struct {
	*memArchive
	lacks string
	lists int
}

func (a *staleList) List(ctx context.Context) ([]ArchiveObject, error) {
	list, err := a.memArchive.List(ctx)
	if a.lists++; a.lists == 1 {
		list = slices.DeleteFunc(list, func(o ArchiveObject) bool { return o.Name == a.lacks })
	}
	return list, err
}

// TestStandbyListsAgainBeforeItReportsAMissingRecord has a list that is not of one moment.
func TestStandbyListsAgainBeforeItReportsAMissingRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := archiveOf(t, 12)
		list, err := whole.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a := &staleList{memArchive: whole, lacks: parseObjects(list).records[0].String()}
		y := standbyOf(t, NewMemFS(), a)
		y.wantWaits(t, "")
		if a.lists != 2 || y.Status().Lag != 0 {
			t.Errorf("%d lists, %+v", a.lists, y.Status())
		}
	})
}

// TestStandbyRefusesAnotherHistory gives a standby the archives of another store, and of another history of its store.
func TestStandbyRefusesAnotherHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, longer, fs := archiveOf(t, 6), archiveOf(t, 9), NewMemFS()
		follow := func(a *memArchive) error {
			y := standbyOf(t, fs, a)
			defer y.Close()
			return y.runPass(t)
		}
		if err := follow(mine); err != nil {
			t.Fatal(err)
		}
		mineList, err := mine.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		records := parseObjects(mineList).records
		newest := records[len(records)-1]
		shorter := archiveOf(t, 5)
		forged := mine.clone() // another record with the number of the newest one
		size := len(forged.objects[newest.Name.String()]) / int(newest.Last-newest.First+1)
		at := size * int(newest.Last-newest.First)
		b := slices.Clone(forged.objects[newest.Name.String()])
		forged.objects[newest.Name.String()] = append(b[:at:at], changed(b[at:], 56)...) // a nanosecond later
		for _, c := range []struct {
			name, text string
			a          *memArchive
		}{
			{"another store with more records", "the archive is of ", longer},
			{"another store with fewer records", "the archive is of ", shorter},
			{"another newest record", fmt.Sprintf("record %d of the archive differs from the record of the standby", newest.Last), forged},
		} {
			if err := follow(c.a); !errors.Is(err, ErrForeignArchive) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %v; want %q", c.name, err, c.text)
			}
			y := standbyOf(t, fs, c.a)
			if _, err := y.Promote(t.Context()); !errors.Is(err, ErrForeignArchive) {
				t.Errorf("%s, promoted: %v", c.name, err)
			}
			if err := y.Close(); err != nil {
				t.Fatal(err)
			}
		}
		y := standbyOf(t, fs, mine) // replaced while it follows
		y.wantWaits(t, "")
		whole := mine.clone()
		mine.set(func(a *memArchive) { a.objects = longer.objects })
		if err := y.runPass(t); !errors.Is(err, ErrForeignArchive) || errors.Is(err, ErrDamagedArchive) {
			t.Errorf("replaced by the archive of another store with more records: %v", err)
		}
		mine.set(func(a *memArchive) { a.objects = whole.objects })
		y.wantWaits(t, "")
		mine.set(func(a *memArchive) { a.objects = nil })
		y.wantWaits(t, fmt.Sprintf("the newest record of the archive is 0, the standby has record %d", newest.Last))
		mine.set(func(a *memArchive) { a.objects = shorter.objects })
		if err := y.runPass(t); !errors.Is(err, ErrForeignArchive) {
			t.Errorf("replaced by the archive of another store: %v", err)
		}
	})
}

// TestStandbyRefusesADivergedObject has an object with records that continue one another, from a record on that differs from the standby's.
func TestStandbyRefusesADivergedObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := archiveOf(t, 12)
		list, err := whole.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		records := parseObjects(list).records
		for len(records) > 0 && records[len(records)-1].First == records[len(records)-1].Last {
			delete(whole.objects, records[len(records)-1].Name.String())
			records = records[:len(records)-1]
		}
		o := records[len(records)-1]
		content, part := whole.objects[o.Name.String()], o.Name
		size := len(content) / int(o.Last-o.First+1)
		part.Last = o.First
		a := whole.clone()
		delete(a.objects, o.Name.String())
		a.objects[part.String()] = content[:size]
		y := standbyOf(t, NewMemFS(), a)
		y.wantWaits(t, "")
		var diverged []byte
		at := frame.Position{}
		for rest := content; len(rest) > 0; {
			var f frame.Frame
			if f, rest, err = frame.Decode(rest); err != nil {
				t.Fatal(err)
			}
			if f.Time++; len(diverged) > 0 {
				f.Prev = at.Sum
			}
			b := make([]byte, frame.Size(len(f.Payload)))
			f.Sum = frame.Encode(b, &f.Header, f.Payload)
			at = frame.After(&f)
			diverged = append(diverged, b...)
		}
		a.set(func(a *memArchive) { a.objects[o.Name.String()] = diverged })
		text := fmt.Sprintf("record %d: the archive has two records with this number", o.First)
		if err := y.runPass(t); !errors.Is(err, ErrDamagedArchive) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v; want %q", err, text)
		}
		if record := y.Status().Record; record != o.First {
			t.Errorf("the standby has record %d, want %d", record, o.First)
		}
	})
}

// TestStandbyWaitsForTheArchiveAndTheDisk has an archive that cannot be read, and a full disk.
func TestStandbyWaitsForTheArchiveAndTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, fs := archiveOf(t, 6), NewMemFS()
		whole := a.clone()
		a.set(func(a *memArchive) { a.refuse = errors.New("down") })
		y := standbyOf(t, fs, a)
		y.wantWaits(t, "listing the archive: down")
		a.set(func(a *memArchive) { a.refuse = nil; a.objects = map[string][]byte{} })
		y.wantWaits(t, "no complete base")
		if _, err := y.PromoteAsIs(t.Context()); err == nil {
			t.Error("a standby without a state is promoted")
		}
		list, err := whole.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		content := parseObjects(list)
		a.set(func(a *memArchive) {
			for _, part := range content.bases[0].parts {
				a.objects[part.String()] = whole.objects[part.String()]
			}
		})
		y.wantWaits(t, "")
		if record := y.Status().Record; record != content.bases[0].number {
			t.Errorf("after the base: record %d", record)
		}
		fs.SetFree(1)
		time.Sleep(2 * time.Second)
		a.set(func(a *memArchive) { a.objects = whole.objects })
		y.wantWaits(t, "disk almost full")
		if record := y.Status().Record; record != content.bases[0].number {
			t.Errorf("with a full disk: record %d", record)
		}
		fs.SetFree(1 << 40)
		time.Sleep(2 * time.Second)
		y.wantWaits(t, "")
		a.set(func(a *memArchive) { a.refuse = errors.New("down") })
		if _, err := y.Promote(t.Context()); !errors.Is(err, ErrStandbyLags) {
			t.Errorf("promoted without the archive: %v", err)
		}
		if st, err := y.PromoteAsIs(t.Context()); err != nil || st.Record != content.records[len(content.records)-1].Last {
			t.Errorf("promoted as it is: %+v, %v", st, err)
		}
	})
}
