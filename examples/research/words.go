package research

import "io"

// maxWord is the number of letters after which a word is cut off: the rest of a longer run of letters is not
// counted.
const maxWord = 64

// isLetter reports whether words may contain b.
func isLetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }

// readPiece reads about size bytes of r from offset, up to the end of a word, and counts its words. next is the
// offset of the following piece; done is set if there is none.
func readPiece(r io.ReaderAt, offset int64, size int) (words map[string]int, next int64, done bool, err error) {
	var buf []byte
	for {
		buf = make([]byte, size)
		n, err := r.ReadAt(buf, offset)
		if err != nil && err != io.EOF {
			return nil, 0, false, err
		}
		buf = buf[:n]
		if n < size {
			return count(buf), offset + int64(n), true, nil
		}
		for n > 0 && isLetter(buf[n-1]) {
			n--
		}
		if n > 0 {
			return count(buf[:n]), offset + int64(n), false, nil
		}
		size *= 2 // a word longer than the piece
	}
}

func count(text []byte) map[string]int {
	words := map[string]int{}
	start := -1
	for i := 0; i <= len(text); i++ {
		if i < len(text) && isLetter(text[i]) {
			if start < 0 {
				start = i
			}
			continue
		}
		if start >= 0 {
			words[string(text[start:min(i, start+maxWord)])]++
			start = -1
		}
	}
	return words
}
