package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/examples/server/demo"
)

// An abuse is what a user does until ctx ends.
type abuse struct {
	door    string // by which it comes: a row of docs/security.md, Doors
	name    string
	refused bool                                              // some of it must be refused
	fills   bool                                              // it fills the disk: others are refused with a 503 until it ends, and not longer
	slow    bool                                              // it needs a moment before it does harm: do says by bites when
	server  func(t *testing.T, s *settingsOf) (args []string) // what the server has besides its defaults
	prepare func(n *tenant)                                   // before it
	do      func(ctx context.Context, n *tenant)
	after   func(n *tenant) // what must hold after it
}

// abuses are those of all doors.
var abuses = slices.Concat(
	abusesOfTheAPI, abusesOfConnections, abusesOfTheConsole, abusesOfWorkers, abusesOfReceivers, abusesOfPods, abusesInside, abusesOfSSH, abusesOfNames, abusesOfOperators,
)

var megabyte = strings.Repeat("x", 1<<20)

var abusesOfTheAPI = []abuse{
	{door: "API", name: "bodies that trickle in chunks", do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 100, func(int) {
			c := n.dial(ctx, n.head("POST", "/v2/echo/run", "Transfer-Encoding: chunked"))
			for c != nil && ctx.Err() == nil {
				if _, err := io.WriteString(c, "1\r\n{\r\n"); err != nil {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			closeConn(c)
		})
	}},
	{door: "API", name: "bodies that are announced and not sent", do: func(ctx context.Context, n *tenant) {
		n.silent(ctx, 500, func(int) string { return n.head("POST", "/v2/echo/runsync", "Content-Length: 20000000") + "{" })
	}},
	{door: "API", name: "large bodies without their last byte", do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 20, func(int) {
			c := n.dial(ctx, n.head("POST", "/v2/echo/runsync", "Content-Length: 20000000"))
			if c == nil {
				return
			}
			defer c.Close()
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			for range 19 {
				if _, err := io.WriteString(c, megabyte); err != nil {
					return
				}
			}
			<-ctx.Done()
		})
	}},
	{door: "API", name: "a flood of headers", do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 8, func(int) { n.do(ctx, "GET", "/v2/echo/health", "", "X-Long: "+megabyte[:60<<10]) })
	}},
	{door: "API", name: "a flood of queries", do: func(ctx context.Context, n *tenant) {
		query := strings.Repeat("a=b&", 12<<10)
		everywhere(ctx, 8, func(int) { n.do(ctx, "GET", "/v2/echo/requests?"+query, "") })
	}},
	{door: "API", name: "a flood of wrong keys", do: func(ctx context.Context, n *tenant) {
		wrong := newTenant(n.t, n.in, "nobody", n.from)
		everywhere(ctx, 16, func(int) { wrong.do(ctx, "GET", "/v2/echo/health", "") })
	}},
	{door: "API", name: "slow readers of a large status", prepare: func(n *tenant) { n.pod = n.largeJob() }, do: func(ctx context.Context, n *tenant) {
		n.silent(ctx, 110, func(int) string { return n.head("GET", "/v2/echo/status/"+n.pod) })
	}},
	{door: "Waits", name: "slow readers of runsync", do: func(ctx context.Context, n *tenant) {
		const body = `{"input":{"size":3000000}}`
		n.silent(ctx, 60, func(int) string {
			return n.head("POST", "/v2/echo/runsync", fmt.Sprintf("Content-Length: %d", len(body))) + body
		})
	}},
	{door: "API", name: "slow readers of requests with their payloads", prepare: func(n *tenant) { n.largeJobs(8) }, do: func(ctx context.Context, n *tenant) {
		n.silent(ctx, 40, func(int) string { return n.head("GET", "/v2/"+n.endpoint+"/requests?full=true&limit=100") })
	}},
	{door: "API", name: "slow readers of lists of jobs", prepare: func(n *tenant) { n.largeJobs(8) }, do: func(ctx context.Context, n *tenant) {
		n.silent(ctx, 40, func(int) string { return n.head("GET", "/v2/serverless/"+n.endpoint+"/jobs?limit=1000") })
	}},
	{door: "Worker protocol", name: "slow readers of batches of jobs", prepare: func(n *tenant) { n.largeJobs(8) }, do: func(ctx context.Context, n *tenant) {
		n.silent(ctx, 40, func(i int) string {
			return n.head("GET", fmt.Sprintf("/v2/%s/job-take-batch/w%d?batch_size=1000", n.endpoint, i))
		})
	}},
	{door: "API", name: "slow readers of lists of templates", prepare: (*tenant).largeRecords, do: func(ctx context.Context, n *tenant) {
		n.silent(ctx, 50, func(int) string { return n.head("GET", "/v2/templates") })
	}},
	{door: "Event streams", name: "slow readers of logs", do: func(ctx context.Context, n *tenant) {
		n.silent(ctx, 400, func(int) string { return n.head("GET", "/v2/pods/"+n.pod+"/logs?tail=5000") })
	}},
	{door: "Waits", name: "slow readers of streams", do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 20, func(int) {
			var job struct{ ID string }
			_, b := n.do(ctx, "POST", "/v2/echo/run", `{"input":{"chunks":2000}}`)
			if json.Unmarshal(b, &job) == nil {
				c := n.dial(ctx, n.head("GET", "/v2/echo/stream/"+job.ID))
				time.Sleep(50 * time.Millisecond)
				closeConn(c)
			}
		})
	}},
	{door: "Worker protocol", name: "invented names of workers", do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 16, func(i int) { n.do(ctx, "GET", fmt.Sprintf("/v2/%s/ping/worker-%d", n.endpoint, i), "") })
	}},
	{door: "Worker protocol", name: "pings with thousands of jobs", do: func(ctx context.Context, n *tenant) {
		ids := strings.TrimPrefix(strings.Repeat(",jb", 20_000), ",")
		everywhere(ctx, 8, func(i int) {
			var list strings.Builder
			for k := range 1900 {
				fmt.Fprintf(&list, "j%d-%d,", i%300, k)
			}
			n.do(ctx, "GET", fmt.Sprintf("/v2/%s/ping/w%d?job_id=%s", n.endpoint, i%300, list.String()), "")
			n.do(ctx, "GET", fmt.Sprintf("/v2/%s/ping/w%d?job_id=%s", n.endpoint, i%300, ids), "")
		})
	}},
	{door: "Worker protocol", name: "many tiny chunks", prepare: func(n *tenant) { n.do(n.t.Context(), "POST", "/v2/"+n.endpoint+"/run", `{"input":{}}`) }, do: func(ctx context.Context, n *tenant) {
		var job struct{ ID string }
		_, b := n.do(ctx, "GET", "/v2/"+n.endpoint+"/job-take/w", "")
		_ = json.Unmarshal(b, &job)
		everywhere(ctx, 16, func(int) { n.do(ctx, "POST", "/v2/"+n.endpoint+"/job-stream/w/"+job.ID, `{"output":1}`) })
	}},
	{door: "HTTP/1 before a key", name: "idle connections without a key", do: func(ctx context.Context, n *tenant) {
		n.silent(ctx, 3000, func(int) string { return "" })
	}},
	{door: "API", name: "idle connections with a key", do: func(ctx context.Context, n *tenant) {
		n.silent(ctx, 2500, func(int) string { return n.head("GET", "/v2/echo/health") })
	}},
	{door: "Worker protocol", name: "long polls", do: func(ctx context.Context, n *tenant) {
		n.silent(ctx, 2000, func(i int) string { return n.head("GET", fmt.Sprintf("/v2/%s/job-take/w%d", n.endpoint, i)) })
	}},
	{door: "Event streams", name: "watchers of events", refused: true, do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 40, func(int) {
			wait, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			n.do(wait, "GET", "/v2/echo/events", "")
		})
	}},
	{door: "Answers to webhooks", name: "webhooks to a receiver that is silent", do: func(ctx context.Context, n *tenant) {
		hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-ctx.Done():
			}
		}))
		defer hang.Close()
		everywhere(ctx, 8, func(int) {
			n.do(ctx, "POST", "/v2/echo/run", `{"input":{"size":100000},"webhook":"`+hang.URL+`"}`)
		})
	}},
	{door: "Answers to webhooks", name: "a storm of redeliveries", do: func(ctx context.Context, n *tenant) {
		hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		defer hook.Close()
		var job struct{ ID string }
		_, b := n.do(ctx, "POST", "/v2/"+n.endpoint+"/run", `{"input":{},"webhook":"`+hook.URL+`"}`)
		_ = json.Unmarshal(b, &job)
		n.do(ctx, "GET", "/v2/"+n.endpoint+"/job-take/w", "")
		n.do(ctx, "POST", "/v2/"+n.endpoint+"/job-done/w/"+job.ID, `{"output":"`+megabyte+`"}`)
		everywhere(ctx, 16, func(int) {
			n.do(ctx, "POST", "/v2/serverless/"+n.endpoint+"/deliveries/"+job.ID+"/redeliver", "")
		})
	}},
	{door: "API", name: "schedules of every minute", refused: true, do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 8, func(int) {
			n.do(ctx, "POST", "/v2/"+n.endpoint+"/schedules", `{"cron":"* * * * *","run":{"input":{}}}`)
		})
	}},
	{door: "API", name: "batches of the largest size", do: func(ctx context.Context, n *tenant) {
		requests := strings.TrimSuffix(strings.Repeat(`{"input":{"sleep_ms":1}},`, 1000), ",")
		everywhere(ctx, 4, func(int) { n.do(ctx, "POST", "/v2/echo/batch", `[`+requests+`]`) })
	}},
	{door: "API", name: "cursors that are old or forged", refused: true, do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 16, func(i int) {
			n.do(ctx, "GET", fmt.Sprintf("/v2/serverless/%s/jobs?limit=1000&cursor=AAAAAAAAAAAAAAAA%08d", n.endpoint, i), "")
		})
	}},
	{door: "`/lb/` requests", name: "uploads to a load-balancing endpoint without workers", do: func(ctx context.Context, n *tenant) {
		n.silent(ctx, 300, func(int) string {
			return n.head("POST", "/lb/"+n.balanced+"/x", "Content-Length: 20000000") + megabyte[:10_000]
		})
	}},
	{door: "API", name: "large environments", do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 4, func(i int) { n.largeRecord(ctx, i) })
	}},
	{door: "API", name: "purges again and again", refused: true, do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 8, func(int) { n.do(ctx, "POST", "/v2/"+n.endpoint+"/purge-queue", "") })
	}},
	{door: "API", name: "submits and cancels", do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 16, func(int) {
			var job struct{ ID string }
			_, b := n.do(ctx, "POST", "/v2/"+n.endpoint+"/run", `{"input":{}}`)
			if json.Unmarshal(b, &job) == nil {
				n.do(ctx, "POST", "/v2/"+n.endpoint+"/cancel/"+job.ID, "")
			}
		})
	}},
	{door: "API", name: "long idempotency keys", do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 16, func(i int) {
			n.do(ctx, "POST", "/v2/"+n.endpoint+"/run", `{"input":{}}`, fmt.Sprintf("Idempotency-Key: %0255d", i))
		})
	}},
	{door: "API", name: "actions on all jobs", refused: true, do: func(ctx context.Context, n *tenant) {
		everywhere(ctx, 4, func(int) {
			n.do(ctx, "POST", "/v2/"+n.endpoint+"/run", `{"input":{}}`)
			n.do(ctx, "POST", "/v2/"+n.endpoint+"/actions", `{"action":"cancel","all":true}`)
		})
	}},
	{door: "API", name: "large inputs of jobs that run for long", prepare: func(n *tenant) {
		for range 14 {
			if status, b := n.do(n.t.Context(), "POST", "/v2/echo/run", `{"input":{"sleep_ms":20000,"a":"`+strings.Repeat(megabyte, 9)+`"}}`); status != 200 {
				n.t.Fatalf("a job of 9 MB = %d %s", status, b)
			}
		}
	}, do: func(ctx context.Context, n *tenant) {
		const limit, one = 64 << 20, 10 << 20 // one job may go on beyond the limit
		most := int64(0)
		for end := time.Now().Add(patience); ctx.Err() == nil || most < limit-one && time.Now().Before(end); {
			most = max(most, n.used("inputBytes"))
			time.Sleep(20 * time.Millisecond)
		}
		if most < limit-one || most > limit+one {
			n.t.Errorf("running jobs have inputs of %d MB, want about %d: some of them run, and some wait", most>>20, limit>>20)
		}
	}},
	{door: "API", name: "large jobs one after another where many ran before", slow: true, prepare: func(n *tenant) {
		times(400, 64, func() { n.do(n.t.Context(), "POST", "/v2/echo/run", `{"input":{"sleep_ms":300}}`) })
	}, do: func(ctx context.Context, n *tenant) {
		// No input is there any more when the next one comes.
		for range 90 {
			if n.in.resident() > 2*neighbourMemory {
				break
			}
			n.do(n.t.Context(), "POST", "/v2/echo/runsync", `{"input":{"a":"`+strings.Repeat(megabyte, 9)+`","size":1}}`)
		}
		n.bites()
		<-ctx.Done()
	}},
	{door: "API", name: "deep and broken JSON", do: func(ctx context.Context, n *tenant) {
		deep := `{"input":` + strings.Repeat("[", 9000)
		everywhere(ctx, 8, func(int) { n.do(ctx, "POST", "/v2/echo/run", deep) })
	}},
}

