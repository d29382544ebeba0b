package serverless

import (
	"strconv"
)

// AppendJSON appends the job object that clients and webhooks read (section 2.8): id and
// status always; delayTime once a worker has it; executionTime once it has ended;
// workerId where one ran; output and error where there is one. The input is left out
// unless asked for. Extra is never in it.
func (j *Job) AppendJSON(b []byte, withInput bool) []byte {
	if j.Input == nil {
		withInput = false
	}
	b = append(b, '{')
	if j.Status == InProgress || j.Status.Terminal() {
		b = append(b, `"delayTime":`...)
		b = strconv.AppendInt(b, int64(j.DelayTime()), 10)
		b = append(b, ',')
	}
	if e := j.ErrorText(); e != "" {
		b = append(b, `"error":`...)
		b = appendString(b, e)
		b = append(b, ',')
	}
	if j.Status.Terminal() {
		b = append(b, `"executionTime":`...)
		b = strconv.AppendInt(b, int64(j.ExecutionTime()), 10)
		b = append(b, ',')
	}
	b = append(b, `"id":`...)
	b = appendString(b, string(j.ID))
	if withInput {
		b = append(b, `,"input":`...)
		b = append(b, j.Input...)
	}
	if j.Output != nil && j.showsOutput() {
		b = append(b, `,"output":`...)
		b = append(b, j.Output...)
	}
	b = append(b, `,"status":"`...)
	b = append(b, j.Status.String()...)
	b = append(b, '"')
	if j.Worker != "" {
		b = append(b, `,"workerId":`...)
		b = appendString(b, string(j.Worker))
	}
	return append(b, '}')
}

// showsOutput: a result, what a failure came with, or the last progress value of a job
// that runs. The progress of a job that was cancelled or timed out is no output.
func (j *Job) showsOutput() bool {
	return j.Status == InProgress || j.Status == Completed || j.Status == Failed
}

// DelayTime is the milliseconds from submit, or the last retry, to the start of the
// run; for a job that never started, to its end.
func (j *Job) DelayTime() Instant {
	switch {
	case j.Started != 0:
		return max(j.Started-j.Queued, 0)
	case j.Finished != 0:
		return max(j.Finished-j.Queued, 0)
	}
	return 0
}

// ExecutionTime is the milliseconds from the start of the run to its end; 0 for a job
// that never started or has not ended.
func (j *Job) ExecutionTime() Instant {
	if j.Started == 0 || j.Finished == 0 {
		return 0
	}
	return max(j.Finished-j.Started, 0)
}

// ErrorText says why a FAILED or TIMED_OUT job did not complete; empty for any other.
func (j *Job) ErrorText() string {
	if j.Status != Failed && j.Status != TimedOut {
		return ""
	}
	if t := j.reasonText(); t != "" {
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

// isPlain reports whether s is what it is in quotes: ids and most names are.
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
