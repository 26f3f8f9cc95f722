package randtest

import (
	"fmt"
	"go/format"
	"math"
	"reflect"
	"regexp"
	"strings"
)

// maxList is the length of a list that Source prints in one line.
const maxList = 100

// Source returns a test that does a run again, for the test file of the programs with this name: the variable with their tests is
// NAMETests.
func Source(name, replay string, work any) string {
	text := fmt.Sprintf("func TestShrunkProgram(t *testing.T) {\n\t%sTests.Replay(t, %q, %s)\n}\n", name, replay, literal(reflect.ValueOf(work), true, maxList))
	formatted, err := format.Source([]byte(text))
	if err != nil {
		return text + "// " + err.Error() + "\n"
	}
	return string(formatted)
}

// generic matches the name of a type of this package with type arguments. The last one is of the package with its alias.
var generic = regexp.MustCompile(`\brandtest\.(\w+)\[.*[/.](\w+)\.\w+\]+$`)

// Literal returns a value of exported fields as a Go expression, as %#v does, but without the fields that are zero. The method
// GoString of a constant returns its name.
func Literal(v any) string { return literal(reflect.ValueOf(v), true, math.MaxInt) }

// literal is Literal, without the type of the value if it is not typed. The elements of a list that is longer than limit have
// lines of their own.
func literal(v reflect.Value, typed bool, limit int) string {
	if c, ok := v.Interface().(fmt.GoStringer); ok {
		return c.GoString()
	}
	name := ""
	if typed {
		name = generic.ReplaceAllString(v.Type().String(), "$2.$1")
	}
	var parts []string
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); !f.IsZero() {
				parts = append(parts, v.Type().Field(i).Name+": "+literal(f, true, limit))
			}
		}
		return name + "{" + strings.Join(parts, ", ") + "}"
	case reflect.Slice:
		for i := range v.Len() {
			parts = append(parts, literal(v.Index(i), false, limit))
		}
		if line := strings.Join(parts, ", "); len(line) <= limit {
			return name + "{" + line + "}"
		}
		return name + "{\n" + strings.Join(parts, ",\n") + ",\n}"
	}
	return fmt.Sprintf("%#v", v.Interface())
}
