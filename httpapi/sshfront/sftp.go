package sshfront

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pkg/sftp"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

// Limits of a session of SFTP.
const (
	maxFiles      = 16 // open at once: each has a program in the pod
	maxLists      = 2  // open at once
	maxListing    = 1 << 20
	maxSaid       = 4 << 10 // bytes of what a program in the pod says of an error
	maxPath       = 4096
	maxUnanswered = 64 // requests, of up to 256 KB each
)

// sftp serves SFTP with programs inside the pod, which read and write as its user.
func (s *session) sftp() {
	t := &tree{session: s}
	start, err := t.run("pwd")
	if err != nil {
		_, _ = fmt.Fprintf(s.ch.Stderr(), "podyard: %v\r\n", err) // the client may have gone
		s.exit(failed)
		return
	}
	h := sftp.Handlers{FileGet: t, FilePut: t, FileCmd: t, FileList: t}
	srv := sftp.NewRequestServer(pace(s.ctx, s.ch), h, sftp.WithStartDirectory(strings.TrimSuffix(string(start), "\n")))
	err = srv.Serve()
	_ = srv.Close() // ends what is open
	if err != nil && !errors.Is(err, io.EOF) {
		s.exit(failed)
		return
	}
	s.exit(0)
}

// A tree is the files of a pod, as programs inside it see them: a POSIX shell, and stat, find, cat and others
// as GNU and busybox have them.
type tree struct {
	*session
	files, lists atomic.Int64
}

// recovered is deferred by what package sftp calls in goroutines of its own, where a panic ends the process.
func (t *tree) recovered(err *error) {
	if r := recover(); r != nil {
		t.log.Error("SFTP panicked", "pod", t.pod, "err", r, "stack", string(debug.Stack()))
		*err = errPanicked
	}
}

var errPanicked = errors.New("the server failed")

// errTooMany is for clients that open more than they may.
var errTooMany = errors.New("too many open files or lists")

// head keeps the first bytes of an output, and fails beyond.
type head struct {
	bytes.Buffer
	most int
	drop bool // what is beyond, without an error
}

var errLong = errors.New("the answer is too large")

// Write implements io.Writer.
func (h *head) Write(b []byte) (int, error) {
	if room := h.most - h.Len(); len(b) > room {
		h.Buffer.Write(b[:room])
		if h.drop {
			return len(b), nil
		}
		return room, errLong
	}
	return h.Buffer.Write(b)
}

// run runs a script with arguments and returns what it prints.
func (t *tree) run(script string, args ...string) ([]byte, error) {
	out := &head{most: maxListing}
	err := t.exec(t.ctx, script, args, nil, out)
	return out.Bytes(), err
}

// exec runs a script. Names are arguments and never a part of it.
func (t *tree) exec(ctx context.Context, script string, args []string, in io.Reader, out io.Writer) (err error) {
	defer t.recovered(&err)
	said := &head{most: maxSaid, drop: true}
	argv := append([]string{"sh", "-c", script, "sh"}, args...)
	code, err := t.Pods.Exec(ctx, t.owner, t.pod, pods.Command{Argv: argv, Env: []string{"LC_ALL=C"}}, pods.Streams{Stdin: in, Stdout: out, Stderr: said})
	switch {
	case err != nil:
		return errors.New(problem.Of(err).Detail) //nolint:err113 // for the client
	case code != 0:
		return failure(code, said.String())
	}
	return nil
}

// failure is the error of a script.
func failure(code int, said string) error {
	said = strings.TrimSpace(said)
	switch {
	case strings.Contains(said, "No such file") || strings.Contains(said, "nonexistent directory"):
		return os.ErrNotExist
	case strings.Contains(said, "Permission denied") || strings.Contains(said, "not permitted"):
		return os.ErrPermission
	case code == 127:
		return fmt.Errorf("the image of this pod lacks a program: %s", said) //nolint:err113 // for the client
	}
	return fmt.Errorf("exit code %d: %s", code, said) //nolint:err113 // for the client
}

func checkPaths(r *sftp.Request) error {
	return cmp.Or(checkPath(r.Filepath), checkPath(r.Target))
}

func checkPath(p string) error {
	if len(p) > maxPath || strings.ContainsRune(p, 0) {
		return sftp.ErrSSHFxBadMessage
	}
	return nil
}

