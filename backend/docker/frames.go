package docker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/podyard/podyard/internal/podhost"
)

// lineLimit is the longest line that is joined from pieces. A longer line becomes several
// lines.
const lineLimit = 256 << 10

type logLine struct {
	at   time.Time
	text string
}

// readLog reads an engine's log. The log is a sequence of pieces. Each piece has a header
// with stream and size, then a time, a space and the text. An engine cuts long lines: a
// piece without a newline continues in the next piece of its stream. readLog ends at the
// end of r.
func readLog(r io.Reader) iter.Seq2[logLine, error] {
	return func(yield func(logLine, error) bool) {
		in := bufio.NewReaderSize(r, 64<<10)
		var open [3]partialLine
		var buf []byte
		for {
			var header [8]byte
			if _, err := io.ReadFull(in, header[:]); err != nil {
				if !errors.Is(err, io.EOF) {
					yield(logLine{}, err)
					return
				}
				break
			}
			size := binary.BigEndian.Uint32(header[4:])
			if header[0] > 2 || size > 16<<20 {
				yield(logLine{}, fmt.Errorf("docker: log is not in frames: stream %d, size %d", header[0], size))
				return
			}
			if cap(buf) < int(size) {
				buf = make([]byte, size)
			}
			buf = buf[:size]
			if _, err := io.ReadFull(in, buf); err != nil {
				yield(logLine{}, err)
				return
			}
			p := &open[header[0]]
			if err := p.add(buf); err != nil {
				yield(logLine{}, err)
				return
			}
			for f, ok := p.take(); ok; f, ok = p.take() {
				if !yield(f, nil) {
					return
				}
			}
		}
		for i := range open {
			if p := &open[i]; len(p.text) > 0 && !yield(p.cut(len(bytes.TrimSuffix(p.text, []byte{'\r'})), len(p.text)), nil) {
				return
			}
		}
	}
}

type partialLine struct {
	at   time.Time // of its first piece
	text []byte
}

func (p *partialLine) add(b []byte) error {
	stamp, text, found := bytes.Cut(b, []byte{' '})
	if !found {
		stamp, text = bytes.TrimRight(b, "\n"), []byte{'\n'}
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return fmt.Errorf("docker: log line has no time: %w", err)
	}
	if len(p.text) == 0 {
		p.at = at.UTC()
	}
	p.text = append(p.text, text...)
	return nil
}

// take returns the next line that is complete or as long as lineLimit.
func (p *partialLine) take() (logLine, bool) {
	text, size := podhost.LineEnd(p.text)
	switch {
	case size >= 0:
		return p.cut(text, size), true
	case len(p.text) >= lineLimit:
		return p.cut(len(p.text), len(p.text)), true
	}
	return logLine{}, false
}

// cut takes size bytes, of which the first ones are the text of a line.
func (p *partialLine) cut(text, size int) logLine {
	f := logLine{at: p.at, text: string(p.text[:text])}
	p.text = p.text[:copy(p.text, p.text[size:])]
	return f
}
