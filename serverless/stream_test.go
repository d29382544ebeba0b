package serverless_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/serverless"
)

func submit(t *testing.T, s *serverless.Service, input string) serverless.Ref {
	t.Helper()
	j, err := s.Submit(t.Context(), "alice", "echo", serverless.Request{Input: []byte(input)})
	if err != nil {
		t.Fatalf("Submit: %v", err)
	}
	return j.Ref
}

// read makes one call of Stream and returns what it handed out, as "STATUS item item".
func read(t *testing.T, s *serverless.Service, ref serverless.Ref, q serverless.StreamQuery) string {
	t.Helper()
	var got []string
	err := s.Stream(t.Context(), "alice", ref, q, func(p serverless.StreamPart) error {
		got = append(got, p.Status.String())
		for _, b := range p.Items {
			got = append(got, string(b))
		}
		return nil
	})
	if err != nil {
		t.Fatalf("Stream: %v", err)
	}
	return strings.Join(got, " ")
}

func counter(pause time.Duration, chunks ...string) serverless.WorkerFunc {
	return func(ctx context.Context, k *serverless.Task) ([]byte, error) {
		for _, c := range chunks {
			time.Sleep(pause)
			if err := k.Emit(ctx, []byte(c)); err != nil {
				return nil, err
			}
		}
		return []byte(`[]`), nil
	}
}

func TestStreamHandsOutChunksAsTheyComeAndThenTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		serve(t, s, counter(time.Second, `1`, `"two"`, `{"three":3}`), nil)
		ref := submit(t, s, `{}`)
		var got []string
		for range 4 {
			got = append(got, read(t, s, ref, serverless.StreamQuery{}))
		}
		want := []string{`IN_PROGRESS {"output":1}`, `IN_PROGRESS {"output":"two"}`, `IN_PROGRESS {"output":{"three":3}}`, `COMPLETED`}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("parts (-want +got):\n%s", diff)
		}
	})
}

// A reader of a fast stream gets it in parts that are Linger apart. A token that comes later than
// that after the last part is not held.
func TestLingerCollectsAFastStreamAndHoldsNoSlowOne(t *testing.T) {
	for _, c := range []struct {
		pause, took time.Duration
		parts       int
	}{
		{time.Millisecond, 20 * time.Millisecond, 5},
		{20 * time.Millisecond, 20 * 20 * time.Millisecond, 21},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, nil)
			serve(t, s, counter(c.pause, strings.Split(strings.Repeat("1 ", 20)[:39], " ")...), nil)
			ref := submit(t, s, `{}`)
			synctest.Wait()
			begin, parts := time.Now(), 0
			for got := ""; !strings.HasPrefix(got, "COMPLETED"); parts++ {
				got = read(t, s, ref, serverless.StreamQuery{Linger: 5300 * time.Microsecond})
			}
			if took := time.Since(begin); took != c.took || parts != c.parts {
				t.Errorf("with a token every %v: %d parts in %v, want %d in %v", c.pause, parts, took, c.parts, c.took)
			}
		})
	}
}

func TestTerminalStatusComesOnlyAfterTheLastChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		serve(t, s, counter(0, `1`, `2`, `3`), nil)
		ref := submit(t, s, `{}`)
		synctest.Wait()
		begin := time.Now()
		var got []string
		for range 4 {
			got = append(got, read(t, s, ref, serverless.StreamQuery{MaxBytes: 24}))
		}
		want := []string{`IN_PROGRESS {"output":1} {"output":2}`, `IN_PROGRESS {"output":3}`, `COMPLETED`, `COMPLETED`}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("parts (-want +got):\n%s", diff)
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("reading what was there took %v, want no time", d)
		}
	})
}

func TestEmptyStreamIsHeldForTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submit(t, s, `{}`)
		for _, c := range []struct{ wait, held time.Duration }{{0, serverless.DefaultStreamWait}, {2 * time.Second, 2 * time.Second}} {
			begin := time.Now()
			if got := read(t, s, ref, serverless.StreamQuery{Wait: c.wait}); got != "IN_QUEUE" {
				t.Errorf("part = %s, want IN_QUEUE without items", got)
			}
			if d := time.Since(begin); d != c.held {
				t.Errorf("with wait %v it was held %v, want %v", c.wait, d, c.held)
			}
		}
	})
}

func TestEndOfTheContextAnswersWithWhatThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submit(t, s, `{}`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin, calls := time.Now(), 0
		err := s.Stream(ctx, "alice", ref, serverless.StreamQuery{}, func(serverless.StreamPart) error { calls++; return nil })
		if err != nil || calls != 1 || time.Since(begin) != time.Second {
			t.Errorf("Stream = %v after %v with %d calls of write, want nil after 1 s with one", err, time.Since(begin), calls)
		}
	})
}

func TestChunksThatWereNotWrittenAreGivenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		serve(t, s, counter(0, `1`, `2`), nil)
		ref := submit(t, s, `{}`)
		synctest.Wait()
		broken := errors.New("broken pipe")
		err := s.Stream(t.Context(), "alice", ref, serverless.StreamQuery{}, func(serverless.StreamPart) error { return broken })
		if !errors.Is(err, broken) {
			t.Errorf("Stream = %v, want the error of write", err)
		}
		if got, want := read(t, s, ref, serverless.StreamQuery{}), `IN_PROGRESS {"output":1} {"output":2}`; got != want {
			t.Errorf("part after a failed write = %s, want %s", got, want)
		}
	})
}

func TestManyReadersGetEachChunkOnceInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		const n = 100
		serve(t, s, func(ctx context.Context, k *serverless.Task) ([]byte, error) {
			for i := range n {
				time.Sleep(10 * time.Millisecond)
				if err := k.Emit(ctx, fmt.Append(nil, i)); err != nil {
					return nil, err
				}
			}
			return nil, nil
		}, nil)
		ref := submit(t, s, `{}`)
		var mu sync.Mutex
		var got, want []string
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for ended := false; !ended; {
					err := s.Stream(t.Context(), "alice", ref, serverless.StreamQuery{}, func(p serverless.StreamPart) error {
						ended = p.Status.Terminal()
						time.Sleep(7 * time.Millisecond) // a slow client
						mu.Lock()
						defer mu.Unlock()
						for _, b := range p.Items {
							got = append(got, string(b))
						}
						return nil
					})
					if err != nil {
						t.Errorf("Stream: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
		for i := range n {
			want = append(want, fmt.Sprintf(`{"output":%d}`, i))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("items of all readers (-want +got):\n%s", diff)
		}
	})
}

func TestReaderWhoseTurnDoesNotComeIsAnsweredWithoutItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		serve(t, s, counter(0, `1`), nil)
		ref := submit(t, s, `{}`)
		synctest.Wait()
		stuck := make(chan struct{})
		done := make(chan error)
		go func() {
			done <- s.Stream(t.Context(), "alice", ref, serverless.StreamQuery{}, func(serverless.StreamPart) error { <-stuck; return nil })
		}()
		synctest.Wait()
		begin := time.Now()
		if got := read(t, s, ref, serverless.StreamQuery{Wait: 3 * time.Second}); got != "IN_PROGRESS" {
			t.Errorf("part beside a reader that writes = %s, want IN_PROGRESS without items", got)
		}
		if d := time.Since(begin); d != 3*time.Second {
			t.Errorf("it was held %v, want its wait of 3 s", d)
		}
		close(stuck)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := read(t, s, ref, serverless.StreamQuery{}); got != "COMPLETED" {
			t.Errorf("next part = %s, want COMPLETED", got)
		}
	})
}

func TestStreamIsTheOwnersAndEndsWithTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ttl := 10 * time.Second
		j, err := s.Submit(t.Context(), "alice", "echo", serverless.Request{Input: []byte(`{}`), Policy: serverless.Policy{TTL: &ttl}})
		if err != nil {
			t.Fatal(err)
		}
		none := func(p serverless.StreamPart) error { t.Errorf("write was called with %v", p); return nil }
		for _, c := range []struct {
			owner string
			ref   serverless.Ref
			want  error
		}{
			{"bob", j.Ref, serverless.ErrNotFound},
			{"alice", serverless.Ref{Endpoint: "echo", ID: "x"}, serverless.ErrNotFound},
			{"alice", serverless.Ref{Endpoint: "nowhere", ID: j.ID}, serverless.ErrNoEndpoint},
			{"alice", j.Ref, serverless.ErrNotFound}, // its ttl passes while the reader waits
		} {
			if err := s.Stream(t.Context(), c.owner, c.ref, serverless.StreamQuery{Wait: time.Minute}, none); !errors.Is(err, c.want) {
				t.Errorf("Stream of %v for %s = %v, want %v", c.ref, c.owner, err, c.want)
			}
		}
	})
}

func TestChunksOfAnEarlierRunAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		serve(t, s, func(ctx context.Context, k *serverless.Task) ([]byte, error) {
			return nil, errors.Join(k.Emit(ctx, []byte(`"a"`)), k.Emit(ctx, []byte(`"b"`)), errors.New("no"))
		}, nil)
		ref := submit(t, s, `{}`)
		synctest.Wait()
		err := s.Stream(t.Context(), "alice", ref, serverless.StreamQuery{}, func(serverless.StreamPart) error {
			_, err := s.Retry(t.Context(), "alice", ref) // while the answer is written
			synctest.Wait()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := read(t, s, ref, serverless.StreamQuery{}), `IN_PROGRESS {"output":"a"} {"output":"b"}`; got != want {
			t.Errorf("first part of the second run = %s, want %s: the cursor is that of a run", got, want)
		}
	})
}

func TestLongStringChunkComesInSeveralParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		text := strings.Repeat("€", serverless.MaxChunk) // three bytes each
		serve(t, s, func(ctx context.Context, k *serverless.Task) ([]byte, error) {
			return nil, k.Emit(ctx, []byte(`"`+text+`"`))
		}, nil)
		ref := submit(t, s, `{}`)
		synctest.Wait()
		var joined strings.Builder
		parts := 0
		for ended := false; !ended; parts++ {
			err := s.Stream(t.Context(), "alice", ref, serverless.StreamQuery{}, func(p serverless.StreamPart) error {
				ended = p.Status.Terminal()
				size := 0
				for _, b := range p.Items {
					size += len(b)
					joined.WriteString(strings.TrimSuffix(strings.TrimPrefix(string(b), `{"output":"`), `"}`))
				}
				if size > serverless.MaxChunk {
					t.Errorf("a part has %d bytes of items, want at most %d", size, serverless.MaxChunk)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if joined.String() != text || parts != 5 {
			t.Errorf("%d parts with %d bytes, want 4 and the end, with %d bytes", parts, joined.Len(), len(text))
		}
	})
}

// peek makes one call of Peek and returns what it saw, as "STATUS first item item".
func peek(t *testing.T, s *serverless.Service, ref serverless.Ref, from uint32, q serverless.StreamQuery) string {
	t.Helper()
	p, first, err := s.Peek(t.Context(), "alice", ref, from, q)
	if err != nil {
		t.Fatalf("Peek: %v", err)
	}
	got := []string{p.Status.String(), fmt.Sprint(first)}
	for _, b := range p.Items {
		got = append(got, string(b))
	}
	return strings.Join(got, " ")
}

func TestPeekSeesChunksAsTheyComeAndLeavesThemToTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		serve(t, s, counter(time.Second, `1`, `2`, `3`, `4`), nil)
		ref := submit(t, s, `{}`)
		got := []string{peek(t, s, ref, 0, serverless.StreamQuery{}), peek(t, s, ref, 1, serverless.StreamQuery{})}
		got = append(got, read(t, s, ref, serverless.StreamQuery{}))    // the reader gets 1 and 2
		got = append(got, peek(t, s, ref, 0, serverless.StreamQuery{})) // from here on 3 is the first
		got = append(got, peek(t, s, ref, 2, serverless.StreamQuery{}))
		time.Sleep(5 * time.Second)
		got = append(got, peek(t, s, ref, 3, serverless.StreamQuery{}), peek(t, s, ref, 4, serverless.StreamQuery{}), read(t, s, ref, serverless.StreamQuery{}))
		want := []string{
			`IN_PROGRESS 0 {"output":1}`, `IN_PROGRESS 1 {"output":2}`, `IN_PROGRESS {"output":1} {"output":2}`,
			`IN_PROGRESS 2 {"output":3}`, `IN_PROGRESS 2 {"output":3}`,
			`COMPLETED 3 {"output":4}`, `COMPLETED 4`, `IN_PROGRESS {"output":3} {"output":4}`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("what was seen (-want +got):\n%s", diff)
		}
	})
}

func TestPeekWaitsNoLongerThanItIsToldAndShowsNoJobOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		ref := submit(t, s, `{}`)
		begin := time.Now()
		if got := peek(t, s, ref, 0, serverless.StreamQuery{Wait: 3 * time.Second}); got != "IN_QUEUE 0" || time.Since(begin) != 3*time.Second {
			t.Errorf("Peek = %s after %v, want IN_QUEUE 0 after 3 s", got, time.Since(begin))
		}
		if _, _, err := s.Peek(t.Context(), "bob", ref, 0, serverless.StreamQuery{}); !errors.Is(err, serverless.ErrNotFound) {
			t.Errorf("Peek of another user = %v, want ErrNotFound", err)
		}
	})
}
