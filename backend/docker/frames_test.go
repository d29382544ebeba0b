package docker

import (
	"encoding/binary"
	"io"
	"slices"
	"testing"
)

// frame is a piece of a log as an engine sends it.
func frame(stream byte, text string) []byte {
	b := append([]byte{stream, 0, 0, 0, 0, 0, 0, 0}, "2026-11-26T12:00:00.5Z "+text...)
	binary.BigEndian.PutUint32(b[4:], uint32(len(b)-8))
	return b
}

func TestAProgressBarIsShownBeforeItsLineEnds(t *testing.T) {
	r, w := io.Pipe()
	var got []string
	read := make(chan error, 1)
	go func() {
		defer close(read)
		for l, err := range readLog(r) {
			if err != nil {
				read <- err
				return
			}
			got = append(got, l.text)
			read <- nil
		}
	}()
	for _, piece := range []string{"10 %\r20 %\r", "30 %\r\n"} {
		if _, err := w.Write(frame(1, piece)); err != nil {
			t.Fatal(err)
		}
		// The second bar of the first piece may end with the second one: as "\r\n".
		if err := <-read; err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Close()
	for err := range read {
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"10 %", "20 %", "30 %"}; !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
}

func TestPiecesOfALineAreJoined(t *testing.T) {
	r, w := io.Pipe()
	go func() {
		for _, b := range [][]byte{frame(1, "one, "), frame(2, "error\r"), frame(1, "two\n"), frame(2, "\n"), frame(1, "rest\r")} {
			_, _ = w.Write(b)
		}
		_ = w.Close()
	}()
	var got []string
	for l, err := range readLog(r) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, l.text)
	}
	if want := []string{"one, two", "error", "rest"}; !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
}
