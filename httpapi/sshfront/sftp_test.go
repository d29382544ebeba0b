package sshfront_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/sftp"
)

// files opens SFTP to the pod, whose files are those of this machine.
func (x *fronted) files() (c *sftp.Client, dir string) {
	x.Helper()
	if runtime.GOOS != "linux" {
		x.Skip("programs of other systems are not those of pods")
	}
	c, err := sftp.NewClient(x.enter(), sftp.UseConcurrentWrites(true))
	if err != nil {
		x.Fatal(err)
	}
	x.Cleanup(func() { _ = c.Close() })
	return c, x.TempDir()
}

func TestFilesGoIntoAPodAndOutBySFTP(t *testing.T) {
	x := startFront(t)
	c, dir := x.files()
	content := make([]byte, 3<<20+17)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	source := rand.New(rand.NewPCG(seed, 0))
	for i := range content {
		content[i] = byte(source.Uint32())
	}
	odd := filepath.Join(dir, "-a name' with \"$odd\" things\n`and` lines")
	f, err := c.Create(odd)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.ReadFrom(bytes.NewReader(content)); err != nil || n != int64(len(content)) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(odd); err != nil || !bytes.Equal(b, content) {
		t.Fatalf("in the pod are %d bytes, %v; want what was sent", len(b), err)
	}
	r, err := c.Open(odd)
	if err != nil {
		t.Fatal(err)
	}
	var back bytes.Buffer
	if _, err := r.WriteTo(&back); err != nil || !bytes.Equal(back.Bytes(), content) {
		t.Errorf("%d bytes came back, %v", back.Len(), err)
	}
	part := make([]byte, 1000)
	for _, at := range []int64{2 << 20, 5, 1 << 20} {
		if _, err := r.ReadAt(part, at); err != nil || !bytes.Equal(part, content[at:at+1000]) {
			t.Errorf("a part from %d is not that of the file: %v", at, err)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	w, err := c.OpenFile(odd, os.O_WRONLY)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{1 << 20, 10} {
		if _, err := w.WriteAt([]byte("written over"), at); err != nil {
			t.Error(err)
		}
		copy(content[at:], "written over")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(odd); err != nil || !bytes.Equal(b, content) {
		t.Errorf("parts that were written over are wrong: %v", err)
	}
}

func TestDirectoriesLinksAndModesOfAPodAreThoseOfItsPrograms(t *testing.T) {
	x := startFront(t)
	c, dir := x.files()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(c.Mkdir(at("d")), c.Mkdir(at("d/e")), c.Symlink("../d", at("d/link"))); err != nil {
		t.Fatal(err)
	}
	f, err := c.OpenFile(at("d/one\ntwo"), os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), c.Chmod(at("d/one\ntwo"), 0o640), c.Chtimes(at("d/one\ntwo"), time.Unix(1e9, 0), time.Unix(1e9, 0))); err != nil {
		t.Fatal(err)
	}
	list, err := c.ReadDir(at("d"))
	var names []string
	for _, i := range list {
		names = append(names, i.Name())
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"e", "link", "one\ntwo"}, names); diff != "" || err != nil {
		t.Errorf("a list: %v (-want +got):\n%s", err, diff)
	}
	if i, err := c.Stat(at("d/one\ntwo")); err != nil || i.Mode().Perm() != 0o640 || i.ModTime().Unix() != 1e9 {
		t.Errorf("a file: %v, %v; want mode 640 and its time", i, err)
	}
	if to, err := c.ReadLink(at("d/link")); err != nil || to != "../d" {
		t.Errorf("a link to %q, %v", to, err)
	}
	if i, err := c.Lstat(at("d/link")); err != nil || i.Mode().Type() != fs.ModeSymlink {
		t.Errorf("a link: %v, %v", i, err)
	}
	if err := errors.Join(c.Rename(at("d/one\ntwo"), at("d/three")), c.Truncate(at("d/three"), 100)); err != nil {
		t.Error(err)
	}
	if i, err := os.Stat(at("d/three")); err != nil || i.Size() != 100 {
		t.Errorf("a file that was truncated: %v, %v", i, err)
	}
	if err := c.Rename(at("d/three"), at("d/e")); err == nil {
		t.Error("a rename took the place of another file")
	}
	if err := errors.Join(c.Remove(at("d/link")), c.Remove(at("d/three")), c.RemoveDirectory(at("d/e")), c.RemoveDirectory(at("d"))); err != nil {
		t.Error(err)
	}
	if _, err := c.Stat(at("d")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v, want so", err)
	}
	if _, err := c.Open(at("nothere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v, want so", err)
	}
	if _, err := c.Create("/etc/passwd/a"); err == nil {
		t.Error("a file below a file was made")
	}
}

func TestASessionOfSFTPHasSixteenOpenFilesAtMost(t *testing.T) {
	x := startFront(t)
	c, dir := x.files()
	name := filepath.Join(dir, "a")
	if err := os.WriteFile(name, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	var open []io.Closer
	for range 16 {
		f, err := c.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, f)
	}
	if _, err := c.Open(name); err == nil {
		t.Error("a seventeenth file was opened")
	}
	for _, f := range open {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Open(name); err != nil {
		t.Errorf("a file after the others were closed: %v", err)
	}
}

// rawFiles opens SFTP to the pod, for messages that no client sends. Its result sends one and returns the answer.
func (x *fronted) rawFiles() func(kind byte, parts ...any) []byte {
	x.Helper()
	if runtime.GOOS != "linux" {
		x.Skip("programs of other systems are not those of pods")
	}
	s := x.session(x.enter())
	in, err := s.StdinPipe()
	if err != nil {
		x.Fatal(err)
	}
	out, err := s.StdoutPipe()
	if err != nil {
		x.Fatal(err)
	}
	if err := s.RequestSubsystem("sftp"); err != nil {
		x.Fatal(err)
	}
	return func(kind byte, parts ...any) []byte {
		x.Helper()
		b := []byte{0, 0, 0, 0, kind}
		for _, p := range parts {
			switch p := p.(type) {
			case int:
				b = binary.BigEndian.AppendUint32(b, uint32(p))
			case uint64:
				b = binary.BigEndian.AppendUint64(b, p)
			case string:
				b = append(binary.BigEndian.AppendUint32(b, uint32(len(p))), p...)
			}
		}
		binary.BigEndian.PutUint32(b, uint32(len(b)-4))
		if _, err := in.Write(b); err != nil {
			x.Fatal(err)
		}
		var n [4]byte
		if _, err := io.ReadFull(out, n[:]); err != nil {
			x.Fatal(err)
		}
		answer := make([]byte, binary.BigEndian.Uint32(n[:]))
		if _, err := io.ReadFull(out, answer); err != nil {
			x.Fatal(err)
		}
		return answer
	}
}

// Kinds of messages of SFTP, version 3.
const (
	fxInit, fxOpen, fxRead, fxWrite, fxSetstat, fxStat = 1, 3, 5, 6, 9, 17
	fxStatus, fxHandle, fxAttrs                        = 101, 102, 105
)

func TestMessagesOfSFTPThatAreWrongHarmNothing(t *testing.T) {
	x := startFront(t)
	name := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	send := x.rawFiles()
	send(fxInit, 3)
	status := func(what string, answer []byte) {
		t.Helper()
		if answer[0] != fxStatus || binary.BigEndian.Uint32(answer[5:]) == 0 {
			t.Errorf("%s: %v, want an error", what, answer)
		}
	}
	for flags := range 16 {
		if flags != 0 {
			status("attributes that are missing", send(fxSetstat, 1, name, flags))
		}
	}
	handle := func(flags int) string {
		t.Helper()
		answer := send(fxOpen, 2, name, flags, 0) // the flags say append or more, and the attributes are none
		if answer[0] != fxHandle {
			t.Fatalf("open with flags %d: %v", flags, answer)
		}
		return string(answer[9:])
	}
	added := handle(2 | 4)
	if answer := send(fxWrite, 3, added, uint64(0), " and new"); binary.BigEndian.Uint32(answer[5:]) != 0 {
		t.Errorf("a write: %v", answer)
	}
	if answer := send(4, 4, added); binary.BigEndian.Uint32(answer[5:]) != 0 {
		t.Errorf("a close: %v", answer)
	}
	status("a write before the file", send(fxWrite, 5, handle(2), uint64(1<<63), "a"))
	status("a read before the file", send(fxRead, 6, handle(1), uint64(1<<63), 10))
	if answer := send(fxStat, 7, name); answer[0] != fxAttrs {
		t.Errorf("the session afterwards: %v", answer)
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != "old and new" {
		t.Errorf("the file is %q, %v", b, err)
	}
}

func TestASessionOfSFTPHasTwoOpenListsAtMost(t *testing.T) {
	x := startFront(t)
	dir := t.TempDir()
	send := x.rawFiles()
	send(fxInit, 3)
	const openDir = 11
	for range 2 {
		if answer := send(openDir, 1, dir); answer[0] != fxHandle {
			t.Fatalf("a list: %v", answer)
		}
	}
	if answer := send(openDir, 1, dir); answer[0] != fxStatus {
		t.Errorf("a third list: %v", answer)
	}
}
