package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
)

// maxSchemaParts bounds the schemas in a schema. The target of a reference counts for each reference to it.
const maxSchemaParts = 4096

// checkSchemaParts returns an error for a schema that makes a comparison too expensive. A comparison visits each value of a result with
// at most maxSchemaParts schemas. A recursive schema has no such bound: the time can be exponential in the nesting of the result, and
// a reference to itself overflows the stack, which ends the process.
func checkSchemaParts(raw json.RawMessage) error {
	if rawjson.Nesting(raw) >= uimessage.MaxNesting { // decoding is quadratic in the nesting
		return errNesting
	}
	schema, err := decodeSchema(raw)
	if err != nil {
		return err
	}
	names, err := rawjson.Encode(schema) // the decoder accepts names of members in any case
	if err != nil {
		return err
	}
	w := schemaWalk{left: maxSchemaParts}
	if err := json.Unmarshal(names, &w.root); err != nil {
		return err
	}
	return w.visit(w.root)
}

// schemaWalk visits the schemas in a schema, and those that they refer to.
type schemaWalk struct {
	root any
	left int // the number of schemas that it may still visit
}

func (w *schemaWalk) visit(schema any) error {
	first := w.left == maxSchemaParts
	if w.left--; w.left < 0 {
		return fmt.Errorf("it is recursive, or has more than %d schemas, references included", maxSchemaParts)
	}
	members, _ := schema.(map[string]any) // or true or false
	for name, v := range members {
		switch name {
		case "$dynamicRef":
			return errors.New("it has a $dynamicRef")
		case "$id": // references below it have another base
			if !first {
				return errors.New("a schema in it has an $id")
			}
		case "$ref":
			target, err := w.target(fmt.Sprint(v))
			if err != nil {
				return err
			}
			v = []any{target}
		case "properties", "patternProperties", "dependentSchemas", "dependencies":
			v = valuesOf(v)
		case "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "items", "prefixItems", "additionalItems", "contains",
			"additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties":
		default:
			continue
		}
		if err := w.visitAll(v); err != nil {
			return err
		}
	}
	return nil
}

// visitAll visits a schema, or a list of schemas.
func (w *schemaWalk) visitAll(v any) error {
	list, ok := v.([]any)
	if !ok {
		return w.visit(v)
	}
	for _, schema := range list {
		if err := w.visit(schema); err != nil {
			return err
		}
	}
	return nil
}

func valuesOf(v any) (list []any) {
	members, _ := v.(map[string]any)
	for _, schema := range members {
		list = append(list, schema)
	}
	return list
}

// target returns the schema that a JSON pointer refers to.
func (w *schemaWalk) target(ref string) (any, error) {
	pointer, err := url.PathUnescape(ref)
	if err != nil || ref != "#" && !strings.HasPrefix(ref, "#/") {
		return nil, fmt.Errorf("the reference %q: want one such as #/$defs/name", ref)
	}
	to := w.root
	for _, name := range strings.Split(pointer, "/")[1:] {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		switch in := to.(type) {
		case map[string]any:
			to = in[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(in) {
				return nil, fmt.Errorf("the reference %q has no target", ref)
			}
			to = in[i]
		default:
			to = nil
		}
		if to == nil {
			return nil, fmt.Errorf("the reference %q has no target", ref)
		}
	}
	return to, nil
}
