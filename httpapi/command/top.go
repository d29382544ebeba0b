package command

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi/client"
)

// A topRow is an endpoint in the table of top.
type topRow struct {
	ID    string `json:"id"`
	Name  string `json:"name,omitempty"`
	Owner string `json:"owner,omitempty"`
	State string `json:"state,omitempty"`
	client.Health

	rate string // completed jobs a second since the last table
}

// A view is what one table of top shows.
type view struct {
	State     *client.State `json:"state,omitempty"` // only operators see it
	Endpoints []topRow      `json:"endpoints"`
}

func top(f *flag.FlagSet) func(context.Context, *Call) error {
	every := f.Duration("every", 2*time.Second, "`time` between two tables")
	rounds := f.Int("n", 0, "end after so many tables (default: never; with -o json: 1)")
	return func(ctx context.Context, c *Call) error {
		if c.asJSON() && *rounds == 0 {
			*rounds = 1
		}
		before := map[string]int{}
		for n := 1; ; n++ {
			v, err := look(ctx, c.Client)
			if err != nil {
				return err
			}
			v.rates(before, *every)
			if err := c.draw(v, n == *rounds); err != nil {
				return err
			}
			if n == *rounds {
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(max(*every, 100*time.Millisecond)):
			}
		}
	}
}

// look asks for everything that the table shows.
func look(ctx context.Context, c *client.Client) (*view, error) {
	s, err := c.Admin.State(ctx)
	if err == nil {
		v := &view{State: &s}
		for _, e := range s.Endpoints {
			v.Endpoints = append(v.Endpoints, topRow{ID: e.ID, Name: e.Name, Owner: e.Owner, State: stateOf(e.State, e.Paused), Health: e.Health})
		}
		return v, nil
	}
	if status := client.StatusOf(err); status != http.StatusForbidden && status != http.StatusNotFound {
		return nil, err
	}
	v := &view{}
	for e, err := range c.Endpoints.All(ctx) {
		if err != nil {
			return nil, err
		}
		h, err := c.Jobs(e.ID).Health(ctx)
		if err != nil {
			return nil, err
		}
		v.Endpoints = append(v.Endpoints, topRow{ID: e.ID, Name: e.Name, Health: h})
	}
	return v, nil
}

// stateOf is the state of an endpoint for people: that its owner has paused it matters where it is active.
func stateOf(state string, paused bool) string {
	if paused && state == "active" {
		return "paused"
	}
	return state
}

// rates fills in how many jobs were completed since the counts before, which it replaces.
func (v *view) rates(before map[string]int, every time.Duration) {
	for i := range v.Endpoints {
		e := &v.Endpoints[i]
		done := e.Health.Jobs.Completed
		if last, ok := before[e.ID]; ok && every > 0 {
			e.rate = fmt.Sprintf("%.1f/s", float64(max(0, done-last))/every.Seconds())
		}
		before[e.ID] = done
	}
}

// draw writes a table over the one before.
func (c *Call) draw(v *view, last bool) error {
	if c.asJSON() {
		return writeJSON(c.Stdout, v)
	}
	var b bytes.Buffer
	if isTerminal(c.Stdout) {
		b.WriteString("\x1b[H\x1b[J")
	}
	if err := v.write(&b); err != nil {
		return err
	}
	if !last && !isTerminal(c.Stdout) {
		b.WriteString("\n")
	}
	_, err := c.Stdout.Write(b.Bytes())
	return err
}

