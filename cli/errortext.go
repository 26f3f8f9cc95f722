package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// packagePrefix is the prefix of a package's errors, for programs that print errors of several packages. All errors
// here are dohost's.
var packagePrefix = regexp.MustCompile(`(?m)(^|: )(?:dohost: )+`)

// explain returns the text of an error for a person.
func explain(err error) string { return plain(packagePrefix.ReplaceAllString(err.Error(), "$1")) }

// parseError returns the text for a command line that cannot be parsed. It explains a misspelled command, which
// kong parses as an argument of the default one.
func parseError(err error, parser *kong.Kong, args []string) string {
	word, unexpected := strings.CutPrefix(err.Error(), "unexpected argument ")
	var names []string
	for _, c := range parser.Model.Children {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	isCommand := func(arg string) bool { return slices.Contains(names, arg) }
	if !unexpected || slices.ContainsFunc(args, isCommand) {
		return explain(err)
	}
	return fmt.Sprintf("unknown command %q; the commands are: %s", word, strings.Join(names, ", "))
}
