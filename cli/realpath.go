package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxLinks bounds the links to absent files that realPath follows.
const maxLinks = 64

// realPath returns the absolute path without symbolic links. The end of the path may be absent, and a link may lead to an absent file.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return followLinks(path, maxLinks)
}

func followLinks(path string, links int) (string, error) {
	full, err := filepath.EvalSymlinks(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return full, err
	}
	dir := filepath.Dir(path)
	if dir == path {
		return path, nil
	}
	if dir, err = followLinks(dir, links); err != nil {
		return "", err
	}
	path = filepath.Join(dir, filepath.Base(path))
	target, err := os.Readlink(path)
	switch {
	case err != nil: // it is absent, or no link
		return path, nil
	case links == 0:
		return "", fmt.Errorf("%s: too many links", path)
	case !filepath.IsAbs(target):
		target = filepath.Join(dir, target)
	}
	return followLinks(target, links-1)
}

// isWithin reports whether a path of realPath is another one, or within it.
func isWithin(inner, outer string) bool {
	separator := string(filepath.Separator)
	return inner == outer || strings.HasPrefix(inner, strings.TrimSuffix(outer, separator)+separator)
}