// Scripts. $1 and what follows are their arguments.
const (
	// The format has the name between two slashes, which names do not have.
	statFormat   = `'%f %s %u %g %X %Y %n/'`
	lstatScript  = `stat -c '%f %s %u %g %X %Y' -- "$1"`
	statScript   = `stat -L -c '%f %s %u %g %X %Y' -- "$1"`
	listScript   = `cd -- "$1" && find . -mindepth 1 -maxdepth 1 -exec stat -c ` + statFormat + ` -- {} +`
	linkScript   = `readlink -- "$1"`
	notDirectory = `if [ -d "$2" ]; then echo "Is a directory" >&2; exit 1; fi; `
	newOnly      = `if [ -e "$2" ] || [ -L "$2" ]; then echo "File exists" >&2; exit 1; fi; `
	canRead      = `if [ -d "$1" ]; then echo "Is a directory" >&2; exit 1; fi; [ -r "$1" ] || { stat -- "$1" >/dev/null && echo "Permission denied" >&2; exit 1; }`
	// $2 says that there must be no file, $3 that it is emptied, $4 that it is made.
	prepareScript = `if [ -d "$1" ]; then echo "Is a directory" >&2; exit 1; fi
if [ "$2" ]; then set -C; : >"$1" || exit 1; elif [ "$3" ]; then : >"$1" || exit 1; elif [ "$4" ]; then : >>"$1" || exit 1; else : <"$1" || exit 1; fi`
	readScript   = `if [ "$2" = 0 ]; then exec cat -- "$1"; fi; exec tail -c +"$(($2 + 1))" -- "$1"`
	writeScript  = `{ if [ "$2" != 0 ]; then dd bs=1 count=0 seek="$2" 2>/dev/null </dev/null || exit 1; fi; cat; } 1<>"$1"`
	appendScript = `cat >>"$1"`
)

// Fileread implements sftp.FileReader.
func (t *tree) Fileread(r *sftp.Request) (_ io.ReaderAt, err error) {
	defer t.recovered(&err)
	if err := checkPaths(r); err != nil {
		return nil, err
	}
	if _, err := t.run(canRead, r.Filepath); err != nil {
		return nil, err
	}
	f, err := t.open(r.Filepath, readScript)
	if err != nil {
		return nil, err
	}
	return reading{f}, nil
}

// Filewrite implements sftp.FileWriter. A new file has the mode that the pod gives it: the flags of an open
// are not those of its attributes, and package sftp takes them for such.
func (t *tree) Filewrite(r *sftp.Request) (_ io.WriterAt, err error) {
	defer t.recovered(&err)
	if err := checkPaths(r); err != nil {
		return nil, err
	}
	is := func(b bool) string {
		if b {
			return "1"
		}
		return ""
	}
	flags := r.Pflags()
	if _, err := t.run(prepareScript, r.Filepath, is(flags.Creat && flags.Excl), is(flags.Trunc), is(flags.Creat)); err != nil {
		return nil, err
	}
	script := writeScript
	if flags.Append {
		script = appendScript
	}
	f, err := t.open(r.Filepath, script)
	if err != nil {
		return nil, err
	}
	return writing{f}, nil
}

func octal(m fs.FileMode) string { return "0" + strconv.FormatUint(uint64(m), 8) }

// Filecmd implements sftp.FileCmder.
func (t *tree) Filecmd(r *sftp.Request) (err error) {
	defer t.recovered(&err)
	if err := checkPaths(r); err != nil {
		return err
	}
	script := map[string]string{
		"Remove": `rm -- "$1"`, "Rmdir": `rmdir -- "$1"`, "Mkdir": `mkdir -- "$1"`,
		"Rename": newOnly + `mv -- "$1" "$2"`, "PosixRename": notDirectory + `mv -f -- "$1" "$2"`,
		"Link": newOnly + `ln -- "$1" "$2"`, "Symlink": newOnly + `ln -s -- "$1" "$2"`,
	}[r.Method]
	switch {
	case r.Method == "Setstat":
		return t.setstat(r)
	case script == "":
		return sftp.ErrSSHFxOpUnsupported
	}
	_, err = t.run(script, r.Filepath, r.Target)
	return err
}

// PosixRename implements sftp.PosixRenameFileCmder.
func (t *tree) PosixRename(r *sftp.Request) (err error) {
	defer t.recovered(&err)
	r.Method = "PosixRename"
	return t.Filecmd(r)
}

func (t *tree) setstat(r *sftp.Request) error {
	flags, a := r.AttrFlags(), r.Attributes()
	if a == nil { // they are too short
		return sftp.ErrSSHFxBadMessage
	}
	var script []string
	if flags.Size {
		script = append(script, `dd of="$1" bs=1 count=0 seek="$2" 2>/dev/null </dev/null`)
	}
	if flags.UidGid {
		script = append(script, `chown "$3" "$1"`)
	}
	if flags.Permissions {
		script = append(script, `chmod "$4" "$1"`)
	}
	if flags.Acmodtime {
		script = append(script, `touch -c -d "@$5" -- "$1"`)
	}
	if script == nil {
		return nil
	}
	_, err := t.run(strings.Join(script, " && "), r.Filepath, strconv.FormatUint(a.Size, 10), fmt.Sprintf("%d:%d", a.UID, a.GID), octal(fs.FileMode(a.Mode&0o7777)), strconv.FormatUint(uint64(a.Mtime), 10))
	return err
}

