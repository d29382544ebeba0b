package client

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"time"
)

// A Chunk is a part of the output of a job.
type Chunk struct {
	Output  json.RawMessage `json:"output"`
	Metrics json.RawMessage `json:"metrics"` // an object, or nil
}

// Stream iterates over what a job streams, until the job has ended or ctx ends. A job
// without a result ends it with a *JobError. Each chunk is handed out once, to one reader: a
// broken connection ends the iterator with an error, and another call goes on behind the
// chunks of the answer that was lost, if the server had already sent it.
func (j *Jobs) Stream(ctx context.Context, id string) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		for {
			asked := time.Now()
			list, status, err := j.chunks(ctx, id)
			if err != nil {
				yield(Chunk{}, err)
				return
			}
			for _, c := range list {
				if !yield(c, nil) {
					return
				}
			}
			if len(list) == 0 && status.Ended() {
				if err := j.endOf(ctx, id, status); err != nil {
					yield(Chunk{}, err)
				}
				return
			}
			if len(list) == 0 {
				if err := pace(ctx, asked); err != nil {
					yield(Chunk{}, err)
					return
				}
			}
		}
	}
}

// chunks reads one answer. It is an array, with the status in a header, or an object with
// both (docs/decisions.md 30).
func (j *Jobs) chunks(ctx context.Context, id string) (list []Chunk, status JobStatus, err error) {
	r := j.to(http.MethodGet, nil, "stream", id)
	r.again = ifRefused // chunks that were sent do not come again
	res, err := j.c.open(ctx, r)
	if err != nil {
		return nil, "", err
	}
	defer closeBody(res)
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, "", r.failed(err)
	}
	status = JobStatus(res.Header.Get("Job-Status"))
	if json.Unmarshal(body, &list) != nil {
		var envelope struct {
			Status JobStatus
			Stream []Chunk
		}
		err = json.Unmarshal(body, &envelope)
		list, status = envelope.Stream, envelope.Status
	}
	if err == nil && status == "" && len(list) == 0 { // an array without the header
		job, e := j.Get(ctx, id)
		return nil, job.Status, e
	}
	return list, orInProgress(status), r.failed(err)
}

func orInProgress(s JobStatus) JobStatus {
	if s == "" {
		return InProgress
	}
	return s
}

// endOf returns the error of a job that has ended.
func (j *Jobs) endOf(ctx context.Context, id string, status JobStatus) error {
	if status == Completed {
		return nil
	}
	job, err := j.Get(ctx, id)
	if StatusOf(err) == http.StatusNotFound { // deleted meanwhile
		job, err = Job{ID: id, Status: status}, nil
	}
	if err != nil {
		return err
	}
	return job.Err()
}
