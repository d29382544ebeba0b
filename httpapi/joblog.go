package httpapi

import (
	"net/http"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/ratelimit"
)

func jobLogOperations() []operation {
	return group(APIJobs, AreaJobs,
		op("jobLog", "GET /v2/{endpoint}/log/{job}", ScopeEndpointRead, jobLog, rate(ratelimit.Status), added, record),
	)
}

func (b *describer) describeJobLog() map[string]description {
	return map[string]description{
		"jobLog": {summary: "Get what a job has printed", text: "The newest 64 KB of the lines that its workers printed with its id.", answers: ok(openapi.For[jobLogBody](&b.Builder))},
	}
}

// A jobLogLine is a line that a job has printed.
type jobLogLine struct {
	Time    wireTime `json:"time"`
	Level   string   `json:"level"` // as the worker says it, INFO for one; may be empty
	Message string   `json:"message"`
}

// A jobLogBody is what the runs of a job have printed, oldest first.
type jobLogBody struct {
	ID      string       `json:"id"`
	Lines   []jobLogLine `json:"lines"`
	Dropped int          `json:"dropped"` // lines before the first that are no longer kept
}

func jobLog(c *call) error {
	l, err := c.Jobs.JobLog(c.r.Context(), c.owner, c.ref())
	if err != nil {
		return err
	}
	b := jobLogBody{ID: string(l.Job), Lines: make([]jobLogLine, 0, len(l.Lines)), Dropped: l.Dropped}
	for i := range l.Lines {
		b.Lines = append(b.Lines, jobLogLine{wireTime(l.Lines[i].At), l.Lines[i].Level, l.Lines[i].Text})
	}
	return writeJSON(c.w, http.StatusOK, b)
}
