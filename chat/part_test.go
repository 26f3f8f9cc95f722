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
	for want, part := range map[string]Part{
		`{"mediaType":"image/png","type":"file","url":"https://x.test/<a>"}`: p,
		`{"filename":"a.png","mediaType":"image/png","type":"file"}`:         q,
	} {
		if got, err := part.MarshalJSON(); err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	if _, err := NewPart("", nil); err == nil {
		t.Error("a part without a type")
	}
	if _, err := p.Replace("url", func() {}); err == nil {
		t.Error("a member that is not JSON")
	}
}
