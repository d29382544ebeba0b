package process

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"
)

// A meter measures the directories of a limit.
type meter struct {
	limit         *diskLimit
	bytes, inodes int64
}

func newMeter(l *diskLimit) *meter { return &meter{limit: l} }

func (m *meter) Close() {}

// Step measures everything.
func (m *meter) Step(time.Time) (done bool, err error) {
	for _, dir := range m.limit.Dirs {
		err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err == nil {
				var info fs.FileInfo
				if info, err = d.Info(); err == nil {
					m.bytes, m.inodes = m.bytes+info.Size(), m.inodes+1
				}
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it was removed meanwhile
			}
			if m.bytes > m.limit.Bytes || m.inodes > m.limit.Inodes {
				return errOver
			}
			return err
		})
		if err != nil {
			return false, err
		}
	}
	return true, nil
}
