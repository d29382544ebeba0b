package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Account has the caller's SSH keys and API keys.
type Account struct{ c *Client }

// SSHKeys returns the caller's public SSH keys.
func (a *Account) SSHKeys(ctx context.Context) ([]string, error) {
	out, err := get[struct{ Keys []string }](ctx, a.c, "/v2/account/ssh-keys", a.c.billed(nil))
	return out.Keys, err
}

// SetSSHKeys replaces the caller's public SSH keys.
func (a *Account) SetSSHKeys(ctx context.Context, keys []string) ([]string, error) {
	if keys == nil {
		keys = []string{}
	}
	out, err := change[struct{ Keys []string }](ctx, a.c, http.MethodPut, "/v2/account/ssh-keys", map[string]any{"keys": keys})
	return out.Keys, err
}

// A Limit is a budget: how much of something a user may hold at once (docs/interface.md 2.22). Or it
// is a window: how many requests a user may make until it begins anew.
type Limit struct {
	Name, Unit string
	Limit      *int64 // nil: none
	Used       int64
	Remaining  *int64 // nil: without a limit
	// Resets is when a window begins anew; 0 for a budget, which does not.
	Resets time.Duration
}

// Limits returns the caller's budgets, or those of a user of Client.As. Of all users it returns
// what they use. The map is by user. It is an addition.
func (a *Account) Limits(ctx context.Context) (map[string][]Limit, error) {
	out, err := get[struct {
		Users []struct {
			User   string
			Limits []Limit
		}
	}](ctx, a.c, "/v2/account/limits", a.c.billed(nil))
	all := map[string][]Limit{}
	for _, u := range out.Users {
		all[u.User] = u.Limits
	}
	return all, err
}

// A Cost is what a user spends and may spend, in USD (docs/interface.md 2.22). It is an addition.
type Cost struct {
	Hour         float64    // at the present rate
	Month        float64    // since the month began, in UTC
	CostPerHour  *float64   // nil: no limit
	CostPerMonth *float64   // nil: no limit
	Ends         *time.Time // when the month's budget is used up at this rate; nil: not in this month, or it has ended
}

// Costs returns what the caller spends, or a user of Client.As. The map is by user, and has nobody who
// spends nothing and may spend anything. It is an addition.
func (a *Account) Costs(ctx context.Context) (map[string]Cost, error) {
	out, err := get[struct {
		Users []struct {
			User string
			Cost *Cost
		}
	}](ctx, a.c, "/v2/account/limits", a.c.billed(nil))
	all := map[string]Cost{}
	for _, u := range out.Users {
		if u.Cost != nil {
			all[u.User] = *u.Cost
		}
	}
	return all, err
}

// Windows returns what is left of the windows in which the requests of the caller are counted, or
// of a user of Client.As: docs/interface.md 8.4. Of all users it returns those who hold something.
// The map is by user. It is an addition.
func (a *Account) Windows(ctx context.Context) (map[string][]Limit, error) {
	out, err := get[struct {
		Users []struct {
			User    string
			Windows []struct {
				Name                     string
				Limit, Remaining, Resets int64
			}
		}
	}](ctx, a.c, "/v2/account/limits", a.c.billed(url.Values{"windows": {"true"}}))
	all := map[string][]Limit{}
	for _, u := range out.Users {
		for _, w := range u.Windows {
			l := Limit{Name: w.Name, Unit: "requests", Limit: &w.Limit, Used: w.Limit - w.Remaining, Remaining: &w.Remaining}
			l.Resets = time.Duration(w.Resets) * time.Second
			all[u.User] = append(all[u.User], l)
		}
	}
	return all, err
}

// A Key is an API key (docs/interface.md 2.18). Keys are an addition.
type Key struct {
	ID           string     `json:"id"`
	User         string     `json:"user"`
	Scopes       []string   `json:"scopes"`
	Expires      *time.Time `json:"expires"` // nil: never
	CreatedAt    time.Time  `json:"createdAt"`
	OverlapUntil *time.Time `json:"overlapUntil"` // until when the secret before the last rotation is accepted
	Secret       Secret     `json:"key"`          // only when it was made or rotated
	Owner        string     `json:"-"`            // only for operators: see Client.As
}

func (k *Key) own(owner string) { k.Owner = owner }

// KeySettings are the settings of a new key, or those to change.
type KeySettings struct {
	User    string     // only operators may name another user; not to change
	Scopes  []string   // required of a new key; nil: as they are
	Expires *time.Time // nil: never, or as it is; zero: never
}

// MarshalJSON writes the settings.
func (s KeySettings) MarshalJSON() ([]byte, error) {
	out := map[string]any{}
	if s.User != "" {
		out["user"] = s.User
	}
	if s.Scopes != nil {
		out["scopes"] = s.Scopes
	}
	switch {
	case s.Expires == nil:
	case s.Expires.IsZero():
		out["expires"] = nil
	default:
		out["expires"] = *s.Expires
	}
	return json.Marshal(out)
}

// Keys iterates over the caller's API keys. An error ends it.
func (a *Account) Keys(ctx context.Context) iter.Seq2[Key, error] {
	return pages[Key](ctx, a.c, "/v2/account/keys", "keys", nil)
}

