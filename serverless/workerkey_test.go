package serverless_test

import (
	"strings"
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
)

func withSecret(secret string) *serverless.Service {
	return serverless.New(memory.NewJobs(), memory.NewEndpoints(), &serverless.Options{WorkerSecret: []byte(secret)})
}

func TestWorkerKeySaysWhoseItIsOnEveryServerWithTheSecret(t *testing.T) {
	key := withSecret("one").WorkerKey("a-b_C", "w1.x")
	if !strings.HasPrefix(key, "wk_a-b_C.w1.x.") {
		t.Errorf("key %q does not begin with the endpoint and the worker", key)
	}
	ep, id, ok := withSecret("one").CheckWorkerKey(key)
	if ep != "a-b_C" || id != "w1.x" || !ok {
		t.Errorf("CheckWorkerKey = %q, %q, %v", ep, id, ok)
	}
	if _, _, ok := withSecret("two").CheckWorkerKey(key); ok {
		t.Error("a service with another secret took the key")
	}
	if _, _, ok := serverless.New(memory.NewJobs(), memory.NewEndpoints(), nil).CheckWorkerKey(key); ok {
		t.Error("a service without a secret took the key")
	}
}

func TestKeyThatIsNotExactlyTheWorkersIsRefused(t *testing.T) {
	s := withSecret("one")
	key := s.WorkerKey("ep", "w1")
	mac := key[strings.LastIndexByte(key, '.')+1:]
	for name, k := range map[string]string{
		"nothing":               "",
		"the prefix":            "wk_",
		"no parts":              "wk_abc",
		"two parts":             "wk_ep." + mac,
		"empty worker":          "wk_ep.." + mac,
		"empty endpoint":        "wk_.w1." + mac,
		"no prefix":             strings.TrimPrefix(key, "wk_"),
		"other prefix":          "pk_" + strings.TrimPrefix(key, "wk_"),
		"another worker's":      "wk_ep.w2." + mac,
		"another endpoint's":    "wk_eq.w1." + mac,
		"moved border":          "wk_e.pw1." + mac,
		"short":                 key[:len(key)-1],
		"long":                  key + "A",
		"empty code":            "wk_ep.w1.",
		"a line break in it":    key[:len(key)-4] + "\n" + key[len(key)-4:],
		"padded":                key + "=",
		"letters of other case": strings.ToUpper(key),
	} {
		if ep, id, ok := s.CheckWorkerKey(k); ok {
			t.Errorf("%s: key of %q, %q, want refused", name, ep, id)
		}
	}
}
