// Package apitest starts the service for a test, and ends it with the test:
//
//	srv := apitest.Start(t)
//	srv.Endpoint("captions").Reply(map[string]any{"text": "a cat"})
//	t.Setenv("RUNPOD_ENDPOINT_BASE_URL", srv.URL()+"/v2") // or srv.Setenv()
//	... // the code under test
//	srv.RequireJob(t, apitest.JobMatch{Endpoint: "captions", Status: "COMPLETED"})
//
// The clock stands still until the test moves it: srv.Advance(d) moves it by d, and
// srv.RunUntilIdle moves it until nothing is under way. The server is the product on
// memory and not an imitation. Package double describes time, faults, scripts and the
// journal. examples/testdouble is a project with such tests in Go, Python and
// JavaScript.
package apitest
