package web

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/adminapi"
)

// backup answers POST /v1/backup.
func (a *admin) backup(w http.ResponseWriter, r *http.Request) {
	var req adminapi.BackupRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCommand)).Decode(&req); err != nil || req.Dir == "" {
		refuse(w, http.StatusBadRequest, "bad_argument", `want {"dir": path}`)
		return
	}
	absent := absentFolders(req.Dir)
	err := a.host.Backup(r.Context(), req.Dir)
	a.opts.Logger.Info("backup", "dir", req.Dir, "err", err)
	switch {
	case errors.Is(err, fs.ErrExist):
		refuse(w, http.StatusConflict, "exists", err.Error())
	case err != nil:
		removeEmpty(absent)
		b, status := dohost.DescribeError(err)
		b.Write(w, status)
	default:
		writeJSON(w, http.StatusOK, req)
	}
}

// absentFolders returns dir and the folders above it that are not there, dir first.
func absentFolders(dir string) (absent []string) {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) || slices.Contains(absent, at) {
			return absent
		}
		absent = append(absent, at)
	}
}

// removeEmpty removes the folders of a failed backup.
func removeEmpty(dirs []string) {
	for _, dir := range dirs {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return // it is not empty
		}
	}
}
