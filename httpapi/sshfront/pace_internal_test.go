package sshfront

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
)

// A wire is what a client sends, and takes all answers.
type wire struct{ io.Reader }

func (wire) Write(b []byte) (int, error) { return len(b), nil }
func (wire) Close() error                { return nil }

func TestNoMoreThan64RequestsOfSFTPAreReadBeforeTheirAnswers(t *testing.T) {
	synctest.Test(t, atMost64AreUnanswered)
}

func atMost64AreUnanswered(t *testing.T) {
	message := []byte{0, 0, 0, 3, 1, 2, 3}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := pace(ctx, wire{bytes.NewReader(bytes.Repeat(message, maxUnanswered+2))})
	got := make([]byte, len(message))
	for i := range maxUnanswered {
		if _, err := io.ReadFull(p, got); err != nil || !bytes.Equal(got, message) {
			t.Fatalf("request %d: %v, %v", i, got, err)
		}
	}
	read := make(chan error)
	next := func() {
		_, err := io.ReadFull(p, make([]byte, len(message)))
		read <- err
	}
	waits := func(when string) {
		t.Helper()
		synctest.Wait()
		select {
		case err := <-read:
			t.Fatalf("one more was read %s: %v", when, err)
		default:
		}
	}
	go next()
	waits("without an answer")
	for _, part := range [][]byte{{0, 0}, {0, 5, 1}, {2, 3, 4}} {
		if _, err := p.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	waits("before the end of an answer")
	if _, err := p.Write([]byte{5, 0, 0}); err != nil { // and the begin of another
		t.Fatal(err)
	}
	if err := <-read; err != nil {
		t.Errorf("after an answer: %v", err)
	}
	go next()
	waits("after one answer")
	cancel()
	if err := <-read; !errors.Is(err, io.EOF) {
		t.Errorf("after the session: %v, want its end", err)
	}
}

func TestAPanicOfSFTPIsAnErrorAndALineOfTheLog(t *testing.T) {
	var log bytes.Buffer
	tr := &tree{session: &session{connection: &connection{Front: &Front{log: slog.New(slog.NewTextHandler(&log, nil))}}}}
	// None of these has what it needs.
	_, get := tr.Fileread(nil)
	_, put := tr.Filewrite(nil)
	_, list := tr.Filelist(nil)
	_, stat := tr.Lstat(nil)
	_, link := tr.Readlink("a")
	_, read := reading{&stream{tree: tr}}.ReadAt(nil, 0)
	_, write := writing{&stream{tree: tr}}.WriteAt(nil, 0)
	for i, err := range []error{get, put, list, stat, link, read, write, tr.Filecmd(nil), tr.PosixRename(nil)} {
		if !errors.Is(err, errPanicked) {
			t.Errorf("%d: %v, want the panic", i, err)
		}
	}
	if got := strings.Count(log.String(), "SFTP panicked"); got != 9 {
		t.Errorf("the log has %d lines, want one of each", got)
	}
}
