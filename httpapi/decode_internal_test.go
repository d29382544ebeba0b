package httpapi

import (
	"cmp"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
)

// Without the index of members, each of these bodies takes minutes.
func TestHugeBodiesAreTakenApartInTimeThatGrowsWithTheirSize(t *testing.T) {
	suite.SkipUnlessLong(t)
	var members, ports, env strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&ports, `,"%d/tcp"`, i+1)
		fmt.Fprintf(&env, `,"V%06d":1`, i)
	}
	for i := range 90_000 {
		fmt.Fprintf(&members, `,"m%06d":1`, i)
	}
	for name, f := range map[string]func() error{
		"unknown properties": func() error {
			_, err := decodeCreatePod([]byte(`{"name":"x"` + members.String()[:60_000*len(`,"m000000":1`)] + `}`))
			return err
		},
		"ports": func() error { _, err := decodeCreatePod([]byte(`{"ports":["x"` + ports.String() + `]}`)); return err },
		"env of a wrong type": func() error {
			_, err := decodeUpdatePod([]byte(`{"env":{"A":"b"` + env.String() + `}}`))
			return err
		},
		"a run with many members": func() error {
			_, err := parse([]byte(`{"input":{}`+members.String()+`}`), strictEnvelope, &problem.Violations{})
			return err
		},
	} {
		began := time.Now()
		if err := f(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := time.Since(began); d > suite.Within(6*time.Second) {
			t.Errorf("%s took %v", name, d)
		}
	}
}

// A member costs many times its bytes, which no budget counts. The input is for the worker, and not
// taken apart.
func TestAnObjectThatTheServiceReadsHasABoundedNumberOfMembers(t *testing.T) {
	var b strings.Builder
	for i := range maxMembers + 1 {
		fmt.Fprintf(&b, `,"%x":0`, i)
	}
	many := "{" + b.String()[1:] + "}"
	if _, err := DecodeRun([]byte(`{"input":` + many + `}`)); err != nil {
		t.Errorf("an input with many members: %v", err)
	}
	for name, body := range map[string]string{"at the top": `{"input":{}` + b.String() + `}`, "in the policy": `{"input":{},"policy":` + many + `}`} {
		if _, err := DecodeRun([]byte(body)); problem.KindOf(err) != problem.Invalid {
			t.Errorf("%d members %s: %v, want an error", maxMembers+1, name, err)
		}
	}
}

func TestMembersAreFoundHoweverManyThereAre(t *testing.T) {
	for n := range 3 * indexThreshold {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"m%d":%d,`, i, i)
		}
		o, err := parse([]byte("{"+b.String()+`"last":"x"}`), strictEnvelope, &problem.Violations{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if v := o.integer(fmt.Sprintf("m%d", i)); v == nil || *v != i {
				t.Errorf("of %d members m%d is %v", n, i, v)
			}
		}
		if o.text("last") != "x" || o.has("none") {
			t.Errorf("of %d members the last one, or one that is not there, is not as it should be", n)
		}
		for i := range n {
			twice := fmt.Sprintf(`{%s"m%d":0}`, b.String(), i)
			if _, err := parse([]byte(twice), strictEnvelope, &problem.Violations{}); problem.KindOf(err) != problem.BadRequest {
				t.Errorf("of %d members m%d is there twice, which is answered with %v", n, i, err)
			}
		}
	}
}

func TestSmallInputDoesNotKeepItsLargeBody(t *testing.T) {
	body := []byte(`{"more":"` + strings.Repeat("x", 1<<20) + `","input":{"a":1}}`)
	var kept []serverless.Request
	before := heap()
	for range 64 {
		r, err := callOf("POST", "/", body).runRequest(maxRunBody)
		if err != nil || string(r.Input) != `{"a":1}` {
			t.Fatalf("the input is %s, %v", r.Input, err)
		}
		kept = append(kept, r)
	}
	if grown := heap() - before; grown > 32<<20 {
		t.Errorf("%d small inputs keep %d MB", len(kept), grown>>20)
	}
	runtime.KeepAlive(kept)
}

// heap returns the size of the live heap.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestLinesOfOneInstantComeSourceBySource(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	want := []logLine{
		{pods.LogLine{At: at, Seq: 8}, pods.ContainerLog},
		{pods.LogLine{At: at, Seq: 9}, pods.ContainerLog},
		{pods.LogLine{At: at, Seq: 1}, pods.SystemLog},
		{pods.LogLine{At: at.Add(1), Seq: 1}, pods.ContainerLog},
	}
	for i, l := range want {
		for j, m := range want {
			if got := l.compare(m); got != cmp.Compare(i, j) {
				t.Errorf("line %d compared with line %d = %d", i, j, got)
			}
		}
	}
}