// used returns what the user has of a budget.
func (n *tenant) used(budget string) int64 {
	var all struct {
		Users []struct {
			Limits []struct {
				Name string
				Used int64
			}
		}
	}
	_, b := n.do(n.t.Context(), "GET", "/v2/account/limits", "")
	_ = json.Unmarshal(b, &all) // nothing is used then
	for _, user := range all.Users {
		for _, l := range user.Limits {
			if l.Name == budget {
				return l.Used
			}
		}
	}
	return 0
}

func closeConn(c net.Conn) {
	if c != nil {
		_ = c.Close()
	}
}

// largeJob makes a job with an output of 19 MB and returns its id.
func (n *tenant) largeJob() string {
	var job struct{ ID, Status string }
	_, b := n.do(n.t.Context(), "POST", "/v2/echo/run", `{"input":{"size":19000000}}`)
	_ = json.Unmarshal(b, &job)
	eventually(n.t, "the job has ended", func() bool {
		_, b := n.do(n.t.Context(), "GET", "/v2/echo/status/"+job.ID, "")
		return strings.Contains(string(b[max(0, len(b)-200):]), "COMPLETED")
	})
	return job.ID
}

// largeJobs queues jobs of 9.9 MB.
func (n *tenant) largeJobs(count int) {
	for range count {
		if status, b := n.do(n.t.Context(), "POST", "/v2/"+n.endpoint+"/run", `{"input":{"a":"`+strings.Repeat(megabyte, 9)+`"}}`); status != 200 {
			n.t.Fatalf("a job of 9 MB = %d %s", status, b)
		}
	}
}

// largeRecords makes templates with environments as large as the budget allows.
func (n *tenant) largeRecords() {
	for i := range 8 {
		n.largeRecord(n.t.Context(), i)
	}
}

func (n *tenant) largeRecord(ctx context.Context, i int) {
	n.do(ctx, "POST", "/v2/templates", fmt.Sprintf(`{"name":"t%d","image":"%s","env":{"A":"%s"}}`, i, demo.WebImage, megabyte[:950<<10]))
}
