package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// A Batch is many requests that are started together (docs/interface.md 2.21). All of them have
// ended when Completed and Failed are Total.
type Batch struct {
	ID         string `json:"id"`
	Endpoint   string `json:"endpointId"`
	Status     string `json:"status"` // DRAFT, FINALIZED, FAILED or CANCELLED
	Total      int    `json:"requestTotal"`
	InProgress int    `json:"requestInProgress"`
	Completed  int    `json:"requestCompleted"`
	Failed     int    `json:"requestFailed"`
	CreatedAt  int64  `json:"createdAt"` // Unix milliseconds
	Name       string `json:"name"`
	Webhook    string `json:"-"` // of a new batch: URL that gets the batch after the last request has ended
	Owner      string `json:"-"` // only for operators: see Client.As
}

func (b *Batch) own(owner string) { b.Owner = owner }

// ListBatches returns the caller's batches, newest first.
func (j *Jobs) ListBatches(ctx context.Context) ([]Batch, error) {
	list, _, err := page[Batch](ctx, j.c, j.to(http.MethodGet, j.ofOwner(url.Values{}), "batch"), "batches")
	return list, err
}

// CreateBatch creates a batch with the Name and the Webhook of b and at most 5000 requests, which
// have no StartAfter: all of them or none. With finalize they are started at once; otherwise the
// batch is a draft. The answer has only ID and Status.
func (j *Jobs) CreateBatch(ctx context.Context, b Batch, finalize bool, requests ...JobRequest) (Batch, error) {
	r, err := j.to(http.MethodPost, nil, "batch").with(&batchRequest{filledAll(requests), b.Name, b.Webhook, finalize})
	if err != nil {
		return Batch{}, err
	}
	j.c.keyed(r, "")
	return j.batch(ctx, r)
}

type batchRequest struct {
	Requests []JobRequest `json:"requests"`
	Name     string       `json:"name,omitempty"`
	Webhook  string       `json:"webhook,omitempty"`
	Finalize bool         `json:"finalize,omitempty"`
}

// GetBatch returns a batch.
func (j *Jobs) GetBatch(ctx context.Context, id string) (Batch, error) {
	return j.batch(ctx, j.to(http.MethodGet, nil, "batch", id))
}

// RenameBatch changes the name of a batch.
func (j *Jobs) RenameBatch(ctx context.Context, id, name string) (Batch, error) {
	return j.sendBatch(ctx, http.MethodPut, map[string]string{"name": name}, "batch", id)
}

// AddToBatch adds requests to a draft, all of them or none.
func (j *Jobs) AddToBatch(ctx context.Context, id string, requests ...JobRequest) (Batch, error) {
	return j.sendBatch(ctx, http.MethodPost, &batchRequest{Requests: filledAll(requests)}, "batch", id, "requests")
}

// BatchRequests returns requests of a batch from offset on, at most limit (1 to 100), and how
// many there are. Those that failed come first, those that are completed last. They have no
// timings.
func (j *Jobs) BatchRequests(ctx context.Context, id string, offset, limit int) (list []Job, total int, err error) {
	q := url.Values{"offset": {strconv.Itoa(offset)}, "limit": {strconv.Itoa(limit)}}
	var v struct {
		Requests []Job `json:"requests"`
		Total    int   `json:"total"`
	}
	_, err = j.c.do(ctx, j.to(http.MethodGet, q, "batch", id, "requests"), &v)
	return v.Requests, v.Total, err
}

// DeleteBatchRequest removes a request from a draft.
func (j *Jobs) DeleteBatchRequest(ctx context.Context, id, request string) (Batch, error) {
	return j.batch(ctx, j.to(http.MethodDelete, nil, "batch", id, "requests", request))
}

// FinalizeBatch starts the requests of a draft.
func (j *Jobs) FinalizeBatch(ctx context.Context, id string) (Batch, error) {
	return j.batch(ctx, j.to(http.MethodPost, nil, "batch", id, "finalize"))
}

// CancelBatch ends the requests that wait. Those that run go on.
func (j *Jobs) CancelBatch(ctx context.Context, id string) (Batch, error) {
	return j.batch(ctx, j.to(http.MethodPost, nil, "batch", id, "cancel"))
}

// filledAll returns the requests with an input where there is none, as Jobs.Submit sends it.
func filledAll(requests []JobRequest) []JobRequest {
	filled := make([]JobRequest, len(requests))
	for i, r := range requests {
		if r.Input == nil {
			r.Input = struct{}{}
		}
		filled[i] = r
	}
	return filled
}

func (j *Jobs) sendBatch(ctx context.Context, method string, body any, name ...string) (Batch, error) {
	r, err := j.to(method, nil, name...).with(body)
	if err != nil {
		return Batch{}, err
	}
	return j.batch(ctx, r)
}

func (j *Jobs) batch(ctx context.Context, r *request) (v Batch, err error) {
	h, err := j.c.do(ctx, r, &v)
	ownerOf(&v, h)
	return v, err
}
