package command

import (
	"cmp"
	"context"
	"flag"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi/client"
)

func keyCommands() []Command {
	return []Command{
		{
			Name: "keys make", Remote: true, Summary: "make an API key; only this answer has its secret",
			Help: "Without -scopes the key does all that its user may do but make keys, and without -expires it is good for 90 days. " +
				"Scopes: docs/interface.md 5. Only operators may name another user.",
			Example: "keys make -user alice -scopes pods:read,endpoint:echo:run -expires 90d", New: makeKey,
		},
		{Name: "keys list", Remote: true, Summary: "list API keys, without their secrets", Example: "keys list -owner '*'", New: listKeys},
		{
			Name: "keys rotate", Args: "KEY-ID", Remote: true, Summary: "give an API key a new secret; only this answer has it",
			Example: "keys rotate x7k2... -overlap 1h", New: rotateKey,
		},
		{Name: "limits", Remote: true, Summary: "show what you hold, of what you may hold; of all users, who keeps most bytes first", Example: "limits -owner alice", New: listLimits},
		{Name: "costs", Remote: true, Summary: "show what you spend now and in this month, of what you may spend; of all users, who spends most first", Example: "costs -owner '*'", New: listCosts},
		{
			Name: "keys revoke", Args: "KEY-ID...", Remote: true, Summary: "make the server refuse API keys", Example: "keys revoke x7k2...",
			New: ends("revoked", func(c *Call) func(context.Context, string) error { return c.Client.Account.DeleteKey }),
		},
	}
}

// A keyRecord is a key with its secret, if the answer has it.
type keyRecord struct {
	client.Key
	Secret string `json:"key,omitempty"`
}

func showKey(c *Call, k client.Key) error {
	expires := "never"
	if k.Expires != nil {
		expires = at(*k.Expires)
	}
	return show(
		c, keyRecord{k, string(k.Secret)},
		field{"id", k.ID}, field{"user", k.User}, field{"scopes", strings.Join(k.Scopes, ",")}, field{"expires", expires},
		field{"old secret until", atOrNever(k.OverlapUntil)}, field{"key", string(k.Secret)},
	)
}

func makeKey(f *flag.FlagSet) func(context.Context, *Call) error {
	user := f.String("user", "", "whose it is (default: yours)")
	scopes := f.String("scopes", "pods:write,endpoints:write,registries:write,endpoint:*:run", "`scopes`, separated by commas")
	expires := f.String("expires", "90d", "`when` it ends: a time like 2027-01-01T00:00:00Z, how long it is good for, or never")
	return func(ctx context.Context, c *Call) error {
		if *expires == "never" {
			*expires = ""
		}
		end, err := timeFlag("-expires", *expires, 1)
		if err != nil {
			return err
		}
		k, err := c.Client.Account.CreateKey(ctx, client.KeySettings{User: *user, Scopes: strings.Split(*scopes, ","), Expires: end})
		return then(c, k, err, showKey)
	}
}

func listKeys(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		var keys []keyRecord
		for k, err := range c.Client.Account.Keys(ctx) {
			if err != nil {
				return err
			}
			keys = append(keys, keyRecord{Key: k})
		}
		return listOwned(
			c, keys, nil, func(k *keyRecord) string { return k.Owner },
			column[keyRecord]{"ID", func(k *keyRecord) string { return k.ID }},
			column[keyRecord]{"USER", func(k *keyRecord) string { return k.User }},
			column[keyRecord]{"SCOPES", func(k *keyRecord) string { return short(strings.Join(k.Scopes, ","), 60) }},
			column[keyRecord]{"CREATED", func(k *keyRecord) string { return at(k.CreatedAt) }},
			column[keyRecord]{"EXPIRES", func(k *keyRecord) string { return atOrNever(k.Expires) }},
		)
	}
}

// A limitRow is a budget of a user.
type limitRow struct {
	User  string `json:"user"`
	Name  string `json:"name"`
	Unit  string `json:"unit"`
	Used  int64  `json:"used"`
	Limit *int64 `json:"limit"` // null: none
}

func listLimits(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		users, err := c.Client.Account.Limits(ctx)
		if err != nil {
			return err
		}
		var rows []limitRow
		for _, user := range byBytes(users) {
			for _, l := range users[user] {
				rows = append(rows, limitRow{user, l.Name, l.Unit, l.Used, l.Limit})
			}
		}
		return list(
			c, rows,
			column[limitRow]{"USER", func(r *limitRow) string { return r.User }},
			column[limitRow]{"WHAT", func(r *limitRow) string { return r.Name }},
			column[limitRow]{"USED", func(r *limitRow) string { return number(r.Used) }},
			column[limitRow]{"LIMIT", func(r *limitRow) string {
				if r.Limit == nil {
					return ""
				}
				return number(*r.Limit)
			}},
		)
	}
}

// A costRow is what a user spends, in USD.
type costRow struct {
	User         string     `json:"user"`
	Hour         float64    `json:"hour"`
	CostPerHour  *float64   `json:"costPerHour"` // null: no limit
	Month        float64    `json:"month"`
	CostPerMonth *float64   `json:"costPerMonth"` // null: no limit
	Ends         *time.Time `json:"ends"`         // null: not in this month
}

func listCosts(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		users, err := c.Client.Account.Costs(ctx)
		if err != nil {
			return err
		}
		var rows []costRow
		for user, x := range users {
			rows = append(rows, costRow{user, x.Hour, x.CostPerHour, x.Month, x.CostPerMonth, x.Ends})
		}
		slices.SortFunc(rows, func(a, b costRow) int {
			return cmp.Or(cmp.Compare(b.Hour, a.Hour), cmp.Compare(b.Month, a.Month), cmp.Compare(a.User, b.User))
		})
		return list(
			c, rows,
			column[costRow]{"USER", func(r *costRow) string { return r.User }},
			column[costRow]{"USD/HOUR", func(r *costRow) string { return dollars(&r.Hour) }},
			column[costRow]{"LIMIT", func(r *costRow) string { return dollars(r.CostPerHour) }},
			column[costRow]{"USD/MONTH", func(r *costRow) string { return dollars(&r.Month) }},
			column[costRow]{"LIMIT", func(r *costRow) string { return dollars(r.CostPerMonth) }},
			column[costRow]{"USED UP", func(r *costRow) string {
				if r.Ends == nil {
					return ""
				}
				return at(*r.Ends)
			}},
		)
	}
}

// dollars is an amount; empty: there is none.
func dollars(usd *float64) string {
	if usd == nil {
		return ""
	}
	return strconv.FormatFloat(*usd, 'f', 2, 64)
}

// byBytes are the users, the one who keeps most bytes of jobs first.
func byBytes(users map[string][]client.Limit) []string {
	bytes := func(user string) (n int64) {
		for _, l := range users[user] {
			if l.Name == "jobBytes" {
				n = l.Used
			}
		}
		return n
	}
	return slices.SortedFunc(maps.Keys(users), func(a, b string) int {
		return cmp.Or(cmp.Compare(bytes(b), bytes(a)), cmp.Compare(a, b))
	})
}

func rotateKey(f *flag.FlagSet) func(context.Context, *Call) error {
	overlap := f.Duration("overlap", 0, "how `long` the old secret is accepted too, at most 168h")
	return func(ctx context.Context, c *Call) error {
		k, err := c.Client.Account.RotateKey(ctx, c.Args[0], max(*overlap, time.Duration(0)))
		return then(c, k, err, showKey)
	}
}