// CreateKey makes an API key. Only this answer has its secret. If an answer is lost and the
// request is repeated, the key may be there without a secret: rotate it then.
func (a *Account) CreateKey(ctx context.Context, s KeySettings) (Key, error) {
	return change[Key](ctx, a.c, http.MethodPost, "/v2/account/keys", s)
}

// Key returns an API key.
func (a *Account) Key(ctx context.Context, id string) (Key, error) {
	return find[Key](ctx, a.c, join("/v2/account/keys", id))
}

// UpdateKey changes the scopes or the end of an API key.
func (a *Account) UpdateKey(ctx context.Context, id string, s KeySettings) (Key, error) {
	return change[Key](ctx, a.c, http.MethodPatch, join("/v2/account/keys", id), s)
}

// DeleteKey makes the server refuse an API key.
func (a *Account) DeleteKey(ctx context.Context, id string) error {
	return a.c.remove(ctx, join("/v2/account/keys", id))
}

// RotateKey gives an API key a new secret, which only this answer has. The old secret is
// accepted for the time of overlap.
func (a *Account) RotateKey(ctx context.Context, id string, overlap time.Duration) (k Key, err error) {
	r, err := to(a.c.control, http.MethodPost, join("/v2/account/keys", id, "rotate"), nil).with(map[string]Millis{"overlap": Millis(overlap)})
	if err != nil {
		return k, err
	}
	_, err = a.c.do(ctx, r, &k)
	return k, err
}

// Billing sums up what was used (docs/interface.md 2.16).
type Billing struct{ c *Client }

// A BillingQuery selects records. The zero value is the server's default window, by day.
type BillingQuery struct {
	BucketSize string // hour, day, week, month or year
	Start, End time.Time
	LastN      int    // the last buckets, instead of a window
	ID         string // only of this pod, cluster, endpoint or volume
}

// A Bill has records and their sums. Amounts are USD by their names on the wire:
// "totalAmount".
type Bill struct {
	Records []BillRecord
	Totals  map[string]float64
}

// A BillRecord is what one thing, or all things together, used in one bucket of time.
type BillRecord struct {
	Start, End time.Time
	ID         string // of the pod, cluster, endpoint or volume; empty: all together
	Amounts    map[string]float64
}

// UnmarshalJSON reads a record of any kind.
func (r *BillRecord) UnmarshalJSON(b []byte) error {
	var members map[string]any
	if err := json.Unmarshal(b, &members); err != nil {
		return err
	}
	var times struct{ StartTime, EndTime time.Time }
	if err := json.Unmarshal(b, &times); err != nil {
		return err
	}
	*r = BillRecord{Start: times.StartTime, End: times.EndTime, Amounts: map[string]float64{}}
	for name, v := range members {
		switch v := v.(type) {
		case float64:
			r.Amounts[name] = v
		case string:
			if name == "podId" || name == "serverlessId" || name == "networkVolumeId" || name == "clusterId" {
				r.ID = v
			}
		}
	}
	return nil
}

// billed adds the parameter owner.
func (c *Client) billed(q url.Values) url.Values {
	if q == nil {
		q = url.Values{}
	}
	if c.owner != "" {
		q.Set("owner", c.owner)
	}
	return q
}

func (b *Billing) report(ctx context.Context, path, filter string, q BillingQuery) (Bill, error) {
	v := b.c.billed(nil)
	for name, value := range map[string]string{"bucketSize": q.BucketSize, filter: q.ID} {
		if value != "" {
			v.Set(name, value)
		}
	}
	for name, at := range map[string]time.Time{"startTime": q.Start, "endTime": q.End} {
		if !at.IsZero() {
			v.Set(name, at.UTC().Format(time.RFC3339))
		}
	}
	if q.LastN > 0 {
		v.Set("lastN", strconv.Itoa(q.LastN))
	}
	out, err := get[struct {
		Records  []BillRecord
		Metadata struct{ Totals map[string]float64 }
	}](ctx, b.c, "/v2/billing"+path, v)
	return Bill{out.Records, out.Metadata.Totals}, err
}

// All sums up everything together.
func (b *Billing) All(ctx context.Context, q BillingQuery) (Bill, error) {
	return b.report(ctx, "", "", q)
}

// Pods sums up pods.
func (b *Billing) Pods(ctx context.Context, q BillingQuery) (Bill, error) {
	return b.report(ctx, "/pods", "podId", q)
}

// Clusters sums up clusters.
func (b *Billing) Clusters(ctx context.Context, q BillingQuery) (Bill, error) {
	return b.report(ctx, "/clusters", "clusterId", q)
}

// Endpoints sums up the workers of endpoints.
func (b *Billing) Endpoints(ctx context.Context, q BillingQuery) (Bill, error) {
	return b.report(ctx, "/serverless", "serverlessId", q)
}

// PublicEndpoints sums up public endpoints, which a server of this package does not have.
func (b *Billing) PublicEndpoints(ctx context.Context, q BillingQuery) (Bill, error) {
	return b.report(ctx, "/endpoints", "", q)
}

// Volumes sums up network volumes.
func (b *Billing) Volumes(ctx context.Context, q BillingQuery) (Bill, error) {
	return b.report(ctx, "/network-volumes", "networkVolumeId", q)
}
