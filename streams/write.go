package streams

import (
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dohost/dohost"
)

const (
	// maxField bounds Content-Type, Stream-Seq and Producer-Id in bytes: they are stored.
	maxField = 256
	// maxTTL bounds Stream-TTL.
	maxTTL = 100 * 365 * 24 * time.Hour
	// maxInteger is the largest integer of JavaScript that is exact.
	maxInteger = 1<<53 - 1
)

// badHeader is an error in a field of a request's header.
type badHeader struct{ field, want string }

// Error names the field and the wanted value.
func (e *badHeader) Error() string { return e.field + ": want " + e.want }

// put answers PUT.
func (s *server) put(w http.ResponseWriter, r *http.Request, name string) {
	for field := range r.Header {
		if strings.HasPrefix(field, "Stream-Fork") {
			s.refuse(w, http.StatusNotImplemented, "not_implemented", "this server has no forks")
			return
		}
	}
	c, err := createOf(r.Header)
	if err != nil {
		s.refuse(w, http.StatusBadRequest, "bad_header", "%v", err)
		return
	}
	body, release, ok := s.body(w, r, Streams.Get(s.host, name).ID(), s.o.MaxBody)
	defer release()
	if !ok {
		return
	}
	if c.Data, ok = s.split(w, c.ContentType, body, true); !ok {
		return
	}
	made, err := call(r.Context(), Streams.Get(s.host, name), true, (*Stream).create, c)
	if err != nil {
		s.host.WriteError(w, err)
		return
	}
	switch {
	case made.Conflict:
		s.refuse(w, http.StatusConflict, "other_properties", "the stream exists with another content type, expiry or closure")
		return
	case made.Created:
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		}
		w.Header().Set("Location", scheme+"://"+r.Host+r.URL.EscapedPath()) // the protocol's tests want an absolute URL
	}
	made.describe(w.Header())
	if made.Created {
		w.WriteHeader(http.StatusCreated)
	}
}

// createOf decodes the header of a PUT.
func createOf(h http.Header) (*createRequest, error) {
	c := &createRequest{ContentType: h.Get("Content-Type"), Closed: isTrue(h.Get("Stream-Closed"))}
	setDefault(&c.ContentType, defaultType)
	if !validType(c.ContentType) {
		return nil, &badHeader{"Content-Type", "a media type of at most 256 bytes"}
	}
	ttl, expires := h.Values("Stream-TTL"), h.Values("Stream-Expires-At")
	if len(ttl)+len(expires) > 1 {
		return nil, &badHeader{"Stream-TTL, Stream-Expires-At", "one of them"}
	}
	if len(ttl) > 0 {
		n, ok := integer(ttl[0], int64(maxTTL/time.Second))
		if !ok || len(ttl[0]) > 1 && ttl[0][0] == '0' {
			return nil, &badHeader{"Stream-TTL", "seconds as an integer without leading zeros, up to 100 years"}
		}
		c.Sliding, c.TTL = true, time.Duration(n)*time.Second
	}
	if len(expires) > 0 {
		at, err := time.Parse(time.RFC3339, expires[0])
		if err != nil || at.Unix() < 0 || at.UTC().Year() > 9999 {
			return nil, &badHeader{"Stream-Expires-At", "a time of RFC 3339 from 1970 to 9999"}
		}
		c.ExpiresAt = at.UTC()
	}
	return c, nil
}

// split makes chunks of a body, or answers the request.
func (s *server) split(w http.ResponseWriter, contentType string, body []byte, mayBeEmpty bool) (data [][]byte, ok bool) {
	if len(body) == 0 {
		return nil, true
	}
	if !isJSON(contentType) {
		text := isText(contentType)
		if text && !utf8.Valid(body) {
			s.refuse(w, http.StatusBadRequest, "bad_text", "the body of a text must be UTF-8, with whole characters")
			return nil, false
		}
		return splitBytes(body, text), true
	}
	data, err := splitJSON(body)
	if large, ok := errors.AsType[*dohost.LimitError](err); ok {
		s.refuse(w, http.StatusRequestEntityTooLarge, "too_large", "%v", large)
		return nil, false
	}
	if err != nil {
		s.refuse(w, http.StatusBadRequest, "bad_json", "%v", err)
		return nil, false
	}
	if len(data) == 0 && !mayBeEmpty {
		s.refuse(w, http.StatusBadRequest, "no_messages", "the array has no messages")
		return nil, false
	}
	return data, true
}

