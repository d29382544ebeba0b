package pods

import "time"

// Lines of the journal that Service.Why looks for, or how they begin or end.
const (
	lineMaking  = "making a container of "
	lineStarted = "container started"
	lineAsked   = " was asked for"
	lineRefused = "the host did not take the call to "
)

// appendJournal appends a line to the system log of p.
func (p *Pod) appendJournal(at time.Time, text string) {
	seq := uint64(1)
	if n := len(p.Journal); n > 0 {
		seq = p.Journal[n-1].Seq + 1
	}
	p.Journal = append(p.Journal, LogLine{At: at, Seq: seq, Text: text})
	if n := len(p.Journal); n > MaxJournalLines {
		p.Journal = p.Journal[n-MaxJournalLines:]
	}
}
