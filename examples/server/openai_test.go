//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// openaiSDK is the version of the npm package that is tried.
const openaiSDK = "6.49.0"

// TestTheOpenAIClientTalksToAWorkerOfAnEndpoint needs Python for the worker and Node.js
// for the client.
func TestTheOpenAIClientTalksToAWorkerOfAnEndpoint(t *testing.T) {
	t.Parallel()
	path, modules := node(t, map[string]string{"openai": openaiSDK})
	in := startPython(t, "chat")
	cmd := exec.Command(path, filepath.Join("testdata", "openai.cjs"), in.url, in.key)
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	got := lastLine[obj](t, cmd)
	if diff := cmp.Diff(openaiWants, got); diff != "" {
		t.Errorf("what the client got (-want +got):\n%s", diff)
	}
}

// apiError is an error as the client shows it; status 0 is one in the middle of a stream.
func apiError(class string, status float64, kind, message string) obj {
	o := obj{"api": true, "class": class, "type": kind, "message": message}
	if status != 0 {
		o["status"] = status
	}
	return o
}

var openaiWants = obj{
	"completion": obj{"object": "chat.completion", "model": "tiny", "choices": []any{obj{
		"index": 0.0, "finish_reason": "stop", "message": obj{"role": "assistant", "content": "you said hello"},
	}}},
	"streamed":      []any{"you ", "said ", "one ", "two ", "three ", "four ", "five ", "stop"},
	"runner":        "you said six seven eight ",
	"models":        []any{"tiny"},
	"together":      []any{"you said number 1", "you said number 2", "you said number 3"},
	"failing":       apiError("InternalServerError", 500, "worker_error", "500 the model is out of order"),
	"failingStream": apiError("InternalServerError", 500, "worker_error", "500 the model is out of order"),
	"broken":        []any{"you ", "said ", "two ", "words "},
	"breaking":      apiError("APIError", 0, "worker_error", "the model broke"),
	"unknown":       apiError("NotFoundError", 404, "invalid_request_error", "404 endpoint not found"),
	"badKey":        apiError("AuthenticationError", 401, "authentication_error", "401 invalid or expired token"),
}
