package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"

	"github.com/dohost/dohost"
)

// ResultDir is a directory with the results of operations, in a file for each: for a call that runs in another process, such as a command
// in a sandbox, which may end after the process of the object. The other process writes the result. After an interruption,
// [FindResult] reads the file instead of a second run:
//
//	var results = ledger.ResultDir("/var/lib/builds")
//
//	var build = ledger.Kind[Commit, Report]{
//		Name: "build", Same: ledger.Whole[Commit], Policy: ledger.PolicyReconcile,
//		Find: ledger.FindResult[Commit, Report](results, ledger.AnswerUnknown), Unknown: …,
//	}
//
// Only code that the program trusts should be able to write the directory. Nothing deletes its files: delete a file when the operation
// has completed, or at the latest when [Kind].Keep ends, since a later operation with the same ID would get its result. A process that
// is killed during a Write may leave a file with the ending ".tmp", which may be deleted when no Write of that operation runs.
type ResultDir string

// Path returns the path of the file with the result of an operation: the ID and ".json". A program in another language writes the
// result as JSON to another name in the directory, syncs it, and renames it to this path. So a reader never finds a part of it.
//
// Errors: [dohost.ErrMisuse] for a text that is no ID.
func (d ResultDir) Path(id ID) (string, error) {
	text, ok := strings.CutPrefix(string(id), "op_")
	ok = ok && len(text) == idEncoding.EncodedLen(idBytes) // DecodeString ignores newlines
	if data, err := idEncoding.DecodeString(text); !ok || err != nil || len(data) != idBytes {
		return "", fmt.Errorf("ledger: %.64q is no ID of an operation: %w", string(id), dohost.ErrMisuse)
	}
	return filepath.Join(string(d), string(id)+".json"), nil
}

// Write writes the result of an operation. It creates the directory if there is none. The file has the whole result or does not exist,
// even after a power cut. A second Write replaces the result.
//
// Errors: the errors of [ResultDir.Path], a [*dohost.LimitError] for more than 8 MiB of JSON, and the errors of the file system. After an error
// of the file system the file is as before, or it has the new result, which a power cut may undo. Otherwise it is as before.
func (d ResultDir) Write(id ID, result any) error {
	path, err := d.Path(id)
	if err != nil {
		return err
	}
	data, err := encodeResult(result)
	if err != nil {
		return fmt.Errorf("ledger: operation %s: %w", id, err)
	}
	if err := writeFile(path, data); err != nil {
		return fmt.Errorf("ledger: result of operation %s: %w", id, err)
	}
	return nil
}

// writeFile writes a file durably, with its directory.
func writeFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := makeDir(dir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(dir)
}

// makeDir creates a directory, and those above it, if there is none. A power cut after a Write does not remove the directory with the
// file, so the name of each new directory is made durable.
func makeDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if parent := filepath.Dir(dir); errors.Is(err, fs.ErrNotExist) && parent != dir {
		if err = makeDir(parent); err == nil {
			err = os.Mkdir(dir, 0o700)
		}
	}
	switch info, statErr := os.Stat(dir); {
	case err == nil:
		return syncDir(filepath.Dir(dir))
	case statErr == nil && info.IsDir():
		return nil
	}
	return err
}

// syncDir makes the names in a directory durable. Windows has no such call, and does it itself.
func syncDir(dir string) error {
	if goruntime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// read returns the bytes of a file of the directory, and at most one more than a result may have.
func (d ResultDir) read(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxResult+1))
	return data, errors.Join(err, f.Close())
}

// FindResult returns a [Kind].Find that reads the result of an operation from a directory: AnswerDone with the result. Without a file the
// answer is absent: [AnswerUnknown] if the other process may still run, or may have ended after its effect; [AnswerNotDone] only if it has
// certainly ended, and a run without a result has no effect, or an effect that is harmless to repeat. For another absent, and for a file that
// cannot be read, has more than 8 MiB, or is not the JSON of a result, Find returns an error, so the answer is AnswerUnknown.
func FindResult[A, R any](d ResultDir, absent Answer) func(context.Context, ID, A) (R, Answer, error) {
	return func(_ context.Context, id ID, _ A) (result R, _ Answer, err error) {
		if absent != AnswerUnknown && absent != AnswerNotDone {
			return result, AnswerUnknown, fmt.Errorf("ledger: FindResult with the answer %d for a missing file: want AnswerUnknown or AnswerNotDone: %w", absent, dohost.ErrMisuse)
		}
		path, err := d.Path(id)
		if err != nil {
			return result, AnswerUnknown, err
		}
		switch data, err := d.read(path); {
		case errors.Is(err, fs.ErrNotExist):
			return result, absent, nil
		case err != nil:
			return result, AnswerUnknown, fmt.Errorf("ledger: result of operation %s: %w", id, err)
		case len(data) > maxResult:
			return result, AnswerUnknown, &resultError{&dohost.LimitError{Subject: "file of the result", Size: len(data), Limit: maxResult}}
		default:
			if err := json.Unmarshal(data, &result); err != nil {
				var none R
				return none, AnswerUnknown, fmt.Errorf("ledger: the file with the result of operation %s cannot be decoded: %w", id, err)
			}
			return result, AnswerDone, nil
		}
	}
}