// post answers POST.
func (s *server) post(w http.ResponseWriter, r *http.Request, name string) {
	a, err := appendOf(r.Header)
	if err != nil {
		s.refuse(w, http.StatusBadRequest, "bad_header", "%v", err)
		return
	}
	body, release, ok := s.body(w, r, Streams.Get(s.host, name).ID(), s.o.MaxBody)
	defer release()
	if !ok {
		return
	}
	switch {
	case len(body) == 0 && !a.Close:
		s.refuse(w, http.StatusBadRequest, "no_body", "want a body, or Stream-Closed: true")
		return
	case len(body) == 0:
		a.ContentType = "" // a client may send one
	case !validType(a.ContentType):
		s.refuse(w, http.StatusBadRequest, "bad_header", "Content-Type: want a media type of at most 256 bytes")
		return
	}
	if a.Data, ok = s.split(w, a.ContentType, body, false); !ok {
		return
	}
	result, err := call(r.Context(), Streams.Get(s.host, name), a.Producer.ID != "", (*Stream).append, a)
	if err != nil {
		s.host.WriteError(w, err)
		return
	}
	s.answerAppend(w, a, &result)
}

// appendOf decodes the header of a POST.
func appendOf(h http.Header) (*appendRequest, error) {
	a := &appendRequest{ContentType: h.Get("Content-Type"), Seq: h.Get("Stream-Seq"), Close: isTrue(h.Get("Stream-Closed"))}
	if len(a.Seq) > maxField {
		return nil, &badHeader{"Stream-Seq", "at most 256 bytes"}
	}
	id, epoch, seq := h.Values("Producer-Id"), h.Values("Producer-Epoch"), h.Values("Producer-Seq")
	if len(id)+len(epoch)+len(seq) == 0 {
		return a, nil
	}
	if len(id) != 1 || len(epoch) != 1 || len(seq) != 1 {
		return nil, &badHeader{"Producer-Id, Producer-Epoch, Producer-Seq", "each of them once, or none"}
	}
	if id[0] == "" || len(id[0]) > maxField {
		return nil, &badHeader{"Producer-Id", "1 to 256 bytes"}
	}
	var ok1, ok2 bool
	a.Producer.ID = id[0]
	a.Producer.Epoch, ok1 = integer(epoch[0], maxInteger)
	a.Producer.Seq, ok2 = integer(seq[0], maxInteger)
	if !ok1 || !ok2 {
		return nil, &badHeader{"Producer-Epoch, Producer-Seq", "integers from 0 to 2^53-1"}
	}
	return a, nil
}

// answerAppend answers a POST.
func (s *server) answerAppend(w http.ResponseWriter, a *appendRequest, result *appendResult) {
	h := w.Header()
	number := func(field string, n int64) { h.Set(field, strconv.FormatInt(n, 10)) }
	if result.Outcome <= duplicate || result.Outcome == closedBefore {
		h.Set("Stream-Next-Offset", result.Tail)
	}
	if result.Closed {
		h.Set("Stream-Closed", "true")
	}
	switch result.Outcome {
	case appended, duplicate:
		status := http.StatusNoContent
		if a.Producer.ID != "" {
			number("Producer-Epoch", result.Producer.Epoch)
			number("Producer-Seq", result.Producer.Seq)
			if result.Outcome == appended && len(a.Data) > 0 {
				status = http.StatusOK
			}
		}
		w.WriteHeader(status)
	case notFound:
		s.noStream(w)
	case closedBefore:
		s.refuse(w, http.StatusConflict, "closed_stream", "the stream is closed")
	case otherContentType:
		s.refuse(w, http.StatusConflict, "other_content_type", "the content type of the stream is %s", result.ContentType)
	case seqTooLow:
		s.refuse(w, http.StatusConflict, "seq_too_low", "Stream-Seq: want more than the last one of the stream")
	case staleEpoch:
		number("Producer-Epoch", result.Producer.Epoch)
		s.refuse(w, http.StatusForbidden, "stale_epoch", "Producer-Epoch: the producer has the epoch %d", result.Producer.Epoch)
	case epochNotAtZero:
		s.refuse(w, http.StatusBadRequest, "epoch_not_at_zero", "Producer-Seq: want 0 for a new epoch")
	case seqGap:
		number("Producer-Expected-Seq", result.Producer.Seq)
		number("Producer-Received-Seq", a.Producer.Seq)
		s.refuse(w, http.StatusConflict, "seq_gap", "Producer-Seq: want %d", result.Producer.Seq)
	case tooManyProducers:
		h.Set("Retry-After", "3600") // a producer makes room after days
		s.refuse(w, http.StatusTooManyRequests, "too_many_producers", "the limit of a stream is %d producers that have appended in the last 7 days", maxProducers)
	}
}

// isTrue reports whether the value of a field is true, in any case.
func isTrue(v string) bool { return strings.EqualFold(v, "true") }

// integer decodes decimal digits.
func integer(v string, most int64) (n int64, ok bool) {
	if strings.Trim(v, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(v, 10, 64)
	return n, err == nil && n <= most
}

func validType(v string) bool {
	_, _, err := mime.ParseMediaType(v)
	return err == nil && len(v) <= maxField && strings.Contains(mediaType(v), "/")
}
