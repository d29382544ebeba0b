package httpapi

import (
	"net/http"
	"time"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

func queueSettingsOperations() []operation {
	return group(APIControl, AreaEndpoints,
		op("getEndpointQueue", "GET /v2/serverless/{id}/queue", ScopeEndpointsRead, getEndpointQueue, added),
		op("updateEndpointQueue", "PATCH /v2/serverless/{id}/queue", ScopeEndpointsWrite, updateEndpointQueue, added),
	)
}

func (b *describer) describeQueueSettings() map[string]description {
	settings := openapi.For[queueBody](&b.Builder)
	return map[string]description{
		"getEndpointQueue": {
			summary: "Get the settings of an endpoint's queue", text: aboutQueue, answers: ok(settings),
		},
		"updateEndpointQueue": {
			summary: "Change the settings of an endpoint's queue", text: aboutQueue,
			body: b.Component("UpdateQueueRequest", updateQueueBody()), answers: ok(settings),
		},
	}
}

const aboutQueue = "Limits of running jobs (null: none), rates of starts (`limit` at once, refilled evenly in `per` milliseconds; null: none) of the endpoint, each key and each user, limits of single keys (merged by name; null takes those of a key away), `liftHolds` (lets the keys go that workers hold), ageing, the retry policy of jobs without one, dead letters, how long results are kept (null: as without the setting) and the pause; ready, delayed and blocked count the jobs that could start now, that are not ready yet, and that the settings hold."

// updateQueueBody is the body of updateEndpointQueue.
func updateQueueBody() *openapi.Schema {
	s := recorded(func(o *object) { o.queueUpdate(&endpoints.QueueUpdate{}) })
	for _, name := range [...]string{"perKey", "perUser", "total"} {
		s.At(name).Between(1, endpoints.MaxRunning)
	}
	s.At("ageing").Between(0, inMillis(endpoints.MaxAgeing)).Defaults(queue.DefaultAgeing.Milliseconds())
	s.At("deadLetter").Between(0, inMillis(queue.MaxDeadLetter)).Defaults(0)
	s.At("retain").Between(inMillis(queue.MinRetain), inMillis(queue.MaxRetain))
	s.At("paused").Defaults(false)
	for _, name := range [...]string{"rate", "perKeyRate", "perUserRate", "keys/*/rate"} {
		describeRate(s.At(name))
	}
	s.At("liftHolds").Defaults(false)
	s.At("keys/*/perKey").Between(1, endpoints.MaxRunning)
	return s
}

func describeRate(s *openapi.Schema) {
	s.At("limit").Between(1, queue.MaxRateLimit)
	s.At("per").Between(inMillis(queue.MinRatePer), inMillis(queue.MaxRatePer))
	s.Required = []string{"limit", "per"}
}

// A queueBody has the settings of an endpoint's queue (docs/decisions.md 40), and how many of
// its jobs could start now, are delayed, and are held by the settings.
type queueBody struct {
	PerKey     *int       `json:"perKey"`
	PerUser    *int       `json:"perUser"`
	Total      *int       `json:"total"`
	Ageing     int64      `json:"ageing"`
	Retry      *retryBody `json:"retry"`
	DeadLetter int64      `json:"deadLetter"`
	Retain     *int64     `json:"retain"`
	Paused     bool       `json:"paused"`
	Ready      int64      `json:"ready"`
	Delayed    int64      `json:"delayed"`
	Blocked    int64      `json:"blocked"`

	Rate        *rateBody              `json:"rate"`
	PerKeyRate  *rateBody              `json:"perKeyRate"`
	PerUserRate *rateBody              `json:"perUserRate"`
	Keys        map[string]keyRuleBody `json:"keys"`
}

type rateBody struct {
	Limit int   `json:"limit"`
	Per   int64 `json:"per"`
}

type keyRuleBody struct {
	PerKey *int      `json:"perKey"`
	Rate   *rateBody `json:"rate"`
}

func rateBodyOf(r queue.Rate) *rateBody {
	if r.Limit == 0 {
		return nil
	}
	return &rateBody{r.Limit, r.Per.Milliseconds()}
}

type retryBody struct {
	Attempts uint8   `json:"attempts"`
	Delay    int64   `json:"delay"`
	Factor   float32 `json:"factor"`
	MaxDelay int64   `json:"maxDelay"`
	Jitter   float32 `json:"jitter"`
	Timeouts bool    `json:"timeouts"`
}

func queueBodyOf(q endpoints.QueueSettings, st serverless.Stats) queueBody {
	limit := func(n int) *int {
		if n == 0 {
			return nil
		}
		return &n
	}
	b := queueBody{
		PerKey: limit(q.PerKey), PerUser: limit(q.PerUser), Total: limit(q.Total),
		Ageing: q.Ageing.Milliseconds(), DeadLetter: q.DeadLetter.Milliseconds(), Paused: q.Paused,
		Ready: st.Ready, Delayed: st.Delayed, Blocked: st.Blocked,
		Rate: rateBodyOf(q.Rate), PerKeyRate: rateBodyOf(q.PerKeyRate), PerUserRate: rateBodyOf(q.PerUserRate),
		Keys: map[string]keyRuleBody{},
	}
	for name, rule := range q.Keys {
		b.Keys[name] = keyRuleBody{limit(rule.PerKey), rateBodyOf(rule.Rate)}
	}
	if q.Retain != 0 {
		b.Retain = new(q.Retain.Milliseconds())
	}
	if p := q.Retry; p.Attempts > 1 {
		b.Retry = &retryBody{p.Attempts, p.Delay.Milliseconds(), p.Factor, p.MaxDelay.Milliseconds(), p.Jitter, p.Timeouts}
	}
	return b
}

func getEndpointQueue(c *call) error {
	e, err := c.managed()
	if err != nil {
		return err
	}
	return c.queueSettings(e)
}

// updateEndpointQueue changes the settings of a shared endpoint too, for operators.
func updateEndpointQueue(c *call) error {
	e, err := c.managed()
	if err != nil {
		return err
	}
	var r endpoints.QueueUpdate
	if err := decode(c, &r, &r.Violations, (*object).queueUpdate); err != nil {
		return err
	}
	if e, err = c.Jobs.UpdateQueue(c.r.Context(), e.ID, r); err != nil {
		return err
	}
	return c.queueSettings(e)
}

func (c *call) queueSettings(e *serverless.Endpoint) error {
	st, err := c.Jobs.QueueStats(c.r.Context(), e)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, queueBodyOf(e.QueueSettings(), st))
}

