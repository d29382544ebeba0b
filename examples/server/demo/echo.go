package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/podyard/podyard/serverless"
)

// echoMembers are what the input of endpoint echo can ask for.
type echoMembers struct {
	SleepMS *int64  `json:"sleep_ms"`
	Fail    *string `json:"fail"`
	Chunks  *int    `json:"chunks"`
	Size    *int    `json:"size"`
}

// The endpoint echo, and the worker of this process that serves it.
const (
	EchoEndpoint = "echo"
	EchoWorker   = "local-echo"
	EchoSlots    = 1024 // how many of its jobs run at once
)

// Echo answers with its input. {"sleep_ms":n} waits first, {"fail":"why"} fails,
// {"chunks":n} streams {"chunk":0} and so on and ends with the list of them, and
// {"size":n} answers with a string of n bytes.
func Echo(ctx context.Context, t *serverless.Task) ([]byte, error) { return answer(ctx, t, sleep) }

// EchoBy is Echo that waits in a certain way.
func EchoBy(sleep func(context.Context, time.Duration) error) serverless.WorkerFunc {
	return func(ctx context.Context, t *serverless.Task) ([]byte, error) { return answer(ctx, t, sleep) }
}

func answer(ctx context.Context, t *serverless.Task, sleep func(context.Context, time.Duration) error) ([]byte, error) {
	var in echoMembers
	if asks(t.Input) {
		if err := json.Unmarshal(t.Input, &in); err != nil {
			return nil, misread(err)
		}
	}
	if in.SleepMS != nil {
		if err := sleep(ctx, time.Duration(*in.SleepMS)*time.Millisecond); err != nil {
			return nil, err
		}
	}
	switch {
	case in.Fail != nil:
		return nil, errors.New(*in.Fail)
	case in.Chunks != nil:
		return stream(ctx, t, *in.Chunks)
	case in.Size != nil:
		return ofSize(*in.Size)
	}
	return t.Input, nil
}

// misread says which member of an input is of another type.
func misread(err error) error {
	wrong := (*json.UnmarshalTypeError)(nil)
	switch {
	case !errors.As(err, &wrong):
		return fmt.Errorf("echo: %w", err)
	case wrong.Type.Kind() == reflect.String:
		return fmt.Errorf("echo: %s must be a string", wrong.Field)
	}
	return fmt.Errorf("echo: %s must be an integer of at most 64 bits", wrong.Field)
}

// asks spares most inputs from being decoded.
func asks(input []byte) bool {
	for _, name := range [...]string{`"sleep_ms"`, `"fail"`, `"chunks"`, `"size"`} {
		if bytes.Contains(input, []byte(name)) {
			return true
		}
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func stream(ctx context.Context, t *serverless.Task, n int) ([]byte, error) {
	out := []byte{'['}
	for i := range n {
		chunk := fmt.Appendf(nil, `{"chunk":%d}`, i)
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, chunk...)
		if err := t.Emit(ctx, chunk); err != nil {
			return nil, err
		}
	}
	return append(out, ']'), nil
}

func ofSize(n int) ([]byte, error) {
	if n < 0 || n > serverless.MaxOutput {
		return nil, fmt.Errorf("echo: size must be from 0 to %d", serverless.MaxOutput)
	}
	b := bytes.Repeat([]byte{'x'}, n+2)
	b[0], b[n+1] = '"', '"'
	return b, nil
}
