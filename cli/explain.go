package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// packagePrefix is what a package puts before its errors, for programs that print
// several packages' errors. Here everything is ours.
var packagePrefix = regexp.MustCompile(`(?m)(^|: )(?:dohost: )+`)

// explain is how a person is told of an error.
func explain(err error) string { return plain(packagePrefix.ReplaceAllString(err.Error(), "$1")) }

// misunderstood is how a person is told of a command line that cannot be parsed: of
// a word that was meant to be a command, and comes as an argument of the default one.
func misunderstood(err error, parser *kong.Kong, args []string) string {
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
