package objectstore

import (
	"context"
	"fmt"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost/internal/frame"
)

// BenchmarkShipping increments one key of each object in turn: without an archive, with one in memory, which leaves the cost of
// the frames, and with one in a folder of the same disk.
func BenchmarkShipping(b *testing.B) {
	for _, objects := range []int{1, 1000} {
		for _, archive := range []string{"none", "memory", "disk"} {
			b.Run(fmt.Sprintf("objects=%d/archive=%s", objects, archive), func(b *testing.B) { benchShipping(b, objects, archive) })
		}
	}
}

func benchShipping(b *testing.B, objects int, archive string) {
	o := &Options{}
	switch archive {
	case "memory":
		o.Ship = &Shipping{Archive: newMemArchive(), Context: context.Background()}
	case "disk":
		a, err := OpenDirArchive(nil, b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		defer a.Close()
		o.Ship = &Shipping{Archive: a, Context: context.Background()}
	}
	s, err := Open(b.TempDir(), o)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	list := make([]live, objects)
	for i := range list {
		list[i] = s.live("counter", fmt.Sprintf("o%03d", i))
	}
	key, buf := []byte("n"), make([]byte, 8)
	places := make(token, 64)
	if objects == 1 {
		places = make(token, outstanding)
	}
	for i := 0; b.Loop(); i++ {
		l := list[i%objects]
		places <- struct{}{}
		increment(b, l, key, buf)
		l.Emit(places)
		if err := l.Commit(l.Batch); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	st := s.Stats()
	b.ReportMetric(float64(st.Batches)/float64(max(1, st.Records)), "batches/record")
	b.ReportMetric(float64(st.Ship.Records), "lag-records")
}

// BenchmarkRestore replays 64 MiB of records with 20 rows of 200 bytes.
func BenchmarkRestore(b *testing.B) {
	a, key := newMemArchive(), make([]byte, 0, 64)
	p := frame.Position{Store: ulid.Make(), Fork: 1, Number: 1}
	host, err := hostRecord{identity: Identity{Store: p.Store.String(), Fork: 1}, generation: 1}.encode()
	if err != nil {
		b.Fatal(err)
	}
	add := func(dst []byte, h frame.Header, payload []byte) ([]byte, frame.Sum) {
		n := len(dst)
		dst = append(dst, make([]byte, frame.Size(len(payload)))...)
		return dst, frame.Encode(dst[n:], &h, payload)
	}
	base, _ := add(nil, p.BaseHeader(0, true, frame.Sum{}), frame.AppendSet(nil, []byte{keyHost}, host))
	a.objects[frame.Name{Last: 1, End: true}.String()] = base
	total := 0
	for total < 64<<20 {
		first, content := p.Number+1, []byte(nil)
		for len(content) < maxShipment {
			var payload []byte
			for i := range 20 {
				key = append(appendObject(key[:0], ID{"counter", fmt.Sprintf("o%03d", (int(p.Number)+50*i)%1000)}), "kn"...)
				payload = frame.AppendSet(payload, key, make([]byte, 200))
			}
			h := p.Header(1, 1)
			var sum frame.Sum
			content, sum = add(content, h, payload)
			p = frame.Position{Store: h.Store, Fork: h.Fork, Generation: 1, Number: h.Number, Time: h.Time, Sum: sum}
		}
		a.objects[frame.Name{First: first, Last: p.Number}.String()] = content
		total += len(content)
	}
	b.SetBytes(int64(total))
	for b.Loop() {
		if _, err := Restore(b.Context(), a, b.TempDir(), RestorePoint{}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
