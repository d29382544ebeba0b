package queue

import (
	"strconv"
	"time"
)

// AppendJSON appends the job object that clients and webhooks read
// (docs/interface.md 2.8) to b. The object always has id and status. It has delayTime while
// the job runs and once it has ended, executionTime once it has ended, workerId while a worker
// runs it and once it has ended if one ran it, and output and error where there is one. A job
// that was queued again after a lost worker has none of these. The object has the input only
// if withInput is set. It never has Extra.
func (j *Job) AppendJSON(b []byte, withInput bool) []byte { return j.appendJSON(b, withInput, "") }

// appendJSON is AppendJSON, with the member webhook unless it is empty.
func (j *Job) appendJSON(b []byte, withInput bool, webhook string) []byte {
	if j.Input == nil {
		withInput = false
	}
	b = append(b, '{')
	if j.Status == InProgress || j.Status.Terminal() {
		b = append(b, `"delayTime":`...)
		b = strconv.AppendInt(b, j.DelayTime().Milliseconds(), 10)
		b = append(b, ',')
	}
	if e := j.ErrorText(); e != "" {
		b = append(b, `"error":`...)
		b = appendString(b, e)
		b = append(b, ',')
	}
	if j.Status.Terminal() {
		b = append(b, `"executionTime":`...)
		b = strconv.AppendInt(b, j.ExecutionTime().Milliseconds(), 10)
		b = append(b, ',')
	}
	b = append(b, `"id":`...)
	b = appendString(b, string(j.ID))
	if withInput {
		b = append(b, `,"input":`...)
		b = append(b, j.Input...)
	}
	if j.Output != nil && j.ShowsOutput() {
		b = append(b, `,"output":`...)
		b = append(b, j.Output...)
	}
	b = append(b, `,"status":"`...)
	b = append(b, j.Status.String()...)
	b = append(b, '"')
	if webhook != "" {
		b = append(b, `,"webhook":`...)
		b = appendString(b, webhook)
	}
	if j.Worker != "" {
		b = append(b, `,"workerId":`...)
		b = appendString(b, string(j.Worker))
	}
	return append(b, '}')
}

// ShowsOutput reports whether clients may see Output: a result, the output of a failure, or
// the last progress value of a running job. The last progress value of a cancelled or
// timed-out job is not shown.
func (j *Job) ShowsOutput() bool {
	return j.Status == InProgress || j.Status == Completed || j.Status == Failed
}

// DelayTime returns the time from the instant at which the last attempt was ready to its start,
// which is the last one if workers were lost. For a job that ended while it was queued it is
// the time to the end. It is 0 while the job is queued, and if it ended before it was ready.
func (j *Job) DelayTime() time.Duration {
	switch {
	case j.Started != 0:
		return max(j.Started.Sub(j.Queued), 0)
	case j.Finished != 0:
		return max(j.Finished.Sub(j.Queued), 0)
	}
	return 0
}

// ExecutionTime returns the time from the start of the last attempt to its end. It is 0 for a job that
// has not ended, or ended while it was queued.
func (j *Job) ExecutionTime() time.Duration {
	if j.Started == 0 || j.Finished == 0 {
		return 0
	}
	return max(j.Finished.Sub(j.Started), 0)
}

// ErrorText returns why a FAILED or TIMED_OUT job did not complete. It is empty for any other
// job.
func (j *Job) ErrorText() string {
	if j.Status != Failed && j.Status != TimedOut {
		return ""
	}
	if t := j.reasonText(); t != "" {
		if j.Reason == WorkersLost && j.Error != "" {
			t += "; the last one: " + j.Error
		}
		return t
	}
	if j.Error == "" {
		return "the worker reported a failure without a reason"
	}
	return j.Error
}

const hexDigits = "0123456789abcdef"

// appendString quotes s as JSON. Bytes that are not UTF-8 become U+FFFD.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	if isPlain(s) {
		return append(append(b, s...), '"')
	}
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, '\\', 'n')
		case r < 0x20 || r == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&15])
		default:
			b = appendRune(b, r)
		}
	}
	return append(b, '"')
}

// isPlain reports whether s needs no escape in JSON. Ids and most names need none.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func appendRune(b []byte, r rune) []byte {
	if r < 0x80 {
		return append(b, byte(r))
	}
	return append(b, string(r)...)
}
