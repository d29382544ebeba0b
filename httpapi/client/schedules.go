package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Schedules has the operations on the schedules of one endpoint. They are an addition.
type Schedules struct{ j *Jobs }

// Schedules returns the operations on the schedules of the endpoint.
func (j *Jobs) Schedules() *Schedules { return &Schedules{j} }

// A Schedule submits a job at each instant of a cron expression (docs/interface.md 2.20).
type Schedule struct {
	ID       string     `json:"id"`
	Cron     string     `json:"cron"`
	TimeZone string     `json:"timeZone"`
	Run      JobRequest `json:"run"` // without S3Config
	Overlap  string     `json:"overlap"`
	CatchUp  string     `json:"catchUp"`
	Enabled  bool       `json:"enabled"`
	Next     *time.Time `json:"next"` // nil: none, because it is not enabled
	Outcomes []struct { // of the last instants
		At      time.Time `json:"at"`
		Outcome string    `json:"outcome"` // submitted, skipped, missed, refused, disabled or requested
		Job     string    `json:"job"`
		Detail  string    `json:"detail"`
	} `json:"outcomes"`
	CreatedAt time.Time `json:"createdAt"`
	Owner     string    `json:"-"` // only for operators: see Client.As
}

func (s *Schedule) own(owner string) { s.Owner = owner }

// ScheduleSettings are the settings of a new schedule, or those to change. What is absent has
// its default, or stays as it is.
type ScheduleSettings struct {
	Cron     string      `json:"cron,omitempty"`
	TimeZone string      `json:"timeZone,omitempty"` // default UTC
	Run      *JobRequest `json:"run,omitempty"`
	Overlap  string      `json:"overlap,omitempty"` // skip (default), queue or allow
	CatchUp  string      `json:"catchUp,omitempty"` // none (default), last or all
	Enabled  *bool       `json:"enabled,omitempty"` // default true
}

// List returns the caller's schedules, oldest first.
func (s *Schedules) List(ctx context.Context) ([]Schedule, error) {
	r := s.j.to(http.MethodGet, s.j.ofOwner(url.Values{}), "schedules")
	list, _, err := page[Schedule](ctx, s.j.c, r, "schedules")
	return list, err
}

// Create creates a schedule.
func (s *Schedules) Create(ctx context.Context, v ScheduleSettings) (Schedule, error) {
	return s.send(ctx, http.MethodPost, v.filled(), "schedules")
}

// Get returns a schedule.
func (s *Schedules) Get(ctx context.Context, id string) (Schedule, error) {
	return s.send(ctx, http.MethodGet, nil, "schedules", id)
}

// Update changes a schedule.
func (s *Schedules) Update(ctx context.Context, id string, v ScheduleSettings) (Schedule, error) {
	return s.send(ctx, http.MethodPatch, v.filled(), "schedules", id)
}

// Delete deletes a schedule. Its jobs stay.
func (s *Schedules) Delete(ctx context.Context, id string) error {
	_, err := s.j.c.do(ctx, s.j.to(http.MethodDelete, nil, "schedules", id), nil)
	return err
}

// Run submits a job of a schedule at once.
func (s *Schedules) Run(ctx context.Context, id string) (Job, error) {
	return s.j.job(ctx, s.j.to(http.MethodPost, nil, "schedules", id, "run"))
}

// filled returns the settings with an input where there is none, as Jobs.Submit sends it.
func (v ScheduleSettings) filled() *ScheduleSettings {
	if v.Run != nil && v.Run.Input == nil {
		run := *v.Run
		run.Input = struct{}{}
		v.Run = &run
	}
	return &v
}

func (s *Schedules) send(ctx context.Context, method string, body *ScheduleSettings, name ...string) (v Schedule, err error) {
	r := s.j.to(method, nil, name...)
	if body != nil {
		if r, err = r.with(body); err != nil {
			return v, err
		}
	}
	if method == http.MethodPost {
		s.j.c.keyed(r, "")
	}
	h, err := s.j.c.do(ctx, r, &v)
	ownerOf(&v, h)
	return v, err
}
