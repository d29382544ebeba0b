// Package apitest starts the service for a test, and ends it with the test:
//
//	srv := apitest.Start(t)
//	srv.Endpoint("captions").Reply(map[string]any{"text": "a cat"})
//	t.Setenv("RUNPOD_ENDPOINT_BASE_URL", srv.URL()+"/v2") // or srv.Setenv()
//	... // the code under test
//	srv.RequireJob(t, apitest.JobMatch{Endpoint: "captions", Status: "COMPLETED"})
//
// Nothing happens by itself: srv.Advance(d) moves the clock on, srv.RunUntilIdle ends what
// is under way. It is the product on memory, not an imitation: see package double for
// time, faults, scripts and the journal, and examples/testdouble for a project with such
// tests in Go, Python and JavaScript.
package apitest
