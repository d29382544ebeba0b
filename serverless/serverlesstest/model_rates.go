package serverlesstest

import "github.com/podyard/podyard/serverless/queue"

// A modelBucket names a bucket: that of an endpoint, of an owner there, or of a key.
type modelBucket struct {
	endpoint string
	modelUser
}

// rateOf returns the rate of u; its zero value is no limit.
func rateOf(r queue.Rules, u modelUser) queue.Rate {
	return [...]queue.Rate{r.Rate, r.PerUserRate, r.KeyRate(u.key)}[u.what]
}

// settle has the buckets of an endpoint hold no less than a full one of their rate lacks, and forgets
// those without a rate.
func (m *Model) settle(endpoint string, r queue.Rules, now queue.Instant) {
	if m.buckets == nil {
		m.buckets, m.rules = map[modelBucket]queue.Bucket{}, map[string]queue.Rules{}
	}
	m.rules[endpoint] = r
	for n, h := range m.holds {
		if n.endpoint == endpoint && h.Ends(&r, now) == 0 {
			delete(m.holds, n)
		}
	}
	for n, b := range m.buckets {
		if n.endpoint != endpoint {
			continue
		}
		if rate := rateOf(r, n.modelUser); rate.Limit > 0 {
			m.buckets[n] = b.Within(rate, now)
		} else {
			delete(m.buckets, n)
		}
	}
}

// start counts the start of an attempt.
func (m *Model) start(j *modelJob, r queue.Rules, now queue.Instant) {
	for _, u := range usersOf(j) {
		if rate := rateOf(r, u); rate.Limit > 0 {
			n := modelBucket{j.Endpoint, u}
			m.buckets[n] = m.buckets[n].Start(rate, now)
		}
	}
}

// giveBack takes a start back that was none.
func (m *Model) giveBack(j *modelJob, started, now queue.Instant) {
	for _, u := range usersOf(j) {
		n := modelBucket{j.Endpoint, u}
		if rate := rateOf(m.rules[j.Endpoint], u); rate.Limit > 0 && m.buckets[n] != 0 {
			m.buckets[n] = m.buckets[n].GiveBack(rate, started, now)
		}
	}
}

// hold holds the key of a job.
func (m *Model) hold(j *modelJob, h queue.Hold) {
	n := modelBucket{j.Endpoint, usersOf(j)[2]}
	if m.holds == nil {
		m.holds = map[modelBucket]queue.Hold{}
	}
	of := 0
	for other, x := range m.holds {
		if other.endpoint == n.endpoint && other.owner == n.owner && other != n && x.Until > h.Made {
			of++
		}
	}
	if j.Key != "" && of < queue.MaxHolds {
		m.holds[n] = h
	}
}

// free is when the first of the jobs that only a rate or a worker holds may start; 0: there is none.
func (m *Model) free(live []*modelJob, r queue.Rules, now queue.Instant) (first queue.Instant) {
	use := useOf(live)
	for _, j := range live {
		if r.Paused || !isReady(j) {
			continue
		}
		var held queue.Held
		limited := false
		for _, u := range usersOf(j) {
			n := modelBucket{j.Endpoint, u}
			limited = limited || u.places(r, use[u].running) == 0
			held = held.Longer("", m.buckets[n], rateOf(r, u), now).LongerHold(m.holds[n], &r, now)
		}
		if !limited {
			first = queue.Sooner(first, held.Until)
		}
	}
	return first
}
