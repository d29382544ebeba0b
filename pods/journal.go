package pods

import "time"

// note appends a line to the system log of p.
func (p *Pod) note(at time.Time, text string) {
	seq := uint64(1)
	if n := len(p.Journal); n > 0 {
		seq = p.Journal[n-1].Seq + 1
	}
	p.Journal = append(p.Journal, Line{At: at, Seq: seq, Text: text})
	if n := len(p.Journal); n > JournalLines {
		p.Journal = p.Journal[n-JournalLines:]
	}
}
