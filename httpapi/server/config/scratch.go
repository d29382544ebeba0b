package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/podyard/podyard/backend/docker"
	"github.com/podyard/podyard/backend/process"
)

// fresh is how long a directory that holds no pod may belong to a server that is about
// to lock it.
const fresh = time.Minute

// tempDir makes the directory of a server that keeps nothing. It is one of its own in a
// place that all servers of this user know, so that the next one finds what a server
// that was killed left running, and ends it.
func tempDir(ctx context.Context, contained bool, log *slog.Logger) (string, error) {
	for {
		dir, err := newTempDir(ctx, contained, log)
		if !errors.Is(err, fs.ErrNotExist) || !isDir(os.TempDir()) {
			return dir, err
		}
		// Another server was the last one, and has removed the place.
	}
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

func newTempDir(ctx context.Context, contained bool, log *slog.Logger) (string, error) {
	place := filepath.Join(os.TempDir(), scratchName())
	if err := os.Mkdir(place, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	// The records in it name processes to be killed.
	fi, err := os.Lstat(place)
	if err != nil {
		return "", err
	}
	if !fi.IsDir() || !private(fi) {
		return "", fmt.Errorf("%s is not a directory of this user alone: remove it, or name a data directory", place)
	}
	sweep(ctx, place, contained, log)
	return os.MkdirTemp(place, "run-")
}

// removeTime is how long the directory of a server that keeps nothing is removed at most, because
// pods may have made anything in it. The next server goes on.
const removeTime = 2 * time.Second

// removeTempDir removes a directory of tempDir, and the place if no other server has one in it.
func removeTempDir(ctx context.Context, dir string) error {
	err := removeDir(ctx, dir)
	_ = os.Remove(filepath.Dir(dir)) // it is not empty
	return err
}

func removeDir(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	return process.RemoveAll(ctx, dir)
}

// sweep ends the pods of servers that are gone. A server that lives holds the lock of
// its directory. Containers need an engine to end them: without one, a directory that
// names some is left to a server that has one.
func sweep(ctx context.Context, place string, contained bool, log *slog.Logger) {
	left, err := filepath.Glob(filepath.Join(place, "run-*"))
	if err != nil {
		return
	}
	for _, dir := range left {
		pods, err := filepath.Glob(filepath.Join(dir, "pods", "*"))
		containers, _ := filepath.Glob(filepath.Join(dir, "docker", "pods", "*")) // the pattern is as good as the first
		pods = append(pods, containers...)
		fi, e := os.Stat(dir)
		if err != nil || e != nil || len(pods) == 0 && time.Since(fi.ModTime()) < fresh {
			continue
		}
		rt, err := process.Open(dir, &process.Options{Logger: log})
		if err != nil {
			continue
		}
		if len(pods) > 0 {
			log.Info("ending the pods of a server that is gone", "pods", len(pods))
		}
		err = errors.Join(endContainers(ctx, filepath.Join(dir, "docker"), contained, log), rt.Close(ctx))
		if err == nil {
			err = removeDir(ctx, dir)
		}
		if err != nil {
			log.Warn("remains of a server that is gone stay", "dir", dir, "err", err)
		}
	}
}

// endContainers removes what the directory of a runtime names, if it is one.
func endContainers(ctx context.Context, dir string, contained bool, log *slog.Logger) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !contained {
		return errors.New("it had an engine, and this one has none")
	}
	rt, err := docker.Open(ctx, dir, &docker.Options{Logger: log})
	if err != nil {
		return err
	}
	return errors.Join(rt.Purge(ctx), rt.Close(ctx))
}
