package command

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi/client"
)

func operatorCommands() []Command {
	const operators = "It takes an operator's key."
	return []Command{
		{
			Name: "reload", Remote: true, Summary: "make the server read its configuration file again",
			Help: operators + " A file with a fault changes nothing, and the error names the place.", Example: "reload", New: reload,
		},
		{
			Name: "audit", Remote: true, Summary: "show the audit log, newest last", Help: operators,
			Example: "audit -refused -since 2d", New: audit,
		},
		{Name: "users list", Remote: true, Summary: "list users with how many records they have", Help: operators, Example: "users list", New: listUsers},
		{
			Name: "users erase", Args: "USER", Remote: true, Summary: "end and delete all that a user has, keys included",
			Help:    operators + " It cannot be undone: -yes says that you mean it. erase jobs deletes only the jobs.",
			Example: "users erase alice -yes", New: eraseUser,
		},
		{
			Name: "billing", Remote: true, Summary: "show what was used, and what it costs",
			Help:    "Operators see another user's with -owner. Without -since it is the server's default window.",
			Example: "billing -by day -since 7d", New: showBilling,
		},
	}
}

func reload(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		changed, restart, err := c.Client.Admin.Reload(ctx)
		if err != nil {
			return err
		}
		text := "nothing has changed"
		if len(changed) > 0 {
			text = "changed: " + strings.Join(changed, ", ")
		}
		if len(restart) > 0 {
			text += "; the next start takes: " + strings.Join(restart, ", ")
		}
		return c.say(map[string][]string{"changed": slices.Concat([]string{}, changed), "restart": slices.Concat([]string{}, restart)}, "%s", text)
	}
}

// An auditRow is a record of the audit log with the names of the interface.
type auditRow struct {
	Time      time.Time `json:"time"`
	Kind      string    `json:"kind"`
	User      string    `json:"user,omitempty"`
	Key       string    `json:"key,omitempty"`
	Operation string    `json:"operation,omitempty"`
	Path      string    `json:"path,omitempty"`
	Record    string    `json:"record,omitempty"`
	Owner     string    `json:"owner,omitempty"`
	Source    string    `json:"source,omitempty"`
	Agent     string    `json:"agent,omitempty"`
	Request   string    `json:"request,omitempty"`
	Status    int       `json:"status,omitempty"`
	Dropped   int       `json:"dropped,omitempty"`
}

func audit(f *flag.FlagSet) func(context.Context, *Call) error {
	var q client.AuditQuery
	f.IntVar(&q.Limit, "limit", 50, "the `most` records, at most 1000")
	f.StringVar(&q.User, "user", "", "only of this `user`")
	f.StringVar(&q.Operation, "operation", "", "only this `operation`: createPod")
	before := f.String("before", "", "only before this `time`: one like 2027-01-01T00:00:00Z, or how long ago, like 2h")
	since := f.String("since", "", "only since this `time`")
	refused := f.Bool("refused", false, "only what was refused")
	return func(ctx context.Context, c *Call) error {
		to, err := timeFlag("-before", *before, -1)
		if err != nil {
			return err
		}
		from, err := timeFlag("-since", *since, -1)
		if err != nil {
			return err
		}
		if to != nil {
			q.Before = *to
		}
		if from != nil {
			q.Since = *from
		}
		if *refused {
			q.Kind = "refusal"
		}
		records, err := c.Client.Admin.Audit(ctx, q)
		if err != nil {
			return err
		}
		var rows []auditRow
		for _, r := range records {
			rows = append(rows, auditRowOf(&r))
		}
		slices.SortStableFunc(rows, func(a, b auditRow) int { return a.Time.Compare(b.Time) })
		return list(
			c, rows,
			column[auditRow]{"TIME", func(r *auditRow) string { return at(r.Time) }},
			column[auditRow]{"USER", func(r *auditRow) string { return r.User }},
			column[auditRow]{"FROM", func(r *auditRow) string { return r.Source }},
			column[auditRow]{"WHAT", func(r *auditRow) string { return cmp.Or(r.Operation, r.Kind) }},
			column[auditRow]{"STATUS", func(r *auditRow) string {
				if r.Status == 0 {
					return ""
				}
				return number(r.Status)
			}},
			column[auditRow]{"RECORD", func(r *auditRow) string { return short(cmp.Or(r.Record, r.Path), 40) }},
			column[auditRow]{"OWNER", func(r *auditRow) string { return r.Owner }},
		)
	}
}

// A userRow is how many records a user has.
type userRow struct {
	Name      string `json:"name"`
	Pods      int    `json:"pods"`
	Endpoints int    `json:"endpoints"`
	Volumes   int    `json:"volumes"`
	Keys      int    `json:"keys"`
}

