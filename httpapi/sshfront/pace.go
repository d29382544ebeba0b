package sshfront

import (
	"context"
	"encoding/binary"
	"io"
)

// A paced is the connection of a session of SFTP. No request is read while too many have no answer: each is in
// memory until then.
type paced struct {
	io.ReadWriteCloser
	ctx     context.Context //nolint:containedctx // of one channel
	turns   chan struct{}   // one for each request without an answer
	begun   bool            // the request that comes next has its turn
	in, out frame
}

// pace returns c, with no more than maxUnanswered requests at once, until ctx ends.
func pace(ctx context.Context, c io.ReadWriteCloser) *paced {
	return &paced{ReadWriteCloser: c, ctx: ctx, turns: make(chan struct{}, maxUnanswered)}
}

// Read implements io.Reader. It does not read beyond a request.
func (p *paced) Read(b []byte) (int, error) {
	if !p.begun {
		select {
		case p.turns <- struct{}{}:
			p.begun = true
		case <-p.ctx.Done():
			return 0, io.EOF
		}
	}
	n, err := p.ReadWriteCloser.Read(b[:min(len(b), p.in.left())])
	if _, ended := p.in.take(b[:n]); ended {
		p.begun = false
	}
	return n, err
}

// Write implements io.Writer. Answers that do not reach the client count as well: it has gone.
func (p *paced) Write(b []byte) (int, error) {
	n, err := p.ReadWriteCloser.Write(b)
	for len(b) > 0 {
		took, ended := p.out.take(b)
		if b = b[took:]; ended {
			select {
			case <-p.turns:
			default: // an answer without a request
			}
		}
	}
	return n, err
}

// A frame is how far a message of SFTP has come: 4 bytes of length, and as many.
type frame struct {
	head [4]byte
	have int // of head
	rest int // of what follows
}

// left is how many bytes of the message are known to come.
func (f *frame) left() int {
	if f.have < len(f.head) {
		return len(f.head) - f.have
	}
	return f.rest
}

// take passes over bytes, as far as the message goes, and reports whether it has ended.
func (f *frame) take(b []byte) (n int, ended bool) {
	if f.have < len(f.head) {
		n = copy(f.head[f.have:], b)
		if f.have += n; f.have < len(f.head) {
			return n, false
		}
		f.rest = int(binary.BigEndian.Uint32(f.head[:]))
	}
	more := min(len(b)-n, f.rest)
	if f.rest -= more; f.rest > 0 {
		return n + more, false
	}
	f.have = 0
	return n + more, true
}