// queueUpdate reads the settings of a queue. Null takes a limit, the retry and the dead letters
// away, and gives ageing and retain their defaults.
func (o *object) queueUpdate(r *endpoints.QueueUpdate) {
	r.PerKey, r.PerUser, r.Total = o.limit("perKey"), o.limit("perUser"), o.limit("total")
	if o.isNull("ageing") {
		r.Ageing = new(queue.DefaultAgeing)
	} else {
		r.Ageing = o.millis("ageing")
	}
	if o.isNull("retry") {
		r.Retry = &queue.RetryPolicy{}
	} else {
		r.Retry = o.retry("retry")
	}
	if o.isNull("deadLetter") {
		r.DeadLetter = new(time.Duration)
	} else {
		r.DeadLetter = o.millis("deadLetter")
	}
	r.Retain = o.retain()
	r.Paused = o.boolean("paused")
	r.Rate, r.PerKeyRate, r.PerUserRate = o.rate("rate"), o.rate("perKeyRate"), o.rate("perUserRate")
	o.keyRules(r)
	if lift := o.boolean("liftHolds"); lift != nil {
		r.LiftHolds = *lift
	}
	o.unknown()
}

// rate reads a rate. Null is the zero one, and a member that is missing is one that nothing may have.
func (o *object) rate(name string) *queue.Rate {
	if o.isNull(name) {
		return &queue.Rate{}
	}
	sub := o.object(name)
	if sub == nil {
		return nil
	}
	r := queue.Rate{Limit: -1, Per: -1}
	sub.require("limit", "per")
	if n := sub.integer("limit"); n != nil {
		r.Limit = max(*n, -1)
	}
	sub.millisInto("per", &r.Per)
	sub.unknown()
	return &r
}

// keyRules reads the limits of single keys: null takes those of a key, or of all keys, away.
func (o *object) keyRules(r *endpoints.QueueUpdate) {
	if r.ClearKeys = o.isNull("keys"); r.ClearKeys {
		return
	}
	sub := o.object("keys")
	if sub == nil {
		return
	}
	if o.shape != nil {
		sub.shape.AdditionalProperties = openapi.OrNull(recorded(func(o *object) { o.keyRule() }))
		return
	}
	r.Keys = make(queue.KeyRules, len(sub.members))
	for _, m := range sub.members {
		if sub.isNull(m.name) {
			r.Keys[m.name] = queue.KeyRule{}
		} else if rule := sub.object(m.name); rule != nil {
			r.Keys[m.name] = rule.keyRule()
		}
	}
}

func (o *object) keyRule() (k queue.KeyRule) {
	if n := o.limit("perKey"); n != nil {
		k.PerKey = *n
	}
	if r := o.rate("rate"); r != nil {
		k.Rate = *r
	}
	o.unknown()
	return k
}

// retain reads how long results are kept. Null is 0, and a 0 is one that nothing may have.
func (o *object) retain() *time.Duration {
	if o.isNull("retain") {
		return new(time.Duration)
	}
	d := o.millis("retain")
	if d != nil && *d == 0 {
		*d = -1
	}
	return d
}

// limit reads a number above 0. Null is 0, and a number of 0 is one that no limit may have.
func (o *object) limit(name string) *int {
	if o.isNull(name) {
		return new(int)
	}
	n := o.integer(name)
	if n != nil && *n == 0 {
		*n = -1
	}
	return n
}
