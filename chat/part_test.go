package chat

import "testing"

func TestPartReplace(t *testing.T) {
	p, err := NewPart("file", map[string]any{"mediaType": "image/png", "url": "https://x.test/<a>"})
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.Replace("filename", "a.png")
	if err != nil {
		t.Fatal(err)
	}
	if q, err = q.Replace("url", nil); err != nil {
		t.Fatal(err)
	}
	sameJSON(t, "the part", jsonOf(t, p), `{"type":"file","mediaType":"image/png","url":"https://x.test/<a>"}`)
	sameJSON(t, "the copy", jsonOf(t, q), `{"type":"file","mediaType":"image/png","filename":"a.png"}`)
	if _, err := NewPart("", nil); err == nil {
		t.Error("a part without a type")
	}
	if _, err := p.Replace("url", func() {}); err == nil {
		t.Error("a member that is not JSON")
	}
}
