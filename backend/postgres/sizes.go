package postgres

import "cmp"

// sizes bound what one transaction, statement or message has. They change what work costs and no answer:
// what does not fit is read, written or sent next. So a test may make all of them tiny, and every case of more
// than fits comes up with a few jobs.
type sizes struct {
	items, bytes            int // of calls that share a transaction; what one claim gets is not smaller
	chosen, chosenOfBytes   int // jobs that a claim locks at once
	news, newsReads         int
	lineDepth, moreOfLine   int
	firstRead               int
	rowLag                  int64
	dropShare               uint32
	held                    int // jobs that a Store knows
	list, listMost          int // jobs of a step of a listing
	copyFrom                int // jobs
	copyRows, copyAhead     int
	due, dueMost            int // rows that are looked at for what is due next
	generation              int // commits
	foldSweeps, looseSweeps uint32
	keptEpochs              int64
	eventBytes, events      int // of a message, and messages

	callersTime bool // rates go by the instants of calls, which those of a test may be, and not by the clock of the database
}

// settle fills in the sizes that are 0.
func (z sizes) settle() sizes {
	return sizes{
		items: cmp.Or(z.items, maxItems), bytes: cmp.Or(z.bytes, maxBytes),
		chosen: cmp.Or(z.chosen, chosenAtOnce), chosenOfBytes: cmp.Or(z.chosenOfBytes, chosenOfBytes),
		news: cmp.Or(z.news, maxNews), newsReads: cmp.Or(z.newsReads, newsReads),
		lineDepth: cmp.Or(z.lineDepth, lineDepth), moreOfLine: cmp.Or(z.moreOfLine, moreOfLine),
		firstRead: cmp.Or(z.firstRead, firstRead), rowLag: cmp.Or(z.rowLag, rowLag), dropShare: cmp.Or(z.dropShare, dropShare),
		held: cmp.Or(z.held, maxHeld),
		list: cmp.Or(z.list, listStep), listMost: cmp.Or(z.listMost, maxListStep),
		copyFrom: cmp.Or(z.copyFrom, manyJobs), copyRows: cmp.Or(z.copyRows, copyStep), copyAhead: cmp.Or(z.copyAhead, copyAhead),
		due: cmp.Or(z.due, dueStep), dueMost: cmp.Or(z.dueMost, maxDueStep),
		generation: cmp.Or(z.generation, generationCommits),
		foldSweeps: cmp.Or(z.foldSweeps, foldSweeps), looseSweeps: cmp.Or(z.looseSweeps, looseSweeps), keptEpochs: cmp.Or(z.keptEpochs, keptEpochs),
		eventBytes: cmp.Or(z.eventBytes, eventBytes), events: cmp.Or(z.events, maxEventPayloads),
		callersTime: z.callersTime,
	}
}