// Filelist implements sftp.FileLister.
func (t *tree) Filelist(r *sftp.Request) (_ sftp.ListerAt, err error) {
	defer t.recovered(&err)
	if err := checkPaths(r); err != nil {
		return nil, err
	}
	switch r.Method {
	case "Stat":
		return t.stat(statScript, r.Filepath)
	case "List":
		return t.list(r.Filepath)
	}
	return nil, sftp.ErrSSHFxOpUnsupported
}

// Lstat implements sftp.LstatFileLister.
func (t *tree) Lstat(r *sftp.Request) (_ sftp.ListerAt, err error) {
	defer t.recovered(&err)
	if err := checkPaths(r); err != nil {
		return nil, err
	}
	return t.stat(lstatScript, r.Filepath)
}

// Readlink implements sftp.ReadlinkFileLister.
func (t *tree) Readlink(name string) (_ string, err error) {
	defer t.recovered(&err)
	if err := checkPath(name); err != nil {
		return "", err
	}
	out, err := t.run(linkScript, name)
	return strings.TrimSuffix(string(out), "\n"), err
}

func (t *tree) stat(script, name string) (sftp.ListerAt, error) {
	out, err := t.run(script, name)
	if err != nil {
		return nil, err
	}
	i, err := parseInfo(strings.TrimSpace(string(out)))
	if err != nil {
		return nil, err
	}
	i.name = path.Base(name)
	return &listing{tree: t, entries: []os.FileInfo{i}}, nil
}

func (t *tree) list(dir string) (sftp.ListerAt, error) {
	l := &listing{tree: t, close: func() { t.lists.Add(-1) }}
	if t.lists.Add(1) > maxLists {
		l.close()
		return nil, errTooMany
	}
	out, err := t.run(listScript, dir)
	for rest := string(out); err == nil && rest != ""; {
		var values, name string
		values, rest, _ = strings.Cut(rest, " ./")
		name, rest, _ = strings.Cut(rest, "/\n")
		var i *info
		if i, err = parseInfo(values); err == nil {
			i.name = name
			l.entries = append(l.entries, i)
		}
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// A listing is the entries of a directory.
type listing struct {
	tree    *tree
	entries []os.FileInfo
	close   func() // may be nil
}

// ListAt implements sftp.ListerAt.
func (l *listing) ListAt(to []os.FileInfo, offset int64) (n int, err error) {
	defer l.tree.recovered(&err)
	if offset >= int64(len(l.entries)) {
		return 0, io.EOF
	}
	if n = copy(to, l.entries[offset:]); n < len(to) {
		return n, io.EOF
	}
	return n, nil
}

// Close is called when the client closes the directory.
func (l *listing) Close() (err error) {
	defer l.tree.recovered(&err)
	if l.close != nil {
		l.close()
		l.close = nil
	}
	return nil
}

// An info is what stat says of a file.
type info struct {
	name string
	stat sftp.FileStat
}

var _ os.FileInfo = (*info)(nil)

// parseInfo reads a line of stat: mode in hexadecimal, size, owner, group and two times.
func parseInfo(line string) (*info, error) {
	words := strings.Fields(line)
	var n [6]int64
	for i := range n {
		base, err := 10, errors.New("too short")
		if i == 0 {
			base = 16
		}
		if i < len(words) {
			n[i], err = strconv.ParseInt(words[i], base, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("stat of this pod says what cannot be read: %.100q", line) //nolint:err113 // for the client
		}
	}
	// SFTP has 32 bits for all but the size.
	return &info{stat: sftp.FileStat{Mode: uint32(n[0]), Size: uint64(n[1]), UID: uint32(n[2]), GID: uint32(n[3]), Atime: uint32(n[4]), Mtime: uint32(n[5])}}, nil
}

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return int64(i.stat.Size) }
func (i *info) Mode() fs.FileMode  { return i.stat.FileMode() }
func (i *info) ModTime() time.Time { return time.Unix(int64(i.stat.Mtime), 0) }
func (i *info) IsDir() bool        { return i.Mode().IsDir() }

// Sys is read by package sftp for owners and times.
func (i *info) Sys() any { return &i.stat }
