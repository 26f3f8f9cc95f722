package uimessage

import (
	"strings"
	"testing"
)

// TestDeltasJoin joins the deltas of streams as a replay does: each line of want is one chunk.
func TestDeltasJoin(t *testing.T) {
	for name, c := range map[string]struct{ chunks, want string }{
		"one text": {`
			{"type":"text-delta","id":"1","delta":"a \"b\""}
			{"type":"text-delta","id":"1","delta":"c"}
			{"type":"text-delta","id":"1","delta":""}`,
			`{"delta":"a \"b\"c","id":"1","type":"text-delta"}`},
		"another id, another type, another kind": {`
			{"type":"text-delta","id":"1","delta":"a"}
			{"type":"text-delta","id":"2","delta":"b"}
			{"type":"reasoning-delta","id":"2","delta":"c"}
			{"type":"text-end","id":"2"}
			{"type":"text-delta","id":"2","delta":"d"}`,
			`{"delta":"a","id":"1","type":"text-delta"}
			{"delta":"b","id":"2","type":"text-delta"}
			{"delta":"c","id":"2","type":"reasoning-delta"}
			{"id":"2","type":"text-end"}
			{"delta":"d","id":"2","type":"text-delta"}`},
		"metadata": {`
			{"type":"text-delta","id":"1","delta":"a"}
			{"type":"text-delta","id":"1","delta":"b","providerMetadata":{}}
			{"type":"text-delta","id":"1","delta":"c"}`,
			`{"delta":"a","id":"1","type":"text-delta"}
			{"delta":"b","id":"1","providerMetadata":{},"type":"text-delta"}
			{"delta":"c","id":"1","type":"text-delta"}`},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			var d Deltas
			joins := false
			for _, c := range chunksOf(t, c.chunks) {
				if joins && d.Join(c) {
					got[len(got)-1] = string(d.JSON())
					continue
				}
				joins = d.Begin(c)
				got = append(got, jsonOf(t, c))
			}
			if all := strings.Join(got, "\n"); all != strings.ReplaceAll(c.want, "\t", "") {
				t.Errorf("got\n%s\nwant\n%s", all, c.want)
			}
		})
	}
}
