package postgres_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/serverlesstest"
)

// A jobMistake makes the queue wrong in one way. It is added around the queue: the queue itself has
// no code for it.
type jobMistake struct {
	name, rule string // of the suite
	trigger    string // a statement that makes the database wrong
	apply      func(q *postgres.Jobs, ops []queue.Op)
	sweep      bool // Expire does nothing
	fold       bool // counters change their rows at each commit, and are folded before they are read
}

func jobMistakes() []jobMistake {
	before := func(when, table, do string) string {
		return `CREATE FUNCTION podyard.mistake() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ` + do + ` END $$;
			CREATE TRIGGER mistake ` + when + ` ON podyard.` + table + ` FOR EACH ROW EXECUTE FUNCTION podyard.mistake()`
	}
	return []jobMistake{
		{name: "a move is not fenced", rule: "AnOldTokenIsRefused", apply: func(q *postgres.Jobs, ops []queue.Op) {
			for i := range ops {
				if j, err := q.Get(context.Background(), 0, ops[i].Ref); err == nil && ops[i].Kind != queue.OpClaim && ops[i].Worker != "" {
					ops[i].Token, ops[i].Worker = j.Token, j.Worker
				}
			}
		}},
		{name: "the lease of a dead server does not end", rule: "ALeaseEnds", sweep: true},
		{name: "a running job is not counted", rule: "PerKey", trigger: before("BEFORE INSERT OR UPDATE", "job_lines", `NEW.runs := 0; RETURN NEW;`)},
		{name: "a place is not freed", rule: "APlaceIsFreedOnceByResult", trigger: before("BEFORE DELETE", "job_running", `RETURN NULL;`)},
		{name: "a turn is forgotten", rule: "OwnersTakeTurns", trigger: before("BEFORE INSERT OR UPDATE", "job_owners", `NEW.served := 0; NEW.turn := 1; RETURN NEW;`)},
		{name: "a job is not armed", rule: "ADelayedJobWaitsForItsTime", trigger: before("BEFORE INSERT", "job_due", `RETURN NULL;`)},
		{name: "counters of a writer are lost", rule: "StatsFollowEachMove", trigger: before("BEFORE UPDATE", "job_counters", `RETURN NULL;`)},
		{name: "a counter generation dropped", rule: "StatsFollowEachMove", fold: true, trigger: before("BEFORE INSERT", "job_counters", `IF NEW.slot = 0 THEN RETURN NULL; END IF; RETURN NEW;`)},
		{name: "a webhook has the payloads of a later run", rule: "ADeliveryOutlivesARetry", trigger: before("BEFORE INSERT", "job_outbox", `NEW.error := NULL; RETURN NEW;`)},
		{name: "a requeued job is behind later ones", rule: "LostJobsKeepTheirOrder", trigger: before("BEFORE INSERT", "job_ready", `NEW.queued := 0; NEW.seq := -NEW.seq; RETURN NEW;`)},
	}
}

// mistakeVariable names the mistake that a test of the suite has.
const mistakeVariable = "PODYARD_TEST_MISTAKE"

// The rule of the suite that a mistake breaks must find it.
func TestTheSuiteFindsMistakes(t *testing.T) {
	suite.SkipUnlessLong(t)
	if os.Getenv(mistakeVariable) != "" {
		t.Skip("this is the process with the mistake")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range jobMistakes() {
		t.Run(m.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestMistakenJobs$", "-test.count=1")
			cmd.Env = append(os.Environ(), mistakeVariable+"="+m.name)
			out, err := cmd.CombinedOutput()
			if err == nil || !bytes.Contains(out, []byte("--- FAIL: TestMistakenJobs/"+m.rule)) {
				t.Errorf("the rule has not found that %s: %v\n%s", m.name, err, out)
			}
		})
	}
}

// TestMistakenJobs runs the rule of a mistake, in a process of its own.
func TestMistakenJobs(t *testing.T) {
	for _, m := range jobMistakes() {
		if m.name != os.Getenv(mistakeVariable) {
			continue
		}
		url := postgresql.Database(t)
		q := &mistakenJobs{openURL(t, url).Jobs(), m}
		if m.fold {
			q.Eager()
		}
		if m.trigger != "" {
			execute(t, url, m.trigger)
		}
		for _, c := range serverlesstest.QueueCases() {
			if c.Name == m.rule {
				t.Run(c.Name, func(t *testing.T) { c.Run(t, q) })
			}
		}
	}
}

// mistakenJobs are a queue with a mistake.
type mistakenJobs struct {
	*postgres.Jobs
	m jobMistake
}

func (q *mistakenJobs) Apply(ctx context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) error {
	ops = slices.Clone(ops)
	if q.m.apply != nil {
		q.m.apply(q.Jobs, ops)
	}
	return q.Jobs.Apply(ctx, now, ops, res)
}

func (q *mistakenJobs) Stats(ctx context.Context, now queue.Instant, endpoint string, rules *queue.Rules) (queue.Stats, error) {
	if q.m.fold {
		if _, err := q.Jobs.Expire(ctx, now, 1000); err != nil {
			return queue.Stats{}, err
		}
	}
	return q.Jobs.Stats(ctx, now, endpoint, rules)
}

func (q *mistakenJobs) Expire(ctx context.Context, now queue.Instant, limit int) (queue.Instant, error) {
	if q.m.sweep {
		return 0, nil
	}
	return q.Jobs.Expire(ctx, now, limit)
}
