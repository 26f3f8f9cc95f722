package rawjson

// Nesting returns how deep JSON is nested, in one pass and without memory of its own, since each chunk is checked. If
// data is not JSON the result is meaningless.
func Nesting(data []byte) (deepest int) {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			end := EndOfString(data, i)
			Step(1 + (end-i)/64)
			i = end - 1
		case '{', '[':
			Step(1)
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth = max(0, depth-1)
		}
	}
	return deepest
}

// EndOfString returns the index after the string that begins at i, or the length of data if the string does not end.
func EndOfString(data []byte, i int) int {
	for i++; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}

// OnStep counts the elementary steps of handling frames, in tests. Otherwise it is nil. It does not change while a
// host is open.
var OnStep func(n int)

// Step counts steps.
func Step(n int) {
	if OnStep != nil {
		OnStep(n)
	}
}