func listUsers(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		s, err := c.Client.Admin.State(ctx)
		if err != nil {
			return err
		}
		var rows []userRow
		for _, u := range s.Users {
			rows = append(rows, userRow{u.Name, u.Pods, u.Endpoints, u.Volumes, u.Keys})
		}
		return list(
			c, rows,
			column[userRow]{"USER", func(u *userRow) string { return u.Name }},
			column[userRow]{"PODS", func(u *userRow) string { return number(u.Pods) }},
			column[userRow]{"ENDPOINTS", func(u *userRow) string { return number(u.Endpoints) }},
			column[userRow]{"VOLUMES", func(u *userRow) string { return number(u.Volumes) }},
			column[userRow]{"KEYS", func(u *userRow) string { return number(u.Keys) }},
		)
	}
}

func eraseUser(f *flag.FlagSet) func(context.Context, *Call) error {
	yes := f.Bool("yes", false, "erase the user; without it nothing is done")
	return func(ctx context.Context, c *Call) error {
		if !*yes {
			return usagef("this ends and deletes all that %s has, and cannot be undone: add -yes if you mean it", c.Args[0])
		}
		counts, err := c.Client.Admin.EraseUser(ctx, c.Args[0])
		if err != nil {
			return about(c.Args[0], err)
		}
		var parts []string
		for _, kind := range slices.Sorted(maps.Keys(counts)) {
			parts = append(parts, fmt.Sprintf("%d %s", counts[kind], kind))
		}
		return c.say(counts, "%s is erased: %s", c.Args[0], cmp.Or(strings.Join(parts, ", "), "there was nothing"))
	}
}

// A billRow is what was used in a time.
type billRow struct {
	Start   time.Time          `json:"start"`
	End     time.Time          `json:"end"`
	ID      string             `json:"id,omitempty"`
	Amounts map[string]float64 `json:"amounts"`
}

func showBilling(f *flag.FlagSet) func(context.Context, *Call) error {
	var q client.BillingQuery
	f.StringVar(&q.BucketSize, "by", "", "`length` of a row: hour, day, week, month or year (default: day)")
	f.StringVar(&q.ID, "id", "", "only of the pod, cluster, endpoint or volume with this `id`; -of says which")
	of := f.String("of", "", "only of `pods`, clusters, endpoints or volumes (default: of all)")
	since := f.String("since", "", "from this `time`: one like 2027-01-01T00:00:00Z, or how long ago, like 7d")
	until := f.String("until", "", "to this `time` (default: now)")
	return func(ctx context.Context, c *Call) error {
		reports := map[string]func(context.Context, client.BillingQuery) (client.Bill, error){
			"": c.Client.Billing.All, "pods": c.Client.Billing.Pods, "clusters": c.Client.Billing.Clusters, "endpoints": c.Client.Billing.Endpoints, "volumes": c.Client.Billing.Volumes,
		}
		report := reports[*of]
		if report == nil {
			return usagef("-of %q: must be pods, clusters, endpoints or volumes", *of)
		}
		for _, flag := range []struct {
			name, text string
			to         *time.Time
		}{{"-since", *since, &q.Start}, {"-until", *until, &q.End}} {
			at, err := timeFlag(flag.name, flag.text, -1)
			if err != nil {
				return err
			}
			if at != nil {
				*flag.to = *at
			}
		}
		if !q.Start.IsZero() && q.End.IsZero() {
			q.End = time.Now()
		}
		bill, err := report(ctx, q)
		if err != nil {
			return err
		}
		return listBill(c, bill)
	}
}

// listBill shows a report as a table with a column for each amount, and the sums in its last row.
func listBill(c *Call, bill client.Bill) error {
	var rows []billRow
	for _, r := range bill.Records {
		rows = append(rows, billRow(r))
	}
	if c.asJSON() {
		return writeJSON(c.Stdout, map[string]any{"records": slices.Concat([]billRow{}, rows), "totals": bill.Totals})
	}
	if len(rows) == 0 {
		put(c.Stderr, "nothing was used in this time\n")
	}
	columns := []column[billRow]{
		{"FROM", func(r *billRow) string { return cmp.Or(at(r.Start), "in all") }},
		{"TO", func(r *billRow) string { return at(r.End) }},
		{"ID", func(r *billRow) string { return r.ID }},
	}
	for _, name := range slices.Sorted(maps.Keys(bill.Totals)) {
		columns = append(columns, column[billRow]{strings.ToUpper(name), func(r *billRow) string {
			return strconv.FormatFloat(r.Amounts[name], 'f', -1, 64)
		}})
	}
	return list(c, append(rows, billRow{Amounts: bill.Totals}), columns...)
}

func auditRowOf(r *client.AuditRecord) auditRow {
	return auditRow{
		Time: r.Time, Kind: r.Kind, User: r.User, Key: r.Key, Operation: r.Operation, Path: r.Path, Record: r.Record,
		Owner: r.Owner, Source: r.Source, Agent: r.Agent, Request: r.Request, Status: r.Status, Dropped: r.Dropped,
	}
}