func (v *view) write(w io.Writer) error {
	if s := v.State; s != nil {
		if s.Server != nil {
			reason := ""
			if s.Server.Reason != "" {
				reason = ": " + clean(s.Server.Reason)
			}
			if s.Server.Warning != "" {
				reason += ", but " + clean(s.Server.Warning)
			}
			put(w, "server %s is %s%s, since %s\n\n", clean(s.Server.Name), s.Server.State, reason, at(s.Server.Since))
		}
		if err := writeServers(w, s); err != nil {
			return err
		}
		writeIncidents(w, s.Incidents)
		if err := writeHosts(w, s); err != nil {
			return err
		}
	}
	jobs := func(n func(*client.Health) int) func(*topRow) string {
		return func(r *topRow) string { return number(n(&r.Health)) }
	}
	return table(w, v.Endpoints, []column[topRow]{
		{"ENDPOINT", func(r *topRow) string { return r.ID }},
		{"NAME", func(r *topRow) string {
			if r.Name == r.ID {
				return ""
			}
			return short(r.Name, 24)
		}},
		{"OWNER", func(r *topRow) string { return r.Owner }},
		{"STATE", func(r *topRow) string { return r.State }},
		{"QUEUED", jobs(func(h *client.Health) int { return h.Jobs.InQueue })},
		{"RUNNING", jobs(func(h *client.Health) int { return h.Jobs.InProgress })},
		{"COMPLETED", jobs(func(h *client.Health) int { return h.Jobs.Completed })},
		{"RATE", func(r *topRow) string { return r.rate }},
		{"FAILED", jobs(func(h *client.Health) int { return h.Jobs.Failed })},
		{"WORKERS", func(r *topRow) string { return workersOf(&r.Health) }},
	})
}

// writeServers writes the servers of a cluster.
func writeServers(w io.Writer, s *client.State) error {
	if len(s.Servers) < 2 {
		return nil
	}
	type row struct{ name, state, version string }
	var rows []row
	for _, x := range s.Servers {
		rows = append(rows, row{x.Name, x.State, x.Version})
	}
	err := table(w, rows, []column[row]{
		{"SERVER", func(r *row) string { return r.name }},
		{"STATE", func(r *row) string { return r.state }},
		{"VERSION", func(r *row) string { return r.version }},
	})
	put(w, "\n")
	return err
}

// shownIncidents is how many incidents top shows.
const shownIncidents = 10

// writeIncidents writes what is wrong, the most severe first.
func writeIncidents(w io.Writer, list []client.Incident) {
	for _, i := range list[:min(len(list), shownIncidents)] {
		put(w, "%s: %s\n", strings.ToUpper(i.Severity), incidentTitle(&i))
		put(w, "  %s\n  %s\n", clean(i.Detail), clean(i.Act))
	}
	if more := len(list) - shownIncidents; more > 0 {
		put(w, "and %d more\n", more)
	}
	if len(list) > 0 {
		put(w, "\n")
	}
}

// incidentTitle says what is wrong with what, since when and for whom.
func incidentTitle(i *client.Incident) string {
	title := i.Cause
	if i.Name != "" {
		title += " of " + clean(i.Name)
	}
	title += ", since " + at(i.Since)
	if len(i.Who) > 0 {
		title += ", affects " + clean(strings.Join(i.Who, ", "))
	}
	if i.More > 0 {
		title += fmt.Sprintf(" and %d more", i.More)
	}
	return title
}

// A resource is one of a host, in a table.
type resource struct{ host, state, what, used string }

func unitOf(kind string) string {
	if kind == "memory" {
		return " GB"
	}
	return ""
}

// fewRows is how many rows are shown with those of which nothing is used.
const fewRows = 12

func writeHosts(w io.Writer, s *client.State) error {
	var rows, used []resource
	for _, h := range s.Hosts {
		state := fmt.Sprintf("%s, %s, %s", h.State, count(h.Pods, "pod"), count(h.Workers, "worker"))
		for _, r := range h.Resources {
			what := r.Kind
			if r.ID != "" {
				what += " " + r.ID
			}
			rows = append(rows, resource{h.ID, state, what, fmt.Sprintf("%d of %d%s", r.Reserved, r.Total, unitOf(r.Kind))})
			if r.Reserved > 0 {
				used = append(used, rows[len(rows)-1])
			}
		}
	}
	unused := ""
	if len(rows) > fewRows {
		rows, unused = used, fmt.Sprintf("%s of which nothing is used\n", count(len(rows)-len(used), "resource"))
	}
	err := table(w, rows, []column[resource]{
		{"HOST", func(r *resource) string { return r.host }},
		{"STATE", func(r *resource) string { return r.state }},
		{"RESOURCE", func(r *resource) string { return r.what }},
		{"USED", func(r *resource) string { return r.used }},
	})
	put(w, "%s\n", unused)
	return err
}
